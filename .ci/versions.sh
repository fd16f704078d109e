#!/usr/bin/env bash
# Compiles the extension for every version of PostgreSQL that it supports, without those servers: against the
# bindings that pgrx ships for its own documentation. Types and symbols are checked; nothing is linked or run.
#
#   versions.sh [MAJOR...]      default: all that Cargo.toml has a feature for
#
# Needs neither headers nor libclang. Has a target directory of its own, target/versions.
set -euo pipefail

cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
    mapfile -t majors < <(sed -n 's/^pg\([0-9][0-9]\) = .*/\1/p' Cargo.toml)
    set -- "${majors[@]}"
fi

# The ready-made bindings are behind the cfg `docsrs` of that one crate; flags for one crate are what only a nightly
# cargo takes.
export DOCS_RS=1 RUSTC_BOOTSTRAP=1
docsrs='profile.release.package.pgrx-pg-sys.rustflags=["--cfg", "docsrs"]'
for major in "$@"; do
    printf '==> PostgreSQL %s\n' "$major"
    cargo -Zprofile-rustflags check --config "$docsrs" --release --locked --lib --no-default-features \
        --features "pg$major" --target-dir "${CARGO_TARGET_DIR:-target}/versions"
done
