#!/usr/bin/env python3
"""The words of pages, comments and messages: the subject of a sentence is a named thing, and a sentence has one idea.

    words.py            README.md and docs/: no word of REFUSED, and no sentence of more than LONGEST words;
                        src/, sql/ and the folders of OTHERS, comments, messages and names of functions: no word of REFUSED;
                        .ci/ and the Makefile, comments only: no word of REFUSED
        README.md, docs/, src/, sql/ and clients/: MOST of each of HEDGES
    words.py PAGE...    these pages only

What stands in blocks of code and between backticks is not read, nor a single word in quotation marks, which is a name.
Each finding is a line `page:line: what`.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Not in capitals: constants have these.
REFUSED = re.compile(r"\b([Ww]hoever|[Ss]omebodys?|[Nn]obodys?|[Hh]e|[Hh]im|[Hh]is)\b")
MARKS = {".rs": "//", ".sql": "--"}
OTHERS = ["tests", "pg_test", "benches", "examples", "clients"]
# What is read there.
KINDS = {".rs", ".sql", ".md", ".sh", ".py", ".js", ".ts", ".mjs", ".cjs", ".go", ".java", ".rb", ".yml", ".toml", ".awk"}
# Folders of what others have made.
FOREIGN = {"target", "node_modules", "dist", "vendor", ".venv", "__pycache__"}
FUNCTION = re.compile(r"\b(?:fn|def|function|func) (\w+)")
LONGEST = 40
# A hedge tells that there is an exception, and not which. So many there may be of each, in code as well.
HEDGES = ["as a rule", "for instance", "but for", "by itself", "as far as", "comes? to nothing", r"(?<=,.)say[,;.)]"]
MOST = 5
HEDGED = ["README.md", "docs", "src", "sql", "clients"]
# Between two words: a new line may begin with the mark of a comment.
GAP = r"\s+(?:(?://[/!]?|--|[#*])\s*)?"


def without_code(line):
    """The line with what stands between backticks, and where a link leads, as one word each."""
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`+[^`]*`+", "X", line))


def paragraphs(text):
    """Each paragraph, element of a list and cell of a table, as its lines: (number, text)."""
    fenced, lines = False, []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith("```"):
            fenced = not fenced
        begins = re.match(r"([*-]|\d+\.) ", line)
        if lines and (fenced or not line or begins or line[0] in "#|<`" and not lines[-1][1]):
            yield lines
            lines = []
        if fenced or not line or line.startswith(("```", "<!--", "<")):
            if lines:
                yield lines
                lines = []
        elif line.startswith(("|", "#")):
            if lines:
                yield lines
                lines = []
            yield from ([(number, cell.strip())] for cell in re.split(r"(?<!\\)\|", line.strip("|#")))
        else:
            lines.append((number, line[begins.end():] if begins else line))
    if lines:
        yield lines


def sentences(lines):
    """Each sentence of a paragraph: the number of the line where it begins, and its text."""
    starts, text = [], ""
    for number, line in lines:
        starts.append((len(text), number))
        text += line + " "
    begin = 0
    for end in [m.end() for m in re.finditer(r"[.?!:][)*_\"”]*\s+(?=[A-Z0-9`\[*(\"“])", text)] + [len(text)]:
        yield max(number for at, number in starts if at <= begin), text[begin:end]
        begin = end


def page(path):
    """What is wrong with a page."""
    for lines in paragraphs(path.read_text(encoding="utf-8")):
        for number, line in lines:
            for word in REFUSED.findall(without_code(line)):
                yield number, f"“{word}”: name the worker, the call, the session"
        for number, sentence in sentences(lines):
            count = len(re.findall(r"\w[\w'’.,–-]*", without_code(sentence)))
            if count > LONGEST:
                yield number, f"a sentence of {count} words: {sentence[:60].strip()}…"


def source():
    """The files of source, and whether their messages are read as well as their comments."""
    yield from ((path, True) for path in sorted((ROOT / "src").rglob("*.rs")))
    yield from ((path, True) for path in sorted((ROOT / "sql").glob("*.sql")))
    for folder in OTHERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS and path.is_file() and not FOREIGN.intersection(path.relative_to(ROOT).parts):
                yield path, True
    scripts = [path for path in sorted((ROOT / ".ci").iterdir()) if path.is_file()]
    yield from ((path, False) for path in [*scripts, ROOT / "Makefile"])


def words(path, messages):
    """The words that a file of source should not have."""
    mark = MARKS.get(path.suffix, "#")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        read = without_code(line if messages else line.partition(mark)[2])
        found = REFUSED.findall(re.sub(r"""(["'])\w+\1""", "X", read))
        for name in FUNCTION.findall(line) if messages else ():
            found += REFUSED.findall(name.replace("_", " "))
        for word in found:
            yield number, f"“{word}”: name the worker, the call, the session"


def hedges():
    """Each hedge of which there are too many, wherever it stands: a finding for each."""
    paths = [path for name in HEDGED for path in sorted([ROOT / name, *(ROOT / name).rglob("*")]) if path.suffix in KINDS and path.is_file()]
    texts = {path: path.read_text(encoding="utf-8") for path in paths if not FOREIGN.intersection(path.relative_to(ROOT).parts)}
    for hedge in HEDGES:
        pattern = re.compile(r"(?<!\w)" + GAP.join(hedge.split(" ")) + r"(?!\w)", re.I)
        there = [(path, text.count("\n", 0, m.start()) + 1) for path, text in texts.items() for m in pattern.finditer(text)]
        if len(there) > MOST:
            what = f"“{hedge}”: name the exception ({len(there)} in all, {MOST} at most)"
            yield from ((*place, what) for place in there)


def main():
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    everything = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [(path, *finding) for path in pages or everything for finding in page(path)]
    if not pages:
        found += [(path, *finding) for path, messages in source() for finding in words(path, messages)]
        found += hedges()
    for path, number, what in found:
        print(f"{path.relative_to(ROOT)}:{number}: {what}")
    sys.exit(f"words: {len(found)} findings in {len({path for path, *_ in found})} files" if found else 0)


if __name__ == "__main__":
    main()
