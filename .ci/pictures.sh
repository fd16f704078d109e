#!/usr/bin/env bash
# The pictures of taskq.page() and of the console in docs/pictures, of the queue that docs/pictures/queue.sql makes. `make pictures` builds and installs
# first, and then calls this.
#
#   PG_CONFIG=path   the server to use, which has the extension
#   CHROMIUM=path    the browser (default: chromium)
#
# A browser's pictures are large: these are cut and have 256 colours. Some text on them says how long ago something was, so that they
# differ from those of the last time.
set -euo pipefail

die() {
    printf 'pictures: %s\n' "$*" >&2
    exit 1
}

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
work=$root/target/pictures
chromium=${CHROMIUM:-chromium}
command -v "$chromium" >/dev/null || die "$chromium is missing: set CHROMIUM"
PATH=$("${PG_CONFIG:-pg_config}" --bindir):$PATH
export PG_CONFIG
mkdir -p "$work"

if [ ! -x "$work/venv/bin/python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check pillow playwright
fi

finish() { .ci/cluster.sh stop "$work/cluster" || true; }
trap finish EXIT
.ci/cluster.sh start "$work/cluster"
settings=$(.ci/cluster.sh env "$work/cluster")
# shellcheck disable=SC2086,SC2163  # words of the form NAME=value
export $settings
unset PGSERVICE PGHOSTADDR PGPASSWORD
export PGOPTIONS=--client-min-messages=warning

query() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }
query -d postgres -c 'DROP DATABASE IF EXISTS shop' -c 'DROP DATABASE IF EXISTS empty' -c 'CREATE DATABASE shop' -c 'CREATE DATABASE empty'
query -d empty -c 'CREATE EXTENSION taskq'
query -d empty -c 'SELECT taskq.page()' >"$work/empty.html"
query -d shop -f docs/pictures/queue.sql >"$work/log"
query -d shop -c "SET TimeZone = 'UTC'" -c "SELECT taskq.page('report march')" >"$work/shop.html"
# Of the page in $2, in a window of width $3, what lies between the heights $4 and $5.
picture() {
    local to=$1 page=$2 width=$3 from=$4 until=$5
    "$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --force-color-profile=srgb \
        --window-size="$width,$until" --screenshot="$work/whole.png" "file://$work/$page" \
        >"$work/chromium.log" 2>&1 || die "no picture of $page, see $work/chromium.log"
    "$work/venv/bin/python" - "$work/whole.png" "docs/pictures/$to" "$width" "$from" "$until" <<'PYTHON'
import sys
from PIL import Image

whole, to, width, top, bottom = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
with Image.open(whole) as image:
    part = image.convert("RGB").crop((0, top, width, bottom))
# The colours that most pixels have, so that surfaces keep theirs.
colours = sorted(part.getcolors(1 << 24), reverse=True)[:256]
palette = Image.new("P", (1, 1))
palette.putpalette([value for _, colour in colours for value in colour])
part.quantize(palette=palette, dither=Image.Dither.NONE).save(to, optimize=True)
PYTHON
    [ "$(stat -c %s "docs/pictures/$to")" -lt 150000 ] || die "docs/pictures/$to has 150 kB or more"
}

# The console, with the package of this source.
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps clients/python
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "clients/python[console,binary]" pillow playwright
port=${CONSOLE_PORT:-8097}
TASKQ_CONSOLE_TOKEN=pictures "$work/venv/bin/taskq-pg" console --conninfo dbname=shop --port "$port" --title shop >"$work/console.log" 2>&1 &
console=$!
finish() { kill "$console" 2>/dev/null || true; .ci/cluster.sh stop "$work/cluster" || true; }
for _ in $(seq 100); do
    (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    sleep 0.1
done
"$work/venv/bin/python" .ci/pictures_console.py "http://127.0.0.1:$port/?token=pictures" docs/pictures "$(command -v "$chromium")"

picture page.png shop.html 1280 0 1500
picture page-empty.png empty.html 1280 0 260
ls -l docs/pictures
