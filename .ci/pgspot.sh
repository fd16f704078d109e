#!/usr/bin/env bash
# Reads the install script as an attacker would: pgspot (https://github.com/timescale/pgspot) looks for what a caller's
# search_path or an object of another role could make run otherwise. A part of `make lint`.
#
#   pgspot.sh FILE...     the parts of the script, in order
#
# pgspot is installed into target/pgspot, once.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd -P)
target=${CARGO_TARGET_DIR:-$root/target}
version=0.9.4
venv=$target/pgspot

# Not where it has been copied with the folder of another clone either: its programs name that.
if ! "$venv/bin/pgspot" --help >/dev/null 2>&1; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet "pgspot==$version"
fi

script=$target/pgspot.sql
cat "$@" >"$script.whole"

# pgspot does not read bodies in the form of the SQL standard, nor RETURN NEXT of a value. Such a body is bound when it is
# created, that is with the search_path that the script has pinned: it is given to pgspot as a string with that path.
python3 - "$script.whole" "$script" <<'PYTHON'
import re, sys

text = open(sys.argv[1]).read()
pin = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);"
statements = [line for line in text.splitlines() if line and not line.startswith(("--", "\\"))]
if statements[0] != pin:
    sys.exit(f"pgspot.sh: the first statement of the script is not: {pin}")

def as_string(function):
    head, body = function.group(1), function.group(2) or "SELECT " + function.group(3)
    path = "" if "SET search_path" in head else "    SET search_path = pg_catalog, pg_temp\n"
    return f"{head}{path}    AS $body$ {body} $body$;"

text = re.sub(r"^(CREATE FUNCTION (?:(?!^CREATE |\$\$|;).)*?)(?:\n? *BEGIN ATOMIC\n(.*?)^ +END;|\bRETURN ([^;]+);)",
              as_string, text, flags=re.M | re.S)
text = re.sub(r"\bRETURN NEXT ", "PERFORM ", text)
if re.search(r"^(?!--).*BEGIN ATOMIC|^ +RETURN (?!QUERY)\S+\(", text, flags=re.M):
    sys.exit("pgspot.sh: a body was not rewritten")
open(sys.argv[2], "w").write(text)
PYTHON

report=$("$venv/bin/pgspot" "$script" 2>&1) || true
printf '%s\n' "$report"
printf '%s\n' "$report" | grep -q 'Errors: 0 Warnings: 0 Unknown: 0' || exit 1
# It ends so, too, when it cannot read a statement, with a line more.
[ "$(printf '%s\n' "$report" | sed '/^ *$/d' | wc -l)" -eq 1 ] || exit 1
