"""What the tests of the console share: a console of each role, and a browser without a screen."""

import contextlib
import html
import re
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql
from starlette.testclient import TestClient

from taskq_pg.console import console
from taskq_pg.console.render import coded

HERE = "http://console.test"
MARK = re.compile(r'name="mark" value="([0-9a-f]+)"')


_made: list[Any] = []


def made(app: Any) -> Any:
    """Note a console that is to be closed at the end of the test."""
    _made.append(app)
    return app


def close_all() -> None:
    while _made:
        _connections(_made.pop()).close()


def _connections(app: Any) -> Any:
    return app.app.state.site.database.connections


class Visitor:
    """Opens pages, and presses buttons as their forms say."""

    def __init__(self, where: str, **options: Any) -> None:
        self.app = made(console(where, **options))
        self.client = TestClient(self.app, base_url=HERE, follow_redirects=False)

    def close(self) -> None:
        _connections(self.app).close()

    def open(self, path: str, status: int = 200) -> str:
        answer = self.client.get(f"/{path}", follow_redirects=True)
        assert answer.status_code == status, answer.text
        return answer.text

    def mark(self) -> str:
        """The mark of a form; a page without one to press has the mark of its cookie all the same."""
        page = self.open("tasks")
        [mark] = set(MARK.findall(page))
        return mark

    def send(self, path: str, pairs: list[tuple[str, str]], **headers: str) -> Any:
        from urllib.parse import urlencode

        content = urlencode(pairs)
        given = {"content-type": "application/x-www-form-urlencoded", **headers}
        return self.client.post(f"/{path}", content=content, headers=given)

    def press(self, what: str, *ids: str, sure: bool = True, back: str = "tasks", **fields: str) -> str:
        """Press a button; what the next page says, or what it was refused with."""
        pairs = [
            ("mark", self.mark()),
            ("back", back),
            ("do", what),
            *(("id", coded(one)) for one in ids),
            *fields.items(),
        ]
        answer = self.send("act", pairs + ([("sure", "1")] if sure else []))
        if answer.status_code == 303:
            page = self.client.get(answer.headers["location"], follow_redirects=True).text
            [said] = re.findall(r'<p class="said [a-z]+" role="status">(.*?)</p>', page, re.DOTALL)
            return html.unescape(said)
        return f"{answer.status_code} {html.unescape(answer.text)}"

    def bulk(self, what: str, **filter: str) -> tuple[int, str]:
        """Press a button for all that a filter finds; how many were counted, and the last page."""
        pairs = [
            ("mark", self.mark()),
            ("do", what),
            ("all", "1"),
            ("back", "tasks"),
            *((n, coded(v)) for n, v in filter.items()),
        ]
        page = self.send("act", pairs).text
        while "Go on counting" in page:
            page = self._step(page)
        counted = int(re.findall(r"<b>([0-9,]+)</b> task", page)[0].replace(",", "")) if "<b>" in page else 0
        if counted:
            page = self._step(page)
        while "data-go" in page:
            page = self._step(page)
        return counted, html.unescape(page)

    def _step(self, page: str) -> str:
        form = page[page.index('action="/bulk"') :]
        pairs = [(html.unescape(n), html.unescape(v)) for n, v in re.findall(r'name="([^"]*)" value="([^"]*)"', form)]
        answer = self.send("bulk", pairs)
        assert answer.status_code == 200, answer.text
        return answer.text


@contextlib.contextmanager
def roles(where: str, *parts: str) -> Iterator[dict[str, str]]:
    """Roles that have a part each; the connecting role may set any of them."""
    made = {part: f"taskq_{part}_{uuid.uuid4().hex[:8]}" for part in parts}
    with psycopg.connect(where, autocommit=True) as connection:
        for part, name in made.items():
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
            if part != "none":
                connection.execute(sql.SQL("SELECT {}(%s)").format(sql.Identifier("taskq", f"grant_{part}")), [name])
        try:
            yield made
        finally:
            for name in made.values():
                connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
                connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))
