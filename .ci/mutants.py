#!/usr/bin/env python3
"""How many small mistakes in the source the tests would notice. `make mutants` calls this.

  mutants.py            draws mutations by chance, tries each, and prints a table
  mutants.py again      tries once more what survived the last run

  SAMPLE=100            how many of them (default: 40)
  SEED=1                which ones: the same seed draws in the same order
  KIND=sql              of the statements of SQL instead of the Rust code (default: rust)
  FILES='src/claim/*'   from these files (default: the modules of which THEN below knows the tests)
  NAMES='marks.*<'      only those whose name matches this regular expression
  MINUTES=60            begin none after that time
  PG_CONFIG=path        the server to test with (default: the first pg_config on the path)

cargo-mutants (`cargo install --locked cargo-mutants`) lists the mutations of Rust; those of SQL are made here. It could not try them itself, since the tests need a
server with the library in it. So for each: it is applied to a copy of the committed sources in target/mutants, the library
is built (not optimized, incrementally) and put in the place of that in a private server, and the test programs that concern
its module are run, one after the other, until a test fails: twice, the second time alone, so that a test which was merely
late beside others is no witness. What survives the tests that are for its file is tried with many more when all mutations have had
their first try. A program that does not end within its time counts as caught, too: a hang is noticed. What
does not compile is no mutation. While one mutation is tested the next one is being built.

Results are in target/mutants/results.json and results.md, written after each.
"""

import fnmatch
import json
import os
import pathlib
import queue
import random
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "mutants"
TREE = PLACE / "tree"
BUILD = PLACE / "build"
CLUSTER = PLACE / "cluster"

# The tests for the mutations of a file, tried first for all of them: programs, each with parts of its tests' names if not all
# of them are run. The first pattern that matches counts.
FIRST = [
    (r"claim/(limited|reservations|candidates|turns|lanes/.*)", ["flow limits fairness"]),
    (r"claim/(gates|sweep|left_out|under_way)", ["flow pause:: workgroups:: merge limits", "waiting looks locked"]),
    (r"claim/merge", ["flow merge"]),
    (r"claim/(marks|lane_marks)", ["own marks old_snapshot", "flow limits_old limits_order"]),
    (r"claim/", ["own order ready wait::", "flow limits:: merge"]),
    (r"flow/", ["flow actions defaults rate workgroups groups::"]),
    (r"returns/", ["returns", "workflows children:: results::"]),
    (r"settle/(commit|signal|fold|unsent)", ["signals"]),
    (r"settle/riders", ["flow merge"]),
    (r"settle/", ["returns", "delete_cancel"]),
    (r"store/slot/", ["flow limits"]),
    (r"store/(seal|tally|ends)", ["counts", "delete_cancel"]),
    (r"store/lease/", ["own lease:: exhaustion tries", "returns single"]),
    (r"store/live/", ["returns", "delete_cancel", "signals edges cycles starvation"]),
    (r"store/(known_actions|action_setting|actions)", ["flow actions", "own marks many_actions"]),
    (r"store/(known_lanes|costly)", ["flow limits"]),
    (r"store/merge_key", ["flow merge"]),
    (r"store/unique_key", ["insert unique"]),
    (r"store/(task|numbers|dependency|order|guard)", ["insert", "workflows retry", "signals cycles"]),
    (r"store/(blocked|signal|touched|before_commit)", ["signals"]),
    (r"store/(decided|behind)", ["own marks old_snapshot"]),
    (r"store/(aside|parked|scheduled|ready_now)", ["flow pause:: workgroups:: merge", "own tries ready"]),
    (r"store/(attempts|settled|progress|bucket)", ["returns", "flow attempts progress rate", "delete_cancel retention"]),
    (r"store/(notify|ready)", ["own ready wait::", "waiting wakes notify"]),
    (r"store/schedule", ["flow schedules"]),
    (r"store/run/", ["own order ready:: wait::", "returns", "flow merge limits::"]),
    (r"store/", ["returns"]),
    (r"wake/", ["waiting"]),
]

# The test programs for what survives these, by module.
THEN = {
    "claim": ["returns", "own", "flow", "ledger", "storm", "signals", "waiting", "model", "counts"],
    "flow": ["returns", "flow", "update", "delete_cancel", "rights", "own", "ledger"],
    "returns": ["ledger", "storm", "workflows", "signals", "flow", "waiting", "model"],
    "settle": ["ledger", "storm", "workflows", "signals", "flow", "counts", "waiting", "model"],
    "store": ["returns", "ledger", "storm", "insert", "delete_cancel", "signals", "counts", "replace", "update", "operate",
              "metrics", "wait", "own", "flow", "workflows", "waiting", "model"],
    "wake": ["wait", "flow", "signals", "own"],
}

# Parts of names of tests that take long, since they do much of the same: they are left to the second round.
LONG = ["thousand", "hundred", "100_000", "volume::", "backlog", "lately::", "long_snapshot", "stress::", "spin::"]

# How the library is built.
QUICK_BUILD = """
[build]
incremental = true
[profile.release.package.taskq]
opt-level = 0
debug = 0
"""

# No test program takes as long as this, beside others of the machine.
LIMIT = float(os.environ.get("LIMIT", "900"))

# Enough for tests most of whose time is waiting for each other's connections.
THREADS = "6"


def say(text):
    print(f"mutants: {text}", file=sys.stderr, flush=True)


def call(*command, env=None, cwd=ROOT, check=True):
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode:
        sys.exit(f"mutants: {' '.join(map(str, command))}:\n{done.stdout}")
    return done


# --- the mutations -----------------------------------------------------------------------------------------------

# What is done to a statement: a pattern, and what comes in its place.
ENDS = r"(?=\s+(?:AND|OR|ORDER|GROUP|LIMIT|FOR|OFFSET|RETURNING|UNION|WHERE|ON|THEN)\b|\s*\)|\s*$)"
SQL = [
    (r"\s+AND\s+(?:[^()\"]|\([^()]*\))+?" + ENDS, ""),
    (r"\s+OR\s+(?:[^()\"]|\([^()]*\))+?" + ENDS, ""),
    (r"(?<= )< (?!>)", "<= "),
    (r"(?<= )<= ", "< "),
    (r"(?<= )> ", ">= "),
    (r"(?<= )>= ", "> "),
    (r"(?<= )<> ", "= "),
    (r"\s+ORDER BY\s+(?:[^()\"]|\([^()]*\))+?(?=\s+(?:LIMIT|FOR|OFFSET|UNION)\b|\s*\)|\s*$)", ""),
    (r" DESC\b", ""),
    (r" SKIP LOCKED\b", ""),
    (r"\s+FOR (?:NO KEY )?(?:UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED)?", ""),
    (r" \+ (?=[a-z$1])", " - "),
    (r" - (?=[a-z$1])", " + "),
    (r"(?<== )true\b", "false"),
    (r"(?<== )false\b", "true"),
    (r"\bIS NOT NULL\b", "IS NULL"),
    (r"\bNOT EXISTS\b", "EXISTS"),
]
STATEMENT = re.compile(r'c?"(\s*(?:SELECT|WITH|INSERT|UPDATE|DELETE)\s[^"]*)"')


def sql_mutants():
    """Of each statement in the source, in the form of cargo-mutants."""
    mutants = []
    for module in THEN:
        for path in sorted((TREE / "src" / module).rglob("*.rs")):
            text = path.read_text()
            tests = text.find("#[cfg(test)]")
            place = lambda at: {"line": text.count("\n", 0, at) + 1, "column": at - text.rfind("\n", 0, at)}
            for statement in STATEMENT.finditer(text, 0, tests if tests >= 0 else len(text)):
                for pattern, new in SQL:
                    for found in re.finditer(pattern, statement[1]):
                        begin, end = statement.start(1) + found.start(), statement.start(1) + found.end()
                        file, at = str(path.relative_to(TREE)), place(begin)
                        old = " ".join(found[0].split())
                        name = f"{file}:{at['line']}:{at['column']}: SQL: " + (f"{old} becomes {new.strip()}" if new else f"no {old}")
                        mutants.append({"name": name, "file": file, "genre": "SQL", "replacement": new,
                                        "span": {"start": at, "end": place(end)}, "statement": statement[1],
                                        "from": found.start(), "to": found.end()})
    return mutants


def rust_mutants():
    if not shutil.which("cargo-mutants"):
        sys.exit("mutants: cargo-mutants is missing: cargo install --locked cargo-mutants")
    command = ["cargo", "mutants", "--list", "--json", "--package", "taskq", "--dir", str(TREE)]
    for module in THEN:
        command += ["--file", f"src/{module}/**"]
    done = subprocess.run(command, cwd=TREE, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def listed():
    mutants = sql_mutants() if os.environ.get("KIND") == "sql" else rust_mutants()
    pattern, files = os.environ.get("NAMES", ""), os.environ.get("FILES", "*").split()
    return [m for m in mutants if re.search(pattern, m["name"]) and any(fnmatch.fnmatch(m["file"], f) for f in files)]


def drawn():
    mutants = listed()
    # By name, so that the seed draws the same ones whatever the order of the list is.
    mutants.sort(key=lambda m: m["name"])
    say(f"{len(mutants)} mutations")
    random.Random(os.environ.get("SEED", "1")).shuffle(mutants)
    # A function that gives back a tuple of lists could be replaced by a hundred values: one of them is drawn.
    replaced, chosen = set(), []
    for mutant in mutants:
        if mutant["genre"] == "FnValue":
            function = (mutant["file"], mutant["span"]["start"]["line"])
            if function in replaced:
                continue
            replaced.add(function)
        chosen.append(mutant)
    say(f"{len(chosen)} of them with one value for each function")
    return chosen[: int(os.environ.get("SAMPLE", "40"))]


def survivors():
    names = {r["name"] for r in json.loads((PLACE / "results.json").read_text()) if r["result"] == "survived"}
    return [m for m in listed() if m["name"] in names]


def mutated(text, mutant):
    """The source with the piece that the span names replaced; lines and columns count from one."""
    lines = text.splitlines(keepends=True)

    def offset(place):
        return sum(map(len, lines[: place["line"] - 1])) + place["column"] - 1

    begin, end = offset(mutant["span"]["start"]), offset(mutant["span"]["end"])
    return text[:begin] + mutant["replacement"] + text[end:]


# --- building ----------------------------------------------------------------------------------------------------


class Builder:
    """Builds one library after the other, ahead of the tests."""

    def __init__(self, pg_config):
        self.pg_config = pg_config
        self.env = dict(os.environ, CARGO_TARGET_DIR=str(BUILD), MAKEFLAGS="")
        self.built = BUILD / "release" / "libtaskq.so"
        self.original = PLACE / "original.so"

    def prepare(self):
        """The committed sources, built once without a mutation and installed into a private server."""
        shutil.rmtree(TREE, ignore_errors=True)
        TREE.mkdir(parents=True)
        archive = subprocess.Popen(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(TREE)], stdin=archive.stdout, check=True)
        (TREE / ".cargo").mkdir()
        (TREE / ".cargo" / "config.toml").write_text(QUICK_BUILD)
        call("make", "--no-print-directory", "install-private", f"PG_CONFIG={self.pg_config}", env=self.env, cwd=TREE)
        shutil.copy(self.built, self.original)
        return call(".ci/server.sh", env=dict(self.env, PG_CONFIG=self.pg_config), cwd=TREE).stdout.strip()

    def build(self, mutant, to):
        """True if it compiles. The source is as it was afterwards."""
        path = TREE / mutant["file"]
        text = path.read_text()
        path.write_text(mutated(text, mutant))
        try:
            done = call("make", "--no-print-directory", "build", f"PG_CONFIG={self.pg_config}", env=self.env, cwd=TREE, check=False)
        finally:
            path.write_text(text)
        if done.returncode == 0:
            shutil.copy(self.built, to)
        return done.returncode == 0

    def patch(self, mutant, to):
        """A statement stands in the library as in the source: what does not get longer is replaced there, and nothing is built."""
        old, begin, end = mutant["statement"], mutant["from"], mutant["to"]
        while len(new := mutant["replacement"]) > end - begin and old[end:end + 2].isspace():
            end += 1
        if len(new) > end - begin or "\\" in old:
            return False
        changed = old[:begin] + new.ljust(end - begin) + old[end:]
        code = self.original.read_bytes()
        if old.encode() not in code:
            return False
        to.write_bytes(code.replace(old.encode(), changed.encode()))
        return True

    def ahead(self, mutants, until):
        """Yields each with its library, or with nothing where it does not compile."""
        ready = queue.Queue(maxsize=2)

        def work():
            for number, mutant in enumerate(mutants):
                if time.time() > until:
                    break
                library = PLACE / f"{number}.so"
                made = "statement" in mutant and self.patch(mutant, library) or self.build(mutant, library)
                ready.put((mutant, library if made else None))
            ready.put(None)

        threading.Thread(target=work, daemon=True).start()
        while (item := ready.get()) is not None:
            yield item


# --- testing -----------------------------------------------------------------------------------------------------


class Tester:
    def __init__(self, private):
        self.private = private
        self.library = pathlib.Path(call(private, "--pkglibdir").stdout.strip()) / "taskq.so"
        self.programs = self.compiled()
        self.hung = True
        self.env = dict(os.environ, PG_CONFIG=private, RUST_TEST_THREADS=THREADS, RUST_BACKTRACE="0")
        for name in ["PGSERVICE", "PGHOSTADDR", "PGPASSWORD", "PGOPTIONS", "PGDATABASE"]:
            self.env.pop(name, None)
        self.env["PATH"] = call(private, "--bindir").stdout.strip() + ":" + self.env["PATH"]

    def compiled(self):
        """The test programs by their names: compiled once, since no mutation concerns them."""
        command = ["cargo", "test", "--release", "--locked", "-p", "taskq_tests", "--no-run", "--message-format=json"]
        lines = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        made = (json.loads(line) for line in lines if line.startswith("{"))
        return {m["target"]["name"]: m["executable"] for m in made if m.get("executable")}

    def cluster(self, *command):
        return call(".ci/cluster.sh", command[0], str(CLUSTER), *command[1:], env=self.env).stdout

    def install(self, library):
        """Sessions that begin from now on have it. What the mutation before has left is databases, which the next program
        drops, unless it hung, or left prepared transactions: then the server is started anew, or the cluster is."""
        where = CLUSTER / "base.path"
        data = (pathlib.Path(where.read_text().strip()) if where.exists() else CLUSTER) / "data"
        if (data / "pg_twophase").exists() and any((data / "pg_twophase").iterdir()):
            self.cluster("kill")
            shutil.rmtree(data)
        elif self.hung:
            self.cluster("kill")
        self.hung = False
        new = self.library.with_suffix(".new")
        shutil.copy(library, new)
        new.chmod(0o755)
        new.rename(self.library)
        settings = ["fsync=off", "full_page_writes=off", "max_connections=300", "max_prepared_transactions=50",
                    "max_locks_per_transaction=256", "shared_buffers=256MB"]
        self.cluster("start", *[word for setting in settings for word in ("-c", setting)])
        self.env.update(pair.split("=", 1) for pair in self.cluster("env").split())

    def run(self, suite, *arguments):
        """What failed first: a test's name, `time` where the program did not end, `died`, or nothing."""
        program, *names = suite.split()
        process = subprocess.Popen([self.programs[program], *names, *arguments], cwd=ROOT / "tests", env=self.env, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        late = threading.Event()
        timer = threading.Timer(LIMIT, lambda: (late.set(), process.kill()))
        timer.start()
        failed = None
        for line in process.stdout:
            if found := re.match(r"test (\S+)(?: - should panic)? \.\.\. FAILED", line):
                failed = found[1]
                process.kill()
                break
        process.stdout.close()
        code = process.wait()
        timer.cancel()
        self.hung |= late.is_set() or code not in (0, -9, 101)
        if failed:
            return failed
        return "time" if late.is_set() else "died" if code else None

    def witness(self, suites, left_out):
        """The test that fails, with its program; nothing if none does."""
        for suite in suites:
            program = suite.split()[0]
            doubtful = list(left_out)
            while (failed := self.run(suite, *[word for name in doubtful for word in ("--skip", name)])) is not None:
                if failed in ("time", "died") or len(doubtful) == len(left_out) + 3:
                    return program, failed
                if (alone := self.run(program, "--exact", failed)) is not None:
                    return program, failed if alone != "time" else "time"
                doubtful.append(failed)
        return None


# --- the whole ---------------------------------------------------------------------------------------------------


def write(results):
    (PLACE / "results.json").write_text(json.dumps(results, indent=1))
    lines = ["| mutation | result | by |", "|---|---|---|"]
    for result in results:
        name = result["name"].replace("|", "\\|").removeprefix("src/")
        lines.append(f"| `{name}` | {result['result']} | {result['by']} |")
    (PLACE / "results.md").write_text("\n".join(lines) + "\n")


def summary(results):
    lines = ["| module | mutations | caught | of these by time | survived |", "|---|---|---|---|---|"]
    for module in [*THEN, ""]:
        rows = [r for r in results if r["result"] != "does not compile" and (not module or r["name"].startswith(f"src/{module}/"))]
        caught = [r for r in rows if r["result"] == "caught"]
        late = [r for r in caught if r["by"].endswith("time")]
        if rows:
            name = f"`{module}`" if module else "all"
            lines.append(f"| {name} | {len(rows)} | {len(caught)} | {len(late)} | {len(rows) - len(caught)} |")
    return "\n".join(lines)


def suites(file, stage):
    """Which tests to run, and parts of the names of those that are left out."""
    if stage == 0:
        return next(programs for pattern, programs in FIRST if re.match(pattern, file)), LONG
    return THEN[file.split("/")[0]], []


def try_all(mutants, stage, builder, tester, results, until):
    """Tries them with the tests for their files (stage 0) or the programs for their modules (1); returns those that survive."""
    left = []
    for mutant, library in builder.ahead(mutants, until):
        result, by, begun = "does not compile", "", time.time()
        if library:
            tester.install(library)
            library.unlink()
            found = tester.witness(*suites(mutant["file"].removeprefix("src/"), stage))
            result, by = ("caught", "::".join(found)) if found else ("survived", "")
        if result == "survived":
            left.append(mutant)
        results[mutant["name"]] = {"name": mutant["name"], "result": result, "by": by, "stage": stage}
        write(list(results.values()))
        say(f"{len(results)} {mutant['name']}: {result} {by} ({time.time() - begun:.0f} s)")
    return left


def main():
    pg_config = os.environ.get("PG_CONFIG", "pg_config")
    until = time.time() + 60 * float(os.environ.get("MINUTES", "600"))
    PLACE.mkdir(parents=True, exist_ok=True)
    builder = Builder(pg_config)
    tester = Tester(builder.prepare())
    mutants, results = survivors() if sys.argv[1:] == ["again"] else drawn(), {}
    try:
        for stage in (0, 1):
            mutants = try_all(mutants, stage, builder, tester, results, until)
    finally:
        tester.cluster("stop")
    print(summary(list(results.values())))


if __name__ == "__main__":
    main()
