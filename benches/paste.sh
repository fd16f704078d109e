#!/usr/bin/env bash
# Puts what benches/peers.sh has measured last into docs/benchmarks.md, between its two marks, and the plots beside it.
set -euo pipefail
cd "$(dirname "$0")/.."
from=${CARGO_TARGET_DIR:-target}/bench/peers
page=docs/benchmarks.md

[ -s "$from/tables.md" ] || { echo "paste: nothing has been measured: see benches/peers.sh" >&2; exit 1; }
mkdir -p docs/benchmarks
parts=$(cat "$from/parts")
for part in $parts; do
    [ ! -s "$from/$part.svg" ] || cp "$from/$part.svg" docs/benchmarks/
done
awk -v tables="$from/tables.md" -v parts="$parts" '
    /^<!-- peers: end -->/ { inside = 0 }
    !inside
    /^<!-- peers: begin -->/ {
        inside = 1
        while ((getline line < tables) > 0) print line
        count = split(parts, part, " ")
        for (i = 1; i <= count; i++) {
            plot = "docs/benchmarks/" part[i] ".svg"
            if ((getline line < plot) > 0) printf "![%s](benchmarks/%s.svg)\n\n", part[i], part[i]
            close(plot)
        }
    }' "$page" >"$page.new"
mv "$page.new" "$page"
