"""Tasks as HTTP requests; the server is a handler of this process."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
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
    "gone": (410, {}, "no such thing"),
    "busy": (429, {"Retry-After": "300"}, "slowly"),
    "broken": (500, {}, "a trace"),
    "elsewhere": (302, {"Location": "/fine"}, ""),
}


# With 200, and not as it should be. The queue itself finds what is wrong with the last ones.
ODD = [
    "hello",
    "[]",
    '{"reslut": 1}',
    '{"result": NaN}',
    '{"result": 1e999}',
    '{"result": ' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"children": 5}',
    '{"children": "c"}',
    '{"children": {"id": "c", "action": "x"}}',
    '{"children": {}}',
    '{"children": [5]}',
    '{"status": {}}',
    '{"delay_workgroup": 5}',
    '{"children_block": "no"}',
    '{"children": [{"id": "c"}]}',
    '{"children": [{"id": "c", "action": "x", "bdoy": 1}]}',
    '{"delay_children": "soon"}',
    '{"delay_children": "\\u0000"}',
    '{"delay_workgroup": "soon"}',
    '{"delay_workgroup": "-1 hour"}',
    '{"delay_workgroup": "\\u0000"}',
    '{"status": "a\\u0000b"}',
    '{"status": "\\ud800"}',
    '{"children": [{"id": "c", "action": "x", "body": "a\\u0000b"}]}',
    '{"children": [{"id": "c", "action": "x", "metadata": {"a": ["\\ud800"]}}]}',
    '{"children": [{"id": "c", "action": "x", "metadata": {"\\u0000": 1}}]}',
]


@pytest.fixture
def web() -> Iterator[ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append((self.path, dict(self.headers), body))  # type: ignore[attr-defined]
            code, headers, text = ANSWERS[body["body"]]
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
    app = dispatcher(conninfo(taskq_app), url, ["re/size"], authorization="Bearer x", with_token=True)
    for name in ANSWERS:
        backoff = {"kind": "fixed", "initial": "1 hour"}
        taskq_app.insert("re/size", name, id=name, workgroup="w" if name == "busy" else name, backoff=backoff)
    app.work(until_idle=True)
    app.close()
    assert {name: state(taskq_app, name) for name in ANSWERS} == {
        "fine": "completed",
        "empty": "completed",
        "no content": "scheduled",
        "accepted": "in-progress",
        "gone": "aborted",
        "busy": "scheduled",
        "broken": "scheduled",
        "elsewhere": "scheduled",
    }
    assert column(taskq_app, "fine", "result") == {"bytes": 3}
    assert column(taskq_app, "fine", "status") == "done"
    assert state(taskq_app, "c") == "ready"
    assert column(taskq_app, "gone", "status") == "HTTP 410 no such thing"
    held = taskq_app.query("SELECT not_before > now() + '4 minutes' FROM taskq.workgroups WHERE workgroup = 'w'")
    assert held == [(True,)]

    requests = {body["task_id"]: (path, headers, body) for path, headers, body in web.requests}
    assert len(web.requests) == len(ANSWERS), "redirects are not followed"
    path, headers, body = requests["accepted"]
    assert path == "/hooks/re%2Fsize"
    assert headers["Authorization"] == "Bearer x"
    assert headers["Idempotency-Key"] == "accepted/1"
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


@pytest.mark.parametrize("text", ODD)
def test_an_answer_that_is_not_as_it_should_be(taskq_app: App, text: str) -> None:
    """The other side may be mended: the task is tried again, and its status says what was wrong."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=text))
    app = dispatcher(conninfo(taskq_app), "http://x/", ["a"], transport=transport)
    taskq_app.insert("a", id="a", backoff={"kind": "fixed", "initial": "1 hour"})
    app.work(until_idle=True)
    app.close()
    assert state(taskq_app, "a") == "scheduled"
    assert str(column(taskq_app, "a", "status")).startswith(("the answer is not as", "its return was refused: "))
    assert not inserted(taskq_app, id="c")


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
    assert [headers["Idempotency-Key"] for _, headers, _ in web.requests] == ["gr%C3%B6%C3%9Fe%201/1"]


def test_an_answer_that_drips(taskq_app: App) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.1)

    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=drip()))
    app = dispatcher(conninfo(taskq_app), "http://x/", ["a"], lease="1 second", transport=transport)
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
