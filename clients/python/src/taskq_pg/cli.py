"""The command line: ``python -m taskq_pg work module:app`` and what one types while looking after a queue."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import time
import typing
from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg

from .app import App
from .bodies import read_json
from .connections import Connections
from .keys import TaskKeys
from .terminal import shown, shown_lines
from .worker import Worker

_TOP = "SELECT * FROM taskq.top"
_KEYS = {**typing.get_type_hints(TaskKeys), "on_conflict": str, "if_missing": str}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return int(options.run(options) or 0)
    except (psycopg.Error, ValueError, LookupError) as error:
        print(f"taskq: {shown_lines(str(error).strip())}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m taskq_pg", description="Work on a queue of taskq, and look at it.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--conninfo", help="where the queue is; else PGHOST and the like say so, or the app")
    shared.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, parents=[shared, *parents])
        made.set_defaults(run=run)
        return made

    working = argparse.ArgumentParser(add_help=False)
    working.add_argument("--concurrency", type=int, default=10, metavar="N", help="tasks at once (10)")
    working.add_argument("--grace", default="30 seconds", metavar="TIME", help="for tasks in hand after SIGTERM")
    working.add_argument("--until-idle", action="store_true", help="end when there is nothing to do")

    work = command("work", _work, "Perform tasks with the handlers of an app, until SIGTERM.", working)
    work.add_argument("app", metavar="MODULE:APP")
    work.add_argument("--action", action="append", dest="actions", metavar="NAME", help="only these; may be repeated")

    setup = command("setup", _setup, "Write the app's action settings and schedules to the database.")
    setup.add_argument("app", metavar="MODULE:APP")

    insert = command("insert", _insert, "Insert a task, and print its id.")
    insert.add_argument("action")
    insert.add_argument("body", nargs="?", help="JSON, or any other text as it is")
    insert.add_argument("--key", action="append", default=[], metavar="KEY=VALUE", help="id=a, priority=5")

    send = command("signal", _signal, "Complete a signal.")
    send.add_argument("id")
    send.add_argument("result", nargs="?", help="JSON, or any other text as a string")

    why = command("why", _why, "Tell why a task is not running.")
    why.add_argument("id")

    top = command("top", _top, "Show a line for each action.")
    top.add_argument("--every", type=float, metavar="SECONDS", help="again and again")

    retry = command("retry", _retry, "Give aborted tasks new tries.")
    retry.add_argument("ids", nargs="+", metavar="ID")

    dispatch = command("dispatch", _dispatch, "Own tasks, and POST each to a web server.", working)
    dispatch.add_argument("--url", required=True, help="the action is appended")
    dispatch.add_argument("--action", action="append", required=True, dest="actions", metavar="NAME")
    dispatch.add_argument("--lease", default="1 minute", metavar="TIME", help="also how long a request may take")
    dispatch.add_argument(
        "--authorization-env",
        default="TASKQ_AUTHORIZATION",
        metavar="NAME",
        help="the environment variable with the Authorization header (TASKQ_AUTHORIZATION)",
    )
    dispatch.add_argument("--with-token", action="store_true", help="send the token, for answers with 202")
    return parser


def _app(options: argparse.Namespace) -> App:
    """Import the app, with the current folder on the path as ``python -m`` has it."""
    module, _, name = options.app.partition(":")
    sys.path.insert(0, "")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # What the module itself lacks is told with its trace.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise LookupError(f"{options.app}: {error}") from error
    app = getattr(imported, name or "app", None)
    if not isinstance(app, App):
        raise LookupError(f"{options.app} is no App")  # noqa: TRY004  # what was typed is wrong, not a type
    if options.conninfo:
        app.connections = Connections(options.conninfo)
    return app


def _work(options: argparse.Namespace) -> None:
    with _app(options) as app:
        _end(
            app.work(
                concurrency=options.concurrency,
                actions=options.actions,
                until_idle=options.until_idle,
                grace=options.grace,
            )
        )


def _end(worker: Worker) -> None:
    if worker.left:
        # Threads of handlers whose tasks have been given back; nothing else can end them.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def _setup(options: argparse.Namespace) -> None:
    with _app(options) as app:
        app.setup()


def _insert(options: argparse.Namespace) -> None:
    keys: dict[str, Any] = {}
    for pair in options.key:
        key, _, value = pair.partition("=")
        if key not in _KEYS:
            raise LookupError(f"no key of a task: {key}; there are {', '.join(_KEYS)}")
        read = _json_or_text(value)
        # An id that looks like a number is a text all the same.
        keys[key] = value if _takes_text(_KEYS[key]) and not isinstance(read, (dict, list)) else read
    with _queue(options) as app:
        print(app.insert(options.action, options.body, **keys))


def _signal(options: argparse.Namespace) -> int:
    result = None if options.result is None else _json_or_text(options.result)
    with _queue(options) as app:
        if app.signal(options.id, result):
            return 0
    print(f"{options.id} has been signalled before", file=sys.stderr)
    return 1


def _why(options: argparse.Namespace) -> None:
    _print(options, "SELECT taskq.why(%s)", [options.id])


def _retry(options: argparse.Namespace) -> None:
    _print(options, "SELECT taskq.retry_tasks(%s)", [options.ids])


def _top(options: argparse.Namespace) -> None:
    while True:
        with _queue(options) as app, app.connections.use() as connection, connection.execute(_TOP) as cursor:
            names = [column.name for column in cursor.description or ()]
            _table([names, *cursor.fetchall()])
        if not options.every:
            return
        time.sleep(options.every)


def _dispatch(options: argparse.Namespace) -> None:
    from .webhooks import dispatcher

    made = dispatcher(
        options.conninfo or "",
        options.url,
        options.actions,
        lease=options.lease,
        authorization=os.environ.get(options.authorization_env),
        with_token=options.with_token,
    )
    with made as app:
        _end(app.work(concurrency=options.concurrency, until_idle=options.until_idle, grace=options.grace))


def _json_or_text(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return text


def _takes_text(kind: Any) -> bool:
    return kind is str or str in typing.get_args(kind)


def _queue(options: argparse.Namespace) -> App:
    return App(options.conninfo or "")


def _print(options: argparse.Namespace, query: LiteralString, arguments: Sequence[Any]) -> None:
    with _queue(options) as app:
        for row in app.query(query, arguments):
            print(*map(shown, row))


def _table(rows: Sequence[Sequence[Any]]) -> None:
    cells = [["" if cell is None else shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(flush=True)
