"""The programs of examples/ that use this package, each run as its first lines say."""

import asyncio
import base64
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from conftest import REPOSITORY, column, conninfo, state, until, working
from taskq_pg import App
from taskq_pg.testing import drain, drain_async, inserted, travel
from taskq_pg.webhooks import dispatcher

EXAMPLES = REPOSITORY / "examples"
PGX = Path("/usr/share/gocode/src/github.com/jackc/pgx/v4")


def environment(app: App) -> dict[str, str]:
    name = psycopg.conninfo.conninfo_to_dict(conninfo(app))["dbname"]
    return {**os.environ, "PGDATABASE": str(name)}


@pytest.mark.parametrize(
    "example",
    [EXAMPLES / "python" / "etl.py", EXAMPLES / "python" / "shop_fastapi.py", EXAMPLES / "clients/go/receiver"],
)
def test_each_is_short(example: Path) -> None:
    files = [example] if example.is_file() else list(example.rglob("*.*"))
    assert sum(len(file.read_text().splitlines()) for file in files) <= 120


@pytest.fixture
def imported(taskq_app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What imports an example, connected to the database of this test."""
    where = psycopg.conninfo.conninfo_to_dict(conninfo(taskq_app))
    port = where.get("port") or os.environ.get("PGPORT", "5432")
    host = where.get("host") or os.environ.get("PGHOST", "/var/run/postgresql")
    user = where.get("user") or os.environ.get("PGUSER", "postgres")
    monkeypatch.setenv("PGDATABASE", str(where["dbname"]))
    monkeypatch.setenv("DATABASE_URL", f"postgresql://{user}@/{where['dbname']}?host={host}&port={port}")
    monkeypatch.syspath_prepend(str(EXAMPLES / "python"))

    loaded: list[Any] = []

    def load(name: str) -> Any:
        sys.modules.pop(name, None)
        loaded.append(__import__(name))
        return loaded[-1]

    yield load
    for module in loaded:
        module.app.close()


def test_a_shop_in_fastapi(taskq_app: App, imported: Any) -> None:
    shop = imported("shop_fastapi")

    async def run() -> None:
        transport = httpx.ASGITransport(shop.api)
        async with (
            shop.lifespan(shop.api),
            httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            refused = await client.post("/orders", json={"email": "nobody", "cents": 5})
            assert refused.status_code == 422
            assert inserted(taskq_app) == []
            placed = await client.post("/orders", json={"email": "ann@example.com", "cents": 1250})
            assert placed.status_code == 202
            await drain_async(shop.app)
            shown = await client.get(f"/orders/{placed.json()['id']}")
            assert shown.json() == {"state": "paid", "receipt": "to ann@example.com: thank you for 12.50"}
            travel(shop.app, "7 days")
            await drain_async(shop.app)

    asyncio.run(run())
    [reminded] = inserted(taskq_app, "remind")
    assert reminded.result == "to ann@example.com: are you content?"


def test_a_days_data(taskq_app: App, imported: Any, capsys: pytest.CaptureFixture[str]) -> None:
    etl = imported("etl")
    etl.main("setup")
    etl.main("backfill", "2026-11-01", "2026-11-03")
    etl.main("backfill", "2026-11-02", "2026-11-04")
    assert capsys.readouterr().out == "3 runs\n1 runs\n"
    with pytest.raises(BaseExceptionGroup) as raised:  # of a replica, without which the days go on
        drain(etl.app, concurrency=5)
    assert {type(error) for error in raised.value.exceptions} == {ConnectionError}
    days = {task.id: task.state for task in inserted(taskq_app, "day")}
    assert days == {f"day 2026-11-0{n}": "blocked" for n in range(1, 5)}
    etl.main("approve", "2026-11-01", "ann")
    etl.main("approve", "2026-11-01", "bob")
    assert capsys.readouterr().out == "approved\napproved before\n"
    etl.app.work(until_idle=True, concurrency=5)  # the replica that is down may be tried again
    assert column(taskq_app, "day 2026-11-01", "result") == {"rows": 40, "by": "ann"}
    # Of the others the time is up; and the run of the next night is there.
    travel(etl.app, "3 days")
    etl.app.work(until_idle=True, concurrency=5)
    assert state(taskq_app, "day 2026-11-02") == "aborted"
    assert "it was not approved in time" in str(column(taskq_app, "day 2026-11-02", "status"))
    facts = taskq_app.query("SELECT day::text, rows, published_by FROM facts ORDER BY day LIMIT 2")
    assert [tuple(row) for row in facts] == [("2026-11-01", 40, "ann"), ("2026-11-02", 40, None)]
    assert any(task.id.startswith("nightly@") for task in inserted(taskq_app, "day"))


def test_a_shop_in_django(taskq_app: App) -> None:
    folder = EXAMPLES / "python" / "django_shop"
    assert sum(len(file.read_text().splitlines()) for file in folder.rglob("*.py")) <= 140
    manage = [sys.executable, "manage.py"]
    for command in (["test", "--noinput"], ["migrate", "--run-syncdb", "-v0"], ["check", "--database", "default"]):
        done = subprocess.run(
            [*manage, *command], cwd=folder, env=environment(taskq_app), check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("go") is None or not PGX.exists(), reason="there is no Go with pgx")
def test_a_receiver_in_go_answers_202(taskq_app: App, tmp_path: Path) -> None:
    program = tmp_path / "receiver"
    go = {"GO111MODULE": "off", "GOFLAGS": "", "GOPATH": f"{tmp_path}/gopath:/usr/share/gocode"}
    source = EXAMPLES / "clients" / "go" / "receiver"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=source, env={**os.environ, **go}, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    secret = "whsec_" + base64.b64encode(b"a secret of the test's").decode()
    settings = {"TASKQ_WEBHOOK_SECRET": secret, "PGUSER": os.environ.get("PGUSER", "postgres")}
    receiver = subprocess.Popen([str(program), address], env={**environment(taskq_app), **settings})
    try:
        host, _, port = address.partition(":")

        def listens() -> bool:
            with socket.socket() as one:
                return one.connect_ex((host, int(port))) == 0

        until(listens)
        for key, ends in ((secret, "completed"), ("whsec_" + base64.b64encode(b"another").decode(), "aborted")):
            app = dispatcher(
                conninfo(taskq_app), f"http://{address}/", ["render"], secret=key, with_token=True, lease="1 minute"
            )
            [good, bad] = taskq_app.insert_many("render", [{"pages": 3}, {"pages": 0}], max_tries=1)
            with app, working(app):
                until(lambda: state(taskq_app, good) == ends)
                until(lambda: state(taskq_app, bad) == "aborted")
            if ends == "completed":
                assert column(taskq_app, good, "result") == {"rendered": 3}
                assert column(taskq_app, bad, "status") == 'nothing to render in {"pages": 0}'
            else:
                assert "401" in str(column(taskq_app, good, "status"))
    finally:
        receiver.kill()
        receiver.wait()
