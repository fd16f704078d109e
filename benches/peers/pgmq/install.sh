#!/usr/bin/env bash
# install.sh FOLDER: the SQL of pgmq, which its crate for Rust carries for servers that lack the extension.
set -euo pipefail
version=0.34.0-alpha.7
command -v cargo >/dev/null || { echo "cargo is missing" >&2; exit 1; }
cd "$1"
[ "$(cat crate 2>/dev/null)" = $version ] && exit
rm -rf fetch
mkdir -p fetch/src
: >fetch/src/lib.rs
cat >fetch/Cargo.toml <<TOML
[package]
name = "fetch"
version = "0.0.0"
edition = "2021"
[dependencies]
pgmq = { version = "=$version", default-features = false }
[workspace]
TOML
(cd fetch && cargo vendor --quiet vendor >/dev/null)
cp fetch/vendor/pgmq/src/install/embedded/sql/pgmq.sql schema.sql
# The version of the extension: that of its latest upgrade script.
find fetch/vendor/pgmq/src/install/embedded/sql -name 'pgmq--*' | sed -n 's/.*--\(.*\)\.sql$/\1/p' | sort -V | tail -n 1 >version
rm -rf fetch
echo $version >crate
