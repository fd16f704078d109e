#!/usr/bin/env bash
# install.sh FOLDER: absurd from PyPI, in an environment of its own: its client, and the tool that brings the schema.
set -euo pipefail
version=0.5.1
command -v python3 >/dev/null || { echo "python3 is missing" >&2; exit 1; }
cd "$1"
[ "$(cat version 2>/dev/null)" = $version ] && exit
python3 -m venv environment
environment/bin/pip install --quiet --disable-pip-version-check "absurd-sdk==$version" "absurdctl==$version"
echo $version >version
