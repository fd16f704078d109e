"""Tasks as HTTP requests; the server is a handler of this process."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from conftest import column, conninfo, state
from taskq_pg import App
from taskq_pg.testing import inserted
from taskq_pg.webhooks import dispatcher

ANSWERS: dict[str, tuple[int, dict[str, str], str]] = {
    "fine": (200, {}, json.dumps({"result": {"bytes": 3}, "status": "done", "children": [{"id": "c", "action": "x"}]})),
    "empty": (200, {}, ""),
    "no content": (204, {}, ""),
    "accepted": (202, {}, ""),
    "gone": (410, {"Content-Type": "text/plain; charset=utf-8"}, "no such thing"),
    "busy": (429, {"Retry-After": "300"}, "slowly"),
    "broken": (500, {}, "a trace"),
    "fails once": (500, {"Content-Type": "text/plain"}, "a trace"),
    "elsewhere": (302, {"Location": "/fine"}, ""),
}


NOTHING = object()
# What other answers with 2xx leave as the result.
ODD: dict[str, object] = {
    "hello": NOTHING,
    '{"result": NaN}': NOTHING,
    '{"result": 1e999}': NOTHING,
    '{"result": ' + "[" * 100_000 + "]" * 100_000 + "}": NOTHING,
    "{}": NOTHING,
    '{"status": null, "result": null}': NOTHING,
    "[]": [],
    '"ok"': "ok",
    '{"reslut": 1}': {"reslut": 1},
    '{"children": 5}': {"children": 5},
    '{"children": [5]}': {"children": [5]},
    '{"children": {}}': {"children": {}},
    '{"status": {}}': {"status": {}},
    '{"delay_workgroup": 5}': {"delay_workgroup": 5},
    '{"result": 1, "children_block": "no"}': {"result": 1, "children_block": "no"},
    '{"result": 7, "delay_workgroup": "soon"}': 7,
    '{"result": 7, "delay_workgroup": "-1 hour"}': 7,
}
# What the queue refuses.
REFUSED = [
    '{"children": [{"id": "c"}]}',
    '{"children": [{"id": "c", "action": "x", "bdoy": 1}]}',
    '{"delay_children": "soon", "children": [{"action": "x"}]}',
]


@pytest.fixture
def web() -> Iterator[ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            body = json.loads(content)
            server.requests.append((self.path, dict(self.headers), body, content))  # type: ignore[attr-defined]
            name = "empty" if body["num_tries"] == 2 else body["body"]
            code, headers, text = ANSWERS[name]
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_answer(taskq_app: App, web: ThreadingHTTPServer) -> None:
    url = f"http://127.0.0.1:{web.server_port}/hooks/"
    app = dispatcher(
        conninfo(taskq_app), url, ["re/size"], authorization="Bearer x", with_token=True, delay_workgroup=True
    )
    for name in ANSWERS:
        backoff = {"kind": "fixed", "initial": "1 hour"}
        taskq_app.insert("re/size", name, id=name, workgroup="w" if name == "busy" else name, backoff=backoff)
    app.work(until_idle=True)
    app.close()
    assert {name: state(taskq_app, name) for name in ANSWERS} == {
        "fine": "completed",
        "empty": "completed",
        "no content": "completed",
        "accepted": "in-progress",
        "gone": "aborted",
        "busy": "scheduled",
        "broken": "scheduled",
        "fails once": "scheduled",
        "elsewhere": "scheduled",
    }
    assert column(taskq_app, "fine", "result") == {"bytes": 3}
    assert column(taskq_app, "fine", "status") == "done"
    assert state(taskq_app, "c") == "ready"
    assert column(taskq_app, "gone", "status") == "HTTP 410 no such thing"
    held = taskq_app.query("SELECT not_before > now() + '4 minutes' FROM taskq.workgroups WHERE workgroup = 'w'")
    assert held == [(True,)]

    requests = {body["task_id"]: (path, headers, body) for path, headers, body, _ in web.requests}
    assert len(web.requests) == len(ANSWERS), "redirects are not followed"
    path, headers, body = requests["accepted"]
    assert path == "/hooks/re%2Fsize"
    assert headers["Authorization"] == "Bearer x"
    assert headers["Idempotency-Key"] == "accepted"
    # The token is all that the other side needs.
    taskq_app.query("SELECT taskq.return_task('accepted', %s::text::uuid)", [body.pop("token")])
    assert state(taskq_app, "accepted") == "completed"
    assert body == {
        "task_id": "accepted",
        "action": "re/size",
        "body": "accepted",
        "results": [],
        "checkpoint": None,
        "num_tries": 1,
    }


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:30])
@pytest.mark.parametrize("code", [200, 201])
def test_whatever_2xx_answers_the_work_is_done(taskq_app: App, text: str, code: int) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(code, text=text))
    app = dispatcher(conninfo(taskq_app), "http://x/", ["a"], transport=transport)
    taskq_app.insert("a", id="a", max_tries=1)
    app.work(until_idle=True)
    app.close()
    assert state(taskq_app, "a") == "completed"
    assert column(taskq_app, "a", "result") == (None if ODD[text] is NOTHING else ODD[text])


@pytest.mark.parametrize("text", REFUSED)
def test_an_answer_that_the_queue_refuses(taskq_app: App, text: str) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=text))
    app = dispatcher(conninfo(taskq_app), "http://x/", ["a"], transport=transport)
    taskq_app.insert("a", id="a", backoff={"kind": "fixed", "initial": "1 hour"})
    app.work(until_idle=True)
    app.close()
    assert state(taskq_app, "a") == "scheduled"
    assert str(column(taskq_app, "a", "status")).startswith("its return was refused: ")
    assert not inserted(taskq_app, id="c")


def test_signed_as_standard_webhooks_are(taskq_app: App, web: ThreadingHTTPServer) -> None:
    key = b"a key of twenty bytes"
    secret = f"whsec_{base64.b64encode(key).decode()}"
    app = dispatcher(conninfo(taskq_app), f"http://127.0.0.1:{web.server_port}/", ["a"], secret=secret)
    taskq_app.insert("a", "fails once", id="t", max_tries=2, backoff={"kind": "fixed", "initial": "0 seconds"})
    app.work(until_idle=True)
    app.close()
    assert state(taskq_app, "t") == "completed"
    for number, (_, headers, _, content) in enumerate(web.requests, 1):
        signed = f"t.{headers['webhook-timestamp']}.".encode() + content
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        assert (headers["webhook-id"], headers["Idempotency-Key"], headers["taskq-try"]) == ("t", "t", str(number))
        assert datetime.fromisoformat(headers["taskq-deadline"]).tzinfo is not None
        assert headers["Accept-Encoding"] == "identity"
    assert len(web.requests) == 2


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize("holds", [True, False])
def test_retry_after(taskq_app: App, code: int, holds: bool) -> None:
    """A day at most, and only where it is asked for the workgroup waits, too."""
    transport = httpx.MockTransport(lambda _: httpx.Response(code, headers={"Retry-After": "99999999999"}))
    app = dispatcher(conninfo(taskq_app), "http://x/", ["a"], transport=transport, delay_workgroup=holds)
    taskq_app.insert("a", id="a", workgroup="w")
    app.work(until_idle=True)
    app.close()
    after = "SELECT not_before - now() BETWEEN '23 hours' AND '1 day' FROM taskq.tasks WHERE id = 'a'"
    assert taskq_app.query(after) == [(True,)]
    assert len(taskq_app.query("SELECT FROM taskq.workgroups WHERE not_before > now()")) == holds


@pytest.mark.parametrize("code", [200, 500])
def test_an_answer_that_is_too_large(taskq_app: App, code: int) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 2**20

    transport = httpx.MockTransport(lambda _: httpx.Response(code, content=endless()))
    app = dispatcher(conninfo(taskq_app), "http://x/", ["a"], transport=transport)
    taskq_app.insert("a", id="a")
    app.work(until_idle=True)
    app.close()
    assert state(taskq_app, "a") == ("aborted" if code == 200 else "scheduled")


def test_a_page_for_people_does_not_go_into_the_status(taskq_app: App) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(500, html="<h1>password=secret</h1>"))
    app = dispatcher(conninfo(taskq_app), "http://x/", ["a"], transport=transport)
    taskq_app.insert("a", id="a")
    app.work(until_idle=True)
    app.close()
    assert column(taskq_app, "a", "status") == "HTTP 500"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("127.0.0.1:8765", "is no URL"),
        ("ftp://x/", "is no URL"),
        ("http://ann:secret@x/", "with a user"),
        ("http://x/api?x=1", "with a query"),
    ],
)
def test_a_url_that_is_none(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        dispatcher("", url, ["a"])
    assert "secret" not in str(refused.value)


def test_other_things_that_are_refused() -> None:
    with pytest.raises(ValueError, match="part of a URL"):
        dispatcher("", "http://x/", [".."])
    for secret in ("whsec_", "whsec_%%%"):
        with pytest.raises(ValueError, match="the secret is"):
            dispatcher("", "http://x/", ["a"], secret=secret)


def test_texts_that_only_a_body_can_hold(taskq_app: App) -> None:
    """JSON that is stored as a text has its escapes. A result is a `jsonb`, and the next try would have no other."""
    texts = {
        "child": r'{"delay_workgroup": "1 week", "children": [{"id": "c", "action": "x", "body": ["a\u0000b"]}]}',
        "result": r'{"result": "a\u0000b"}',
    }
    transport = httpx.MockTransport(
        lambda request: httpx.Response(200, text=texts[json.loads(request.content)["body"]])
    )
    app = dispatcher(conninfo(taskq_app), "http://x/", ["a"], transport=transport)
    for name in texts:
        taskq_app.insert("a", name, id=name, workgroup=name, backoff={"kind": "fixed", "initial": "1 hour"})
    app.work(until_idle=True)
    app.close()
    assert (state(taskq_app, "child"), state(taskq_app, "result")) == ("completed", "aborted")
    assert [task.body for task in inserted(taskq_app, id="c")] == [["a\0b"]]


def test_an_id_that_is_not_ascii(taskq_app: App, web: ThreadingHTTPServer) -> None:
    app = dispatcher(conninfo(taskq_app), f"http://127.0.0.1:{web.server_port}/", ["a"])
    taskq_app.insert("a", "empty", id="größe 1", max_tries=1)
    app.work(until_idle=True)
    app.close()
    assert state(taskq_app, "größe 1") == "completed"
    assert [headers["Idempotency-Key"] for _, headers, _, _ in web.requests] == ["gr%C3%B6%C3%9Fe%201"]


def test_an_answer_that_drips(taskq_app: App) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.1)

    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=drip()))
    app = dispatcher(conninfo(taskq_app), "http://x/", ["a"], timeout="1 second", transport=transport)
    taskq_app.insert("a", id="a", backoff={"kind": "fixed", "initial": "1 hour"})
    app.work(until_idle=True)
    app.close()
    assert (state(taskq_app, "a"), column(taskq_app, "a", "status")) == ("scheduled", "no answer within 1 seconds")


def test_a_server_that_is_not_there(taskq_app: App) -> None:
    app = dispatcher(conninfo(taskq_app), "http://127.0.0.1:9/", ["a"])
    taskq_app.insert("a", id="a", backoff={"kind": "fixed", "initial": "1 hour"})
    app.work(until_idle=True)
    app.close()
    assert state(taskq_app, "a") == "scheduled"
    assert str(column(taskq_app, "a", "status")).startswith("ConnectError")
