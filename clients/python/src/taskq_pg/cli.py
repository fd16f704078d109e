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
from pathlib import Path
from typing import Any

import psycopg

from .app import App
from .bodies import read_json
from .connections import Connections
from .keys import TaskKeys
from .operate import SETTINGS
from .supervise import serve_health, supervise
from .terminal import shown, shown_lines

_OF_TASKS = {
    "cancel": "Abort tasks that have not ended.",
    "retry": "Give aborted tasks new tries.",
    "rerun": "Start settled tasks over, and what depends on them.",
    "delete": "Remove tasks.",
    "release": "Take tasks back from workers that are dead.",
}
_TOP = "SELECT * FROM taskq.top"
_KEYS = {**typing.get_type_hints(TaskKeys), "on_conflict": str, "if_missing": str}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return int(options.run(options) or 0)
    except (psycopg.Error, ValueError, LookupError, TypeError) as error:
        text = "\n".join([str(error).strip(), *getattr(error, "__notes__", ())])
        print(f"taskq: {shown_lines(text)}", file=sys.stderr)
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
    working.add_argument(
        "--exit-after", default="10 seconds", metavar="TIME", help="so long after the grace handlers may go on"
    )
    working.add_argument("--health-port", type=int, metavar="PORT", help="GET / is 200 while it claims and extends")
    working.add_argument("--until-idle", action="store_true", help="end when there is nothing to do")

    work = command("work", _work, "Perform tasks with the handlers of an app, until SIGTERM.", working)
    work.add_argument("app", metavar="MODULE:APP")
    work.add_argument("--action", action="append", dest="actions", metavar="NAME", help="only these; may be repeated")
    work.add_argument("--processes", type=int, default=1, metavar="N", help="so many; one that dies is begun anew")
    work.add_argument("--reload", action="store_true", help="begin anew when a Python file below this folder changes")

    setup = command("setup", _setup, "Write the app's action settings and schedules to the database.")
    setup.add_argument("app", metavar="MODULE:APP")
    setup.add_argument("--prune", action="store_true", help="remove what the code of this app no longer has")

    insert = command("insert", _insert, "Insert a task, and print its id.")
    insert.add_argument("action")
    insert.add_argument("body", nargs="?", help="JSON, or any other text")
    insert.add_argument("--key", action="append", default=[], metavar="KEY=VALUE", help="id=a, priority=5")

    send = command("signal", _signal, "Complete a signal.")
    send.add_argument("id")
    send.add_argument("result", nargs="?", help="JSON, or any other text")

    top = command("top", _top, "Show a line for each action.")
    top.add_argument("--every", type=float, metavar="SECONDS", help="again and again")

    def operate(name: str, text: str, *arguments: str, method: str | None = None) -> argparse.ArgumentParser:
        made = command(name, _operate, text)
        made.set_defaults(method=method or name.replace("-", "_"), names=[one.rstrip("+") for one in arguments])
        for argument in arguments:
            made.add_argument(argument.rstrip("+"), nargs="+" if argument.endswith("+") else None)
        return made

    operate("why", "Tell why a task is not running.", "id")
    operate("get", "Show a task.", "id")
    operate("graph", "Show the graph of a task or group.", "id").add_argument("--format", help="text, dot, mermaid")
    for name, text in _OF_TASKS.items():
        operate(name, text, "ids+")
    operate("rewind", "Have a workflow forget this step and what came after it.", "id", "step")
    for name, text in (("pause", "Hold back an action, a group or a schedule."), ("resume", "End a pause.")):
        pause = operate(name, text)
        for kind in ("action", "group", "schedule"):
            pause.add_argument(f"--{kind}", metavar="NAME")
    operate("unschedule", "Remove a schedule.", "name")
    operate("run-schedule", "Insert a run of a schedule now, and print its id.", "name")
    limits = operate("set-action", "Write settings of an action.", "action")
    for setting in SETTINGS:
        limits.add_argument(f"--{setting.replace('_', '-')}", type=_json_or_text, metavar="VALUE")
    limits = operate("set-group", "Write settings of a group.", "group")
    for setting in ("max-concurrency", "weight"):
        limits.add_argument(f"--{setting}", type=int, metavar="N")

    schedule = command("schedule", _schedule, "Write a schedule.")
    schedule.add_argument("name")
    schedule.add_argument("cron")
    schedule.add_argument("action")
    schedule.add_argument("body", nargs="?", help="JSON, or any other text")
    schedule.add_argument("--timezone", default="UTC")

    dispatch = command("dispatch", _dispatch, "Own tasks, and POST each to a web server.", working)
    dispatch.add_argument("--url", required=True, help="the action is appended")
    dispatch.add_argument("--action", action="append", required=True, dest="actions", metavar="NAME")
    dispatch.add_argument("--lease", default="1 minute", metavar="TIME", help="of a task that was answered with 202")
    dispatch.add_argument("--timeout", default="1 minute", metavar="TIME", help="how long a request may take")
    dispatch.add_argument("--delay-workgroup", action="store_true", help="a Retry-After holds back the workgroup, too")
    dispatch.add_argument(
        "--authorization-env",
        default="TASKQ_AUTHORIZATION",
        metavar="NAME",
        help="the environment variable with the Authorization header (TASKQ_AUTHORIZATION)",
    )
    dispatch.add_argument("--with-token", action="store_true", help="send the token, for answers with 202")

    serve = command("console", _console, "Serve the console, to look at the queue and act on it in a browser.")
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen at (127.0.0.1)")
    serve.add_argument("--port", type=int, default=8080, help="(8080)")
    serve.add_argument("--title", help="what the pages are called")
    serve.add_argument("--hide-bodies", action="store_true", help="show no bodies, results and the like")
    serve.add_argument("--hide-bodies-of", action="append", metavar="ACTION", help="of this action; may be repeated")
    serve.add_argument(
        "--token-env",
        default="TASKQ_CONSOLE_TOKEN",
        metavar="NAME",
        help="the environment variable with the token, if any",
    )
    return parser


def _app(options: argparse.Namespace) -> App:
    """Import the app, from the folder that this was started in, as ``python -m`` does."""
    module, _, name = options.app.partition(":")
    # By its name: a handler may change to a folder that others write to, and import something then.
    folder = str(Path.cwd())
    if not sys.flags.safe_path and folder not in sys.path:
        sys.path.insert(0, folder)
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


def _work(options: argparse.Namespace) -> int:
    if options.processes > 1 or options.reload:
        return _supervise(options)
    with _app(options) as app:
        _perform(app, options, actions=options.actions)
    return 0


def _perform(app: App, options: argparse.Namespace, **more: Any) -> None:
    health = None if options.health_port is None else serve_health(options.health_port, app.healthy)
    try:
        app.work(
            concurrency=options.concurrency,
            until_idle=options.until_idle,
            grace=options.grace,
            exit_after=options.exit_after,
            **more,
        )
    finally:
        if health is not None:
            health.shutdown()
            health.server_close()


def _supervise(options: argparse.Namespace) -> int:
    """Run processes of this command; of several ports each has its own."""
    command = ["-P"] if sys.flags.safe_path else []
    command += ["-m", "taskq_pg", "work", options.app, "--log-level", options.log_level]
    for name in ("conninfo", "concurrency", "grace", "exit_after"):
        if getattr(options, name) is not None:
            command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    for action in options.actions or ():
        command += ["--action", action]
    command += ["--until-idle"] if options.until_idle else []
    port = options.health_port
    commands = [
        [*command, *([] if port is None else ["--health-port", str(port + n)])] for n in range(options.processes)
    ]
    return supervise(commands, ends=options.until_idle, reload=Path.cwd() if options.reload else None)


def _setup(options: argparse.Namespace) -> None:
    with _app(options) as app:
        app.setup(prune=options.prune)


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
        print(app.insert(options.action, None if options.body is None else _json_or_text(options.body), **keys))


def _signal(options: argparse.Namespace) -> int:
    result = None if options.result is None else _json_or_text(options.result)
    with _queue(options) as app:
        if app.signal(options.id, result):
            return 0
    print(f"{options.id} has been signalled before", file=sys.stderr)
    return 1


def _operate(options: argparse.Namespace) -> int:
    """Call the method of this name, and show what it returns."""
    names, keys = list(options.names), {}
    for name in ("format", "group", "schedule", "max_concurrency", "weight", *SETTINGS, "action"):
        if name not in names and getattr(options, name, None) is not None:
            keys[name] = getattr(options, name)
    arguments = [getattr(options, name) for name in names]
    with _queue(options) as app:
        shows = getattr(app, options.method)(*(arguments[0] if names == ["ids"] else arguments), **keys)
    if options.method == "get":
        if shows is None:
            raise LookupError(f"there is no task {options.id}")
        shows = [f"{name}: {value}" for name, value in shows.row.items() if value is not None]
    for line in shows if isinstance(shows, list) else str(shows).split("\n") if shows is not None else ():
        print(shown(line))
    return 0


def _schedule(options: argparse.Namespace) -> None:
    body = None if options.body is None else _json_or_text(options.body)
    with _queue(options) as app:
        app.schedule(options.name, options.cron, options.action, body, timezone=options.timezone)
        app.setup()


def _top(options: argparse.Namespace) -> None:
    while True:
        with _queue(options) as app, app.connections.use() as connection, connection.execute(_TOP) as cursor:
            names = [column.name for column in cursor.description or ()]
            _table([names, *cursor.fetchall()])
        if not options.every:
            return
        time.sleep(options.every)


def _dispatch(options: argparse.Namespace) -> None:
    try:
        from .webhooks import dispatcher
    except ModuleNotFoundError as error:
        raise LookupError(f"{error}: pip install 'taskq-pg[http]'") from error

    # It would tell each URL.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    made = dispatcher(
        options.conninfo or "",
        options.url,
        options.actions,
        lease=options.lease,
        timeout=options.timeout,
        authorization=os.environ.get(options.authorization_env),
        secret=os.environ.get("TASKQ_WEBHOOK_SECRET"),
        with_token=options.with_token,
        delay_workgroup=options.delay_workgroup,
    )
    with made as app:
        _perform(app, options)


def _console(options: argparse.Namespace) -> None:
    try:
        from .console.serve import serve
    except ModuleNotFoundError as error:
        raise LookupError(f"{error}: pip install 'taskq-pg[console]'") from error
    serve(
        options.conninfo or "",
        host=options.host,
        port=options.port,
        title=options.title,
        hide_bodies=options.hide_bodies or options.hide_bodies_of or False,
        token=os.environ.get(options.token_env),
    )


def _json_or_text(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return text


def _takes_text(kind: Any) -> bool:
    return kind is str or str in typing.get_args(kind)


def _queue(options: argparse.Namespace) -> App:
    return App(options.conninfo or "")


def _table(rows: Sequence[Sequence[Any]]) -> None:
    cells = [["" if cell is None else shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(flush=True)
