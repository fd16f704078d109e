"""A graph in rows: a task below those that it runs after, as wide as the page at most."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

Edge = tuple[str, str, str]
# In units of the picture.
_BOX = 170
_HIGH = 44
_ACROSS = 18
_DOWN = 40
_IN_A_ROW = 6
# So many alike are one box.
_FOLDED = 20
_DEEPEST = 400


@dataclass
class Node:
    """A task, or many alike."""

    id: str
    action: str
    state: str
    number: int = 1
    states: list[tuple[str, int]] = field(default_factory=list)
    x: int = 0
    y: int = 0
    focus: bool = False


@dataclass(frozen=True)
class Line:
    """An edge, as a path."""

    path: str
    condition: str
    x: int
    y: int


@dataclass(frozen=True)
class Drawing:
    """Boxes, lines, and how large it all is."""

    nodes: list[Node]
    lines: list[Line]
    width: int
    height: int
    total: int


def draw(nodes: list[Node], edges: list[Edge], focus: str | None) -> Drawing:
    """Give each a place. Edges from or to what is not among the nodes are left out."""
    total = len(nodes)
    known = {node.id for node in nodes}
    edges = [edge for edge in edges if edge[0] in known and edge[1] in known]
    nodes, edges = _fold(nodes, edges, focus)
    levels = _levels(nodes, edges)
    rows: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        rows[levels[node.id]].append(node)
    place = {}
    width = top = 0
    before: dict[str, float] = {}
    above = defaultdict(list)
    for after, run, _ in edges:
        above[run].append(after)
    for level in sorted(rows):
        row = sorted(rows[level], key=lambda node: _middle(above[node.id], before))
        for start in range(0, len(row), _IN_A_ROW):
            part = row[start : start + _IN_A_ROW]
            for column, node in enumerate(part):
                node.x, node.y = column * (_BOX + _ACROSS), top
                before[node.id] = node.x
                node.focus = node.id == focus
                place[node.id] = node
            width = max(width, len(part) * (_BOX + _ACROSS) - _ACROSS)
            top += _HIGH + (_DOWN if start + _IN_A_ROW >= len(row) else 10)
    lines = [_line(place[after], place[run], condition) for after, run, condition in edges]
    return Drawing(nodes, lines, max(width, _BOX), max(top - _DOWN, _HIGH), total)


def _middle(above: list[str], before: dict[str, float]) -> float:
    known = [before[one] for one in above if one in before]
    return sum(known) / len(known) if known else 0.0


def _levels(nodes: list[Node], edges: list[Edge]) -> dict[str, int]:
    """Return how far down each stands: below all that it runs after."""
    waits = Counter(run for _, run, _ in edges)
    below = defaultdict(list)
    for after, run, _ in edges:
        below[after].append(run)
    level = {node.id: 0 for node in nodes}
    free = [node.id for node in nodes if not waits[node.id]]
    while free:
        one = free.pop()
        for run in below[one]:
            level[run] = min(max(level[run], level[one] + 1), _DEEPEST)
            waits[run] -= 1
            if not waits[run]:
                free.append(run)
    return level


def _fold(nodes: list[Node], edges: list[Edge], focus: str | None) -> tuple[list[Node], list[Edge]]:
    """Make one box of many of the same action between the same tasks."""
    above, below = defaultdict(set), defaultdict(set)
    for after, run, condition in edges:
        above[run].add((after, condition))
        below[after].add((run, condition))
    alike = defaultdict(list)
    for node in nodes:
        if node.id != focus:
            alike[node.action, frozenset(above[node.id]), frozenset(below[node.id])].append(node)
    stands_for: dict[str, str] = {}
    for many in alike.values():
        if len(many) > _FOLDED:
            first = many[0]
            first.number = len(many)
            first.states = Counter(node.state for node in many).most_common()
            first.state = first.states[0][0]
            stands_for.update((node.id, first.id) for node in many)
    kept = [node for node in nodes if stands_for.get(node.id, node.id) == node.id]
    folded = dict.fromkeys((stands_for.get(a, a), stands_for.get(r, r), condition) for a, r, condition in edges)
    return kept, list(folded)


def _line(after: Node, run: Node, condition: str) -> Line:
    x1, y1 = after.x + _BOX // 2, after.y + _HIGH
    x2, y2 = run.x + _BOX // 2, run.y
    bend = max(_DOWN // 2, (y2 - y1) // 2)
    return Line(
        f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2 - 5}", condition, (x1 + x2) // 2, (y1 + y2) // 2 + 4
    )
