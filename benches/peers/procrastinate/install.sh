#!/usr/bin/env bash
# install.sh FOLDER: procrastinate from PyPI, in an environment of its own.
set -euo pipefail
version=3.10.0
command -v python3 >/dev/null || { echo "python3 is missing" >&2; exit 1; }
cd "$1"
[ "$(cat version 2>/dev/null)" = $version ] && exit
python3 -m venv environment
environment/bin/pip install --quiet --disable-pip-version-check "procrastinate==$version"
echo $version >version
