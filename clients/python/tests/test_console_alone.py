"""``taskq-pg console``, and the example of an application with a login, as programs of their own."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from conftest import REPOSITORY, conninfo, state, until
from console import roles
from taskq_pg import App


@contextlib.contextmanager
def program(*command: str, **more: object) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, **more)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@pytest.mark.parametrize("hidden", [False, True])
def test_the_command(taskq_app: App, hidden: bool) -> None:
    taskq_app.insert("pay", {"card": "4111"}, id="a")
    options = ["--hide-bodies-of", "pay"] if hidden else []
    command = ["taskq_pg", "console", "--port", "0", "--conninfo", conninfo(taskq_app), "--title", "shop", *options]
    with program(*command) as process:
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{30,}", address)
        home = address.partition("?")[0]
        with httpx.Client(follow_redirects=True) as client:
            until(lambda: client.get(home).status_code == 401)
            page = client.get(address)
            assert page.status_code == 200
            assert "token" not in str(page.url)
            assert "· shop</title>" in page.text
            assert ("4111" in client.get(f"{home}task?id=a").text) != hidden
            # A second browser has nothing of that.
            assert httpx.get(home).status_code == 401


def test_a_token_of_ones_own(taskq_app: App) -> None:
    command = ["taskq_pg", "console", "--port", "0", "--conninfo", conninfo(taskq_app)]
    with program(*command, env={**os.environ, "TASKQ_CONSOLE_TOKEN": "mine"}) as process:
        address = process.stdout.readline().strip()
        assert address.endswith("/?token=mine")
        until(lambda: httpx.get(address, follow_redirects=False).status_code == 303)


def test_the_example_with_a_login(taskq_app: App) -> None:
    taskq_app.insert("knit", id="a")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    home = f"http://127.0.0.1:{port}"
    with roles(conninfo(taskq_app), "operator", "monitor") as made:
        users = f"ann:secret:{made['operator']},ben:hidden:{made['monitor']}"
        environment = {**os.environ, "CONSOLE_CONNINFO": conninfo(taskq_app), "CONSOLE_USERS": users}
        command = ["uvicorn", "app:app", "--port", port, "--log-level", "error"]
        with program(*command, cwd=REPOSITORY / "examples" / "console", env=environment):

            def up() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    return httpx.get(f"{home}/taskq/", follow_redirects=False).status_code == 303
                return False

            until(up)
            for name, password, status in (
                ("ann", "hidden", 401),
                ("", "", 401),
                ("eve", "", 401),
                ("ben", "hidden", 200),
            ):
                with httpx.Client(follow_redirects=True) as client:
                    form = {"name": name, "password": password}
                    assert client.post(f"{home}/login", data=form).status_code == status, name
                    assert ("Overview" in client.get(f"{home}/taskq/").text) == (status == 200)
            for name, password, after in (("ben", "hidden", "ready"), ("ann", "secret", "aborted")):
                with httpx.Client(follow_redirects=True) as client:
                    client.post(f"{home}/login", data={"name": name, "password": password})
                    page = client.get(f"{home}/taskq/tasks").text
                    mark = re.findall(r'name="mark" value="(\w+)"', page)[0]
                    form = {"mark": mark, "do": "cancel", "id": "a", "sure": "1", "back": "tasks"}
                    client.post(f"{home}/taskq/act", data=form)
                    assert state(taskq_app, "a") == after
    [(status,)] = taskq_app.query("SELECT status FROM taskq.tasks WHERE id = 'a'")
    assert status == "cancelled by ann, in the console"
