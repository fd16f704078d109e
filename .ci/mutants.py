#!/usr/bin/env python3
"""How many small mistakes in the source the tests would notice. `make mutants` calls this.

  mutants.py            draws mutations by chance, tries each, and prints a table
  mutants.py on         goes on with the last run: what it has tried is not tried again

  SAMPLE=100            how many of each kind (default: 40)
  SEED=1                which ones: the same seed draws in the same order
  KIND=sql              of the statements of SQL only; KIND=rust: of the Rust code only (default: both, in turns)
  FILES='src/claim/*'   from these files (default: the modules of which THEN below knows the tests)
  NAMES='marks.*<'      only those whose name matches this regular expression
  MINUTES=60            begin none after that time
  WITHOUT='torture storm'    do not run these test programs
  LIMIT=300             no test program takes as long as that many seconds, beside others of the machine; one of few tests has less time
  PG_CONFIG=path        the server to test with (default: the first pg_config on the path)

Mutations of Rust are: another operator, a condition without its `!`, a call left out that gives back nothing, a function that only gives back
some value. No tool that exists could try them, since the tests need a server with the library in it. And a library takes minutes to build,
so there is one for all of them: each function that has mutations is written into a copy of the committed sources (in target/mutants) in all its forms,
and a number in a file, which each session reads once, says which of them runs. Statements are strings in the library: a changed one is put into its place.

First all tests are run without a mutation. Each function notes who comes by, by the name of the database, which is that of the test: so for a
mutation only those tests are run that come to its function, or for a statement, to its file. First those that are meant for the file; what
survives them is tried with the others when all mutations have had their first try. A test that fails is run again, alone, so that one which was merely
late beside others is no witness. A program that does not end within its time counts as caught, too, and is said apart: a hang is noticed. What does
not compile is no mutation.

Results are in target/mutants/results.json and results.md, written after each.
"""

import fnmatch
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "mutants"
PLAIN = PLACE / "plain"
TREE = PLACE / "tree"
BUILD = PLACE / "build"
CLUSTER = PLACE / "cluster"
# Which mutation is on, and who has come to which function: read and written by the library.
WHICH = PLACE / "which"
REACHED = PLACE / "reached"

# The tests for the mutations of a file, tried first for all of them: programs, each with parts of its tests' names if not all
# of them are run. The first pattern that matches counts.
FIRST = [
    (r"claim/(limited|reservations|candidates|turns|lanes/.*)", ["limits limits fairness"]),
    (r"claim/(gates|sweep|left_behind|under_way)", ["flow pause::", "limits limits", "merging workgroups:: merge", "waiting looks locked"]),
    (r"claim/merge", ["merging merge"]),
    (r"claim/(marks|lane_marks)", ["marks", "limits limits_old limits_order"]),
    (r"claim/", ["own order ready wait::", "limits limits::", "merging merge"]),
    (r"flow/", ["flow actions defaults groups::", "limits rate", "merging workgroups"]),
    (r"returns/", ["returns", "workflows children:: results::"]),
    (r"settle/(commit|signal|fold|unsent)", ["signals"]),
    (r"settle/(riders|merge_keys)", ["merging merge"]),
    (r"settle/", ["returns", "delete_cancel"]),
    (r"store/slot/", ["limits limits"]),
    (r"store/(seal|tally|ends)", ["counts", "delete_cancel"]),
    (r"store/lease/", ["own lease:: exhaustion tries", "returns single"]),
    (r"locks/(order|restart|guard)", ["insert", "workflows retry", "signals cycles"]),
    (r"locks/", ["returns", "delete_cancel", "signals edges cycles starvation"]),
    (r"store/(known_actions|action_setting|actions)", ["flow actions", "marks marks many_actions"]),
    (r"store/(known_lanes|costly)", ["limits limits"]),
    (r"store/(merge_key|reason)", ["merging merge"]),
    (r"store/unique_key", ["insert unique"]),
    (r"store/(task|traces|numbers|positions|dependency)", ["insert", "workflows retry", "signals cycles"]),
    (r"store/(blocked|signal)", ["signals"]),
    (r"ends/", ["signals"]),
    (r"store/(decided|behind)", ["marks marks old_snapshot"]),
    (r"store/(aside|parked|scheduled|ready_now)", ["flow pause::", "merging workgroups:: merge", "own tries ready"]),
    (r"store/(attempts|settled|progress|bucket)", ["returns", "flow attempts progress", "limits rate", "delete_cancel retention"]),
    (r"store/(notify|announce|ready)", ["own ready wait::", "waiting wakes notify"]),
    (r"store/schedule", ["schedules"]),
    (r"store/run/", ["own order ready:: wait::", "returns", "limits limits::", "merging merge"]),
    (r"store/", ["returns"]),
    (r"wake/", ["waiting"]),
    (r"upkeep/elapsed/", ["tender backlogs deadlines wakes", "own exhaustion tries hostages locked_leases"]),
    (r"upkeep/retention", ["delete_cancel retention"]),
    (r"upkeep/", ["tender wakes deadlines", "waiting looks", "own ready tries upkeep_does_not_wait", "marks many_actions"]),
    (r"schedules/", ["schedules", "tender wakes deadlines"]),
    (r"insert/unique", ["insert unique"]),
    (r"insert/", ["insert", "replace", "signals cycles"]),
    (r"verbs/own/", ["waiting", "own wait::", "marks open_transactions"]),
]

# The test programs for what survives these, by module.
THEN = {
    "claim": ["returns", "own", "marks", "flow", "limits", "merging", "torture", "storm", "signals", "waiting", "tender", "model",
              "counts"],
    "flow": ["returns", "flow", "limits", "update", "delete_cancel", "rights", "own", "torture"],
    "returns": ["torture", "storm", "workflows", "signals", "flow", "limits", "waiting", "tender", "model"],
    "settle": ["torture", "storm", "workflows", "signals", "flow", "limits", "counts", "waiting", "tender", "model"],
    "store": ["returns", "torture", "storm", "insert", "delete_cancel", "signals", "counts", "replace", "update", "operate",
              "metrics", "own", "marks", "flow", "limits", "merging", "workflows", "waiting", "tender", "model"],
    "locks": ["returns", "torture", "storm", "insert", "delete_cancel", "signals", "replace", "update", "workflows"],
    "ends": ["torture", "storm", "signals", "workflows"],
    "wake": ["flow", "limits", "signals", "own"],
    "upkeep": ["schedules", "signals", "own", "delete_cancel", "waiting", "tender"],
    "schedules": ["schedules", "tender", "own", "metrics", "update"],
    "insert": ["insert", "replace", "flow", "limits", "workflows", "signals", "returns"],
    "verbs/own": ["own", "waiting", "flow", "limits", "returns"],
}

PROGRAMS = [suite.split()[0] for _, suites in FIRST for suite in suites] + [program for programs in THEN.values() for program in programs]
PROGRAMS = [program for program in dict.fromkeys(PROGRAMS) if program not in os.environ.get("WITHOUT", "").split()]

# Parts of names of tests that take long, since they do much of the same: they are left out.
LONG = ["thousand", "hundred", "100_000", "volume::", "backlog", "lately::", "long_snapshot", "spin::", "on_the_way_to_sleep"]

# How the library is built.
QUICK_BUILD = """
[build]
incremental = true
[profile.release.package.taskq]
opt-level = 0
debug = 0
"""

LIMIT = float(os.environ.get("LIMIT", "300"))

# So many tests of a program are tried before the last round.
FEW = 15

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
    """Of each statement in the source."""
    mutants = []
    for module in THEN:
        for path in sorted((PLAIN / "src" / module).rglob("*.rs")):
            text = path.read_text()
            tests = text.find("#[cfg(test)]")
            place = lambda at: {"line": text.count("\n", 0, at) + 1, "column": at - text.rfind("\n", 0, at)}
            for statement in STATEMENT.finditer(text, 0, tests if tests >= 0 else len(text)):
                for pattern, new in SQL:
                    for found in re.finditer(pattern, statement[1]):
                        begin, end = statement.start(1) + found.start(), statement.start(1) + found.end()
                        file, at = str(path.relative_to(PLAIN)), place(begin)
                        old = " ".join(found[0].split())
                        name = f"{file}:{at['line']}:{at['column']}: SQL: " + (f"{old} becomes {new.strip()}" if new else f"no {old}")
                        mutants.append({"name": name, "file": file, "genre": "SQL", "replacement": new,
                                        "statement": statement[1],
                                        "from": found.start(), "to": found.end()})
    return mutants


# What is neither code nor space: left out, each character by one.
NO_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|\bc?r(#*)".*?"\1|[bc]?"(?:\\.|[^"\\])*"|b?'(?:\\[^']+|[^'\\\n])'""", re.S)

OPERATORS = [("==", "!="), ("!=", "=="), ("<", "<="), ("<=", "<"), (">", ">="), (">=", ">"), ("&&", "||"), ("||", "&&"), ("+", "-"),
             ("-", "+"), ("*", "+"), ("/", "*"), ("%", "/"), ("+=", "-="), ("-=", "+="), ("|=", "&="), ("&=", "|=")]

# What a function could give back instead, by its type; those that do not compile are left out.
VALUES = [(r"$", ["()"]), (r"bool$", ["true", "false"]), (r"Option<", ["None"]), (r"Vec<", ["Vec::new()"]), (r"String$", ["String::new()"]),
          (r"Result<\(\)", ["Ok(())"]), (r"Result<bool", ["Ok(true)", "Ok(false)"]), (r"Result<", ["Ok(Default::default())"]),
          (r"[iu](?:8|16|32|64|size)$", ["0", "1"]), (r"!$", []), (r"", ["Default::default()"])]


def rust_functions():
    """Those of the modules, the ones inside of others with them: file, name, where the body begins and ends, what it gives back, and
    the file's text without strings and comments."""
    functions = []
    for module in THEN:
        for path in sorted((PLAIN / "src" / module).rglob("*.rs")):
            if "tests" in path.name or "tests" in path.parts:
                continue
            text = path.read_text()
            code = NO_CODE.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), text)
            tests, done = code.find("#[cfg(test)]\nmod"), 0
            for found in re.finditer(r"(\bconst\s+(?:unsafe\s+)?)?\bfn\s+(\w+)", code[: tests if tests >= 0 else None]):
                at, depth = found.end(), 0
                while depth or code[at] not in "{;":
                    depth += (code[at] in "([") - (code[at] in ")]")
                    at += 1
                if found[1] or found.start() < done or code[at] == ";":
                    continue
                begin, depth = at + 1, 1
                while depth:
                    at += 1
                    depth += (code[at] == "{") - (code[at] == "}")
                done = at
                returns = re.search(r"->\s*((?:(?!\bwhere\b).)*?)\s*$", code[found.end() : begin - 1].split("where")[0], re.S)
                functions.append({"file": str(path.relative_to(PLAIN)), "name": found[2], "begin": begin, "end": at, "code": code,
                                  "text": text, "returns": returns[1] if returns else ""})
    return functions


def rust_mutants():
    mutants = []
    for function in rust_functions():
        file, code, begin, end = (function[key] for key in ("file", "code", "begin", "end"))

        def mutant(start, stop, replacement, what, genre="part"):
            line, column = code.count("\n", 0, start) + 1, start - code.rfind("\n", 0, start)
            mutants.append({"name": f"{file}:{line}:{column}: {what} in {function['name']}", "file": file, "begin": start, "end": stop,
                            "replacement": replacement, "genre": genre, "function": begin})

        for old, new in OPERATORS:
            for found in re.finditer(rf"(?<= ){re.escape(old)}(?= )", code[begin:end]):
                mutant(begin + found.start(), begin + found.end(), new, f"{old} becomes {new}")
        for found in re.finditer(r"(?<=[ (])!(?=[\w(])", code[begin:end]):
            mutant(begin + found.start(), begin + found.end(), "", "no !")
        for found in re.finditer(r"(?<=\n)[ \t]+(?!return\b|let\b|break\b|panic|debug_|assert|check_for_interrupts)[a-z][\w:.]*\([^\n;]*\)\??;(?=\n)", code[begin:end]):
            if code[: begin + found.start()].rstrip()[-1] not in "{};":
                continue
            what = " ".join(function["text"][begin + found.start() : begin + found.end()].split())
            mutant(begin + found.start(), begin + found.end(), "", f"no {what}")
        for pattern, values in VALUES:
            if re.match(pattern, function["returns"]):
                for value in values:
                    mutant(begin, end, " " + value + " ", f"gives back {value}", "whole")
                break
    return mutants


def listed(kind):
    mutants = sql_mutants() if kind == "sql" else rust_mutants()
    pattern, files = os.environ.get("NAMES", ""), os.environ.get("FILES", "*").split()
    return [m for m in mutants if re.search(pattern, m["name"]) and any(fnmatch.fnmatch(m["file"], f) for f in files)]


def drawn(kind):
    mutants = listed(kind)
    # By name, so that the seed draws the same ones whatever the order of the list is.
    mutants.sort(key=lambda m: m["name"])
    everything = len(mutants)
    random.Random(os.environ.get("SEED", "1")).shuffle(mutants)
    # A function as a whole is replaced by one value only.
    replaced, chosen = set(), []
    for mutant in mutants:
        if mutant["genre"] == "whole":
            function = (mutant["file"], mutant["function"])
            if function in replaced:
                continue
            replaced.add(function)
        chosen.append(mutant)
    sample = chosen[: int(os.environ.get("SAMPLE", "40"))]
    say(f"{kind}: {everything} mutations, {len(chosen)} with one value for each function, {len(sample)} drawn")
    return sample


# --- building ----------------------------------------------------------------------------------------------------

# Part of the library that is tested, and of no other.
SWITCH = '''
//! Which mutation is on in this session, and who comes by.
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, OnceLock};

static SEEN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

pub(crate) fn at(site: u32) -> u32 {
    static ON: OnceLock<u32> = OnceLock::new();
    let on = *ON.get_or_init(|| {
        std::fs::read_to_string("WHICH").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    });
    if on == u32::MAX && SEEN.lock().is_ok_and(|mut seen| seen.insert(site)) {
        note(site);
    }
    on
}

/// The title of a session's process has the name of its database, without unsafe code.
fn note(site: u32) {
    let title = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let title = String::from_utf8_lossy(&title).replace('\\0', " ");
    if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open("REACHED") {
        let _ = file.write_all(format!("{site} {title}\\n").as_bytes());
    }
}
'''
NOTING = 2**32 - 1


class Library:
    '''All mutations of Rust, and the place of each statement, in one library.'''

    def __init__(self, pg_config):
        self.pg_config = pg_config
        self.env = dict(os.environ, CARGO_TARGET_DIR=str(BUILD), MAKEFLAGS="")
        self.built = BUILD / "release" / "libtaskq.so"
        self.original = PLACE / "original.so"
        self.sites = []

    def fetch(self):
        '''The committed sources.'''
        shutil.rmtree(PLAIN, ignore_errors=True)
        PLAIN.mkdir(parents=True)
        archive = subprocess.Popen(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(PLAIN)], stdin=archive.stdout, check=True)
        (PLAIN / ".cargo").mkdir()
        (PLAIN / ".cargo" / "config.toml").write_text(QUICK_BUILD)

    def write(self, woven):
        '''What is as it was keeps its time, and is not built again.'''
        for path in PLAIN.rglob("*"):
            name = path.relative_to(PLAIN)
            if path.is_file():
                put = TREE / name
                content = woven.pop(str(name), None)
                content = path.read_bytes() if content is None else content.encode()
                if not put.exists() or put.read_bytes() != content:
                    put.parent.mkdir(parents=True, exist_ok=True)
                    put.write_bytes(content)
                    put.chmod(path.stat().st_mode)
        assert not woven, woven.keys()

    def weave(self, functions, mutants):
        '''Writes all forms into the sources. Mutations get their numbers, or `number` 0 where there is no place for them.'''
        self.sites, arms = [], {}
        by_file = {}
        for mutant in mutants:
            mutant["number"] = 0
        for function in functions:
            by_file.setdefault(function["file"], []).append(function)
        number, woven = 0, {}
        for file, found in by_file.items():
            text = found[0]["text"]
            made, done, lines = [], 0, 1

            def put(piece):
                nonlocal lines
                made.append(piece)
                lines += piece.count("\n")

            for begin, end in sorted((f["begin"], f["end"]) for f in found):
                self.sites.append(file)
                site = len(self.sites)
                put(text[done:begin])
                first = lines
                inside = [m for m in mutants if m["file"] == file and m["function"] == begin]
                put(f" match crate::mutation::at({site}u32) {{\n")
                for mutant in inside:
                    number += 1
                    mutant["number"], mutant["site"] = number, site
                    above = lines
                    put(f"{number}u32 => {{ " + text[begin:mutant["begin"]] + mutant["replacement"] + text[mutant["end"]:end] + "\n}\n")
                    arms.setdefault(file, []).append((above, lines - 1, mutant))
                put("_ => {" + text[begin:end] + "\n} }")
                for mutant in inside:
                    arms[file].append((first, lines, mutant))
                done = end
            put(text[done:])
            woven[file] = "".join(made)
        (PLAIN / "src" / "mutation.rs").write_text(SWITCH.replace("WHICH", str(WHICH)).replace("REACHED", str(REACHED)))
        library = (PLAIN / "src" / "lib.rs").read_text()
        self.write(woven | {"src/lib.rs": library.replace("\nmod clock;\n", "\nmod clock;\nmod mutation;\n", 1)})
        return arms

    def prepare(self, functions, mutants):
        '''Builds it, without what does not compile, and installs it into a private server.'''
        command = ["cargo", "build", "--release", "--locked", "--lib", "--no-default-features", "--message-format=json",
                   "--features", "pg" + re.search(r"\d+", call(self.pg_config, "--version").stdout)[0]]
        env = dict(self.env, PGRX_PG_CONFIG_PATH=call(self.pg_config, "--bindir").stdout.strip() + "/pg_config")
        # What a run before has learnt about these names.
        known = PLACE / "bad.json"
        learnt = set(json.loads(known.read_text())) if known.exists() else set()
        good = [m for m in mutants if m["name"] not in learnt]
        for _ in range(20):
            arms = self.weave(functions, good)
            done = subprocess.run(command, cwd=TREE, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if done.returncode == 0:
                break
            bad, errors = [], []
            for line in done.stdout.splitlines():
                message = json.loads(line).get("message") if line.startswith("{") else None
                if isinstance(message, dict) and message["level"] == "error":
                    errors.append(message["rendered"])
                    for span in message["spans"]:
                        hit = [(below - above, m) for above, below, m in arms.get(span["file_name"], [])
                               if span["is_primary"] and above <= span["line_start"] <= below]
                        least = min((size for size, _ in hit), default=0)
                        bad += [m for size, m in hit if size == least]
            if not bad:
                sys.exit("mutants: it does not compile:\n" + "\n".join(errors) + done.stderr[-3000:])
            names = {m["name"] for m in bad}
            say(f"{len(names)} do not compile: " + ", ".join(sorted(names)))
            learnt |= names
            known.write_text(json.dumps(sorted(learnt)))
            good = [m for m in good if m["name"] not in names]
        numbers = {m["name"]: m for m in good}
        for mutant in mutants:
            mutant["number"] = numbers[mutant["name"]]["number"] if mutant["name"] in numbers else 0
        shutil.copy(self.built, self.original)
        call("make", "--no-print-directory", "stage", env=self.env, cwd=TREE)
        private = call(".ci/server.sh", env=dict(self.env, PG_CONFIG=self.pg_config), cwd=TREE).stdout.strip()
        for kind, names in [("--pkglibdir", []), ("--sharedir", ["taskq.control"] + [p.name for p in (BUILD / "stage").glob("*.sql")])]:
            folder = pathlib.Path(call(private, kind).stdout.strip())
            for name in names:
                shutil.copy(BUILD / "stage" / name, folder / "extension" / name)
        return private

    def patched(self, mutant):
        '''The library with another statement in the place of one, as long as that; nothing if there is no room.'''
        old, begin, end = mutant["statement"], mutant["from"], mutant["to"]
        new = old[:begin] + mutant["replacement"] + old[end:]
        while len(new) > len(old) and (room := re.search(r"\s(?=[\s=,])|(?<=[=,])\s", new)):
            new = new[: room.start()] + new[room.end():]
        code = self.original.read_bytes()
        if len(new) > len(old) or "\\" in old or old.encode() not in code:
            return None
        return code.replace(old.encode(), new.ljust(len(old)).encode())


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
        command += [word for program in PROGRAMS for word in ("--test", program)]
        lines = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        made = (json.loads(line) for line in lines if line.startswith("{"))
        return {m["target"]["name"]: m["executable"] for m in made if m.get("executable")}

    def cluster(self, *command):
        return call(".ci/cluster.sh", command[0], str(CLUSTER), *command[1:], env=self.env).stdout

    def install(self, code, number):
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
        new.write_bytes(code)
        new.chmod(0o755)
        new.rename(self.library)
        WHICH.write_text(str(number))
        WHICH.chmod(0o644)
        settings = ["fsync=off", "full_page_writes=off", "max_connections=300", "max_prepared_transactions=50",
                    "max_locks_per_transaction=256", "shared_buffers=256MB"]
        self.cluster("start", *[word for setting in settings for word in ("-c", setting)])
        self.env.update(pair.split("=", 1) for pair in self.cluster("env").split())

    def start(self, program, *arguments):
        return subprocess.Popen([self.programs[program], *arguments], cwd=ROOT / "tests", env=self.env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def run(self, program, *tests):
        """What failed first: a test's name, `time` where the program did not end, `died`, or nothing."""
        process = self.start(program, "--exact", *tests)
        late = threading.Event()
        timer = threading.Timer(min(LIMIT, 30 + 3 * len(tests)), lambda: (late.set(), process.kill()))
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

    def witness(self, tests):
        """The test that fails, with its program; nothing if none does."""
        for program, names in tests.items():
            doubted = 0
            while names and (failed := self.run(program, *names)) is not None:
                if failed in ("time", "died") or doubted == 3:
                    return program, failed
                if (alone := self.run(program, failed)) is not None:
                    return program, failed if alone != "time" else "time"
                names, doubted = [name for name in names if name != failed], doubted + 1
        return None

    def tests(self, program):
        lines = self.start(program, "--list").communicate()[0].splitlines()
        return [line.removesuffix(": test") for line in lines if line.endswith(": test") and not any(part in line for part in LONG)]

    def note(self, programs):
        """Runs the tests without a mutation: which of them come to which function. Those that fail are left out."""
        known = PLACE / "known.json"
        met = json.loads(known.read_text()) if known.exists() else {}
        for program in programs:
            if program in met:
                continue
            begun, names = time.time(), self.tests(program)
            REACHED.write_text("")
            REACHED.chmod(0o666)
            process = self.start(program, "--exact", *names)
            timer = threading.Timer(4 * LIMIT, process.kill)
            timer.start()
            passed = [found[1] for line in process.stdout if (found := re.match(r"test (\S+) \.\.\. ok", line))]
            process.wait()
            timer.cancel()
            by_database = {}
            for name in passed:
                by_database.setdefault("t_" + name.replace("::", "_")[:40], []).append(name)
            reached = {}
            for line in REACHED.read_text().splitlines():
                words = line.split()
                database = re.sub(r"_\d+_\d+$", "", words[3]) if len(words) > 3 else ""
                for name in by_database.get(database, []):
                    reached.setdefault(name, set()).add(int(words[0]))
            met[program] = {name: sorted(sites) for name, sites in reached.items()}
            known.write_text(json.dumps(met))
            say(f"{program}: {len(passed)} of {len(names)} tests pass without a mutation ({time.time() - begun:.0f} s)")
        return met


# --- the whole ---------------------------------------------------------------------------------------------------


def write(results):
    (PLACE / "results.json").write_text(json.dumps(results, indent=1))
    lines = ["| mutation | result | by |", "|---|---|---|"]
    for result in results:
        name = result["name"].replace("|", "\\|").removeprefix("src/")
        lines.append(f"| `{name}` | {result['result']} | {result['by']} |")
    (PLACE / "results.md").write_text("\n".join(lines) + "\n")


def summary(results):
    lines = ["| module | kind | mutations | caught by a test | by a hang | survived |", "|---|---|---|---|---|---|"]
    for module in [*THEN, ""]:
        for kind in ("Rust", "SQL"):
            rows = [r for r in results if r["result"] != "no mutation" and (not module or r["name"].startswith(f"src/{module}/"))
                    and ("SQL: " in r["name"]) == (kind == "SQL")]
            count = lambda result: sum(r["result"] == result for r in rows)
            if rows:
                name = f"`{module}`" if module else "all"
                lines.append(f"| {name} | {kind} | {len(rows)} | {count('caught')} | {count('hung')} | {count('survived')} |")
    return "\n".join(lines)


def chosen(mutant, met, sites, done, last):
    """Those of the tests that come to the mutation's function (or, for a statement, to its file) and have not been run: of each program that is for the
    file those that are for it, or come to few other functions; in the last round all."""
    file = mutant["file"].removeprefix("src/")
    suites = {suite.split()[0]: suite.split()[1:] for suite in next(programs for pattern, programs in FIRST if re.match(pattern, file))}

    def comes_by(reached):
        if "site" in mutant:
            return mutant["site"] in reached
        # A file that has statements only tells nothing.
        return mutant["file"] not in sites or any(sites[site - 1] == mutant["file"] for site in reached)

    tests = {}
    for program in sorted(met, key=lambda program: program not in suites):
        names = [name for name, reached in met[program].items() if comes_by(set(reached)) and f"{program}::{name}" not in done
                 and not any(part in name for part in LONG)]
        if not last:
            if program not in suites or any(name.startswith(f"{program}::") for name in done):
                continue
            parts = suites[program]
            names.sort(key=lambda name: (bool(parts) and not any(part in name for part in parts), len(met[program][name])))
            names = names[:FEW]
        if names:
            tests[program] = names
    return tests


def try_one(mutant, tests, library, tester):
    code = library.patched(mutant) if "statement" in mutant else library.original.read_bytes() if mutant["number"] else None
    if code is None:
        return "no mutation", ""
    tester.install(code, mutant.get("number", 0))
    found = tester.witness(tests)
    return (("hung" if found[1] == "time" else "caught"), "::".join(found)) if found else ("survived", "")


def main():
    pg_config = os.environ.get("PG_CONFIG", "pg_config")
    until = time.time() + 60 * float(os.environ.get("MINUTES", "600"))
    PLACE.mkdir(parents=True, exist_ok=True)
    if sys.argv[1:] != ["on"]:
        for name in ("known.json", "bad.json"):
            (PLACE / name).unlink(missing_ok=True)
    library = Library(pg_config)
    library.fetch()
    kinds = {"sql": ["sql"], "rust": ["rust"]}.get(os.environ.get("KIND"), ["rust", "sql"])
    rows = [drawn(kind) for kind in kinds]
    mutants = [row[place] for place in range(max(map(len, rows))) for row in rows if place < len(row)]
    old = json.loads((PLACE / "results.json").read_text()) if sys.argv[1:] == ["on"] and (PLACE / "results.json").exists() else []
    results = {r["name"]: r for r in old}
    tester = Tester(library.prepare(rust_functions(), [m for m in mutants if "statement" not in m]))
    try:
        tester.install(library.original.read_bytes(), NOTING)
        # A mutation is tried as soon as a program that is for its file is known.
        for program in [*PROGRAMS, None]:
            tester.install(library.original.read_bytes(), NOTING)
            met = tester.note([program] if program else [])
            for mutant in mutants:
                before = results.get(mutant["name"], {"result": "survived", "done": []})
                tests = chosen(mutant, met, library.sites, before["done"], last=program is None)
                if time.time() > until or before["result"] != "survived" or not tests:
                    continue
                begun = time.time()
                result, by = try_one(mutant, tests, library, tester)
                done = before["done"] + [f"{program}::{name}" for program, names in tests.items() for name in names]
                results[mutant["name"]] = {"name": mutant["name"], "result": result, "by": by or f"{len(done)} tests", "done": done}
                write(list(results.values()))
                say(f"{len(results)} {mutant['name']}: {result} {by} ({time.time() - begun:.0f} s)")
    finally:
        tester.cluster("stop")
    print(summary(list(results.values())))


if __name__ == "__main__":
    main()
