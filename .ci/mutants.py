#!/usr/bin/env python3
"""How many small mistakes in the source the tests would notice. `make mutants` calls this.

  mutants.py            draws mutations by chance, tries each, and prints a table
  mutants.py again      tries once more what survived the last run

  SAMPLE=100            how many of them (default: 40)
  SEED=1                which ones: the same seed draws in the same order
  FILES='src/claim/*'   from these files (default: the modules of which SUITES below knows the tests)
  NAMES='marks.*<'      only those whose name matches this regular expression
  MINUTES=60            begin none after that time
  PG_CONFIG=path        the server to test with (default: the first pg_config on the path)

cargo-mutants (`cargo install cargo-mutants`) lists the mutations; it could not try them itself, since the tests need a
server with the library in it. So for each: it is applied to a copy of the committed sources in target/mutants, the library
is built (not optimized, incrementally) and put in the place of that in a private server, and the test programs that concern
its module are run, one after the other, until a test fails: twice, the second time alone, so that a test which was merely
late beside others is no witness. Slow programs are run when all mutations have been tried with the quick ones. A program that does not end within its time counts as caught, too: a hang is noticed. What
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

# The test programs for the mutations of a module, each with a part of its tests' names if not all of them are run. First the
# quick ones, for all mutations; then the others, for those that are left.
SUITES = {
    "claim": (["returns", "ledger", "own order ready marks wait exclusive", "flow limits merge_concurrent pause"],
              ["own", "flow", "signals", "waiting", "model", "isolation", "counts"]),
    "flow": (["returns", "flow actions rate workgroups groups"],
             ["flow", "update", "delete_cancel", "rights", "own"]),
    "returns": (["returns", "ledger", "workflows children conditions"],
                ["workflows", "signals", "flow", "waiting", "model", "isolation"]),
    "settle": (["returns", "ledger", "delete_cancel", "signals"],
               ["workflows", "flow", "counts", "waiting", "model", "isolation"]),
    "store": (["returns", "ledger", "delete_cancel", "own order ready marks", "flow limits merge_concurrent actions", "insert"],
              ["signals", "counts", "replace", "workflows", "own", "flow", "waiting", "update", "operate", "metrics", "isolation"]),
    "wake": (["wait", "waiting wakes leaving let_go"],
             ["waiting", "flow", "signals", "own"]),
}

QUICK_BUILD = """
[build]
incremental = true
[profile.release.package.taskq]
opt-level = 0
debug = 0
"""

# No test program takes as long as this, beside others of the machine.
LIMIT = float(os.environ.get("LIMIT", "240"))

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


def listed():
    if not shutil.which("cargo-mutants"):
        sys.exit("mutants: cargo-mutants is missing: cargo install --locked cargo-mutants")
    command = ["cargo", "mutants", "--list", "--json", "--package", "taskq", "--dir", str(TREE)]
    for module in SUITES:
        command += ["--file", f"src/{module}/**"]
    done = subprocess.run(command, cwd=TREE, stdout=subprocess.PIPE, text=True, check=True)
    pattern, files = os.environ.get("NAMES", ""), os.environ.get("FILES", "*").split()
    mutants = json.loads(done.stdout)
    return [m for m in mutants if re.search(pattern, m["name"]) and any(fnmatch.fnmatch(m["file"], f) for f in files)]


def drawn():
    mutants = listed()
    # By name, so that the seed draws the same ones whatever the order of the list is.
    mutants.sort(key=lambda m: m["name"])
    say(f"{len(mutants)} mutations")
    random.Random(os.environ.get("SEED", "1")).shuffle(mutants)
    return mutants[: int(os.environ.get("SAMPLE", "40"))]


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

    def prepare(self):
        """The committed sources, built once without a mutation and installed into a private server."""
        shutil.rmtree(TREE, ignore_errors=True)
        TREE.mkdir(parents=True)
        archive = subprocess.Popen(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(TREE)], stdin=archive.stdout, check=True)
        (TREE / ".cargo").mkdir()
        (TREE / ".cargo" / "config.toml").write_text(QUICK_BUILD)
        call("make", "--no-print-directory", "install-private", f"PG_CONFIG={self.pg_config}", env=self.env, cwd=TREE)
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

    def ahead(self, mutants, until):
        """Yields each with its library, or with nothing where it does not compile."""
        ready = queue.Queue(maxsize=2)

        def work():
            for number, mutant in enumerate(mutants):
                if time.time() > until:
                    break
                library = PLACE / f"{number}.so"
                ready.put((mutant, library if self.build(mutant, library) else None))
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
        """Into a new cluster, so that nothing of the mutation before is left."""
        self.cluster("kill")
        where = CLUSTER / "base.path"
        shutil.rmtree((pathlib.Path(where.read_text().strip()) if where.exists() else CLUSTER) / "data", ignore_errors=True)
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
        if failed:
            return failed
        return "time" if late.is_set() else "died" if code else None

    def witness(self, suites):
        """The test that fails, with its program; nothing if none does."""
        for suite in suites:
            program = suite.split()[0]
            doubtful = []
            while (failed := self.run(suite, *[word for name in doubtful for word in ("--skip", name)])) is not None:
                if failed in ("time", "died") or len(doubtful) == 3:
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
    for module in [*SUITES, ""]:
        rows = [r for r in results if r["result"] != "does not compile" and (not module or r["name"].startswith(f"src/{module}/"))]
        caught = [r for r in rows if r["result"] == "caught"]
        late = [r for r in caught if r["by"].endswith("time")]
        if rows:
            name = f"`{module}`" if module else "all"
            lines.append(f"| {name} | {len(rows)} | {len(caught)} | {len(late)} | {len(rows) - len(caught)} |")
    return "\n".join(lines)


def try_all(mutants, stage, builder, tester, results, until):
    """Tries them with the quick test programs (stage 0) or the others (1), and returns those that survive."""
    left = []
    for mutant, library in builder.ahead(mutants, until):
        result, by, begun = "does not compile", "", time.time()
        if library:
            tester.install(library)
            library.unlink()
            found = tester.witness(SUITES[mutant["file"].split("/")[1]][stage])
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
