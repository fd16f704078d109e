#!/usr/bin/env bash
# The distribution for PGXN (https://pgxn.org): the committed sources as a zip archive, with META.json. Prints its path.
# `make pgxn` calls this.
set -euo pipefail

die() {
    printf 'pgxn: %s\n' "$*" >&2
    exit 1
}

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
[ "$(grep -c "\"version\": \"$version\"" META.json)" -eq 2 ] || die "META.json is not for version $version, as Cargo.toml is"
git diff --quiet HEAD || printf 'pgxn: what is not committed is left out\n' >&2
mkdir -p "$target"
git archive --format=zip --prefix="taskq-$version/" --output="$target/taskq-$version.zip" HEAD
printf '%s\n' "$target/taskq-$version.zip"
