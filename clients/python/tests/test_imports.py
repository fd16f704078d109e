"""Modules use one another in one direction, also where only a type is named."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import taskq_pg

FOLDER = Path(taskq_pg.__file__).parent


def used(file: Path) -> set[Path]:
    """Return the modules of the package that a module imports, in whatever place."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = file.parents[node.level - 1]
            names = [node.module.replace(".", "/")] if node.module else [alias.name for alias in node.names]
            for name in names:
                found.update(path for path in (base / f"{name}.py", base / name / "__init__.py") if path.exists())
    return found


def test_there_is_no_circle() -> None:
    # The console is a program of its own, which only the command line begins.
    graph = {file: used(file) for file in FOLDER.rglob("*.py") if "console" not in file.relative_to(FOLDER).parts}
    assert sum(map(len, graph.values())) > 100
    TopologicalSorter(graph).prepare()  # which raises CycleError, and shows it
