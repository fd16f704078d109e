#!/usr/bin/env bash
# The licences of what is compiled into the library.
#
#   licenses.sh crates MAJOR    the crates, as lines `name vVERSION|licence`
#   licenses.sh texts MAJOR     the text of each, with the names of the authors; fails where a crate has none
#
# MAJOR is the version of PostgreSQL that the library is for.
set -euo pipefail
shopt -s inherit_errexit

die() {
    printf 'licenses: %s\n' "$*" >&2
    exit 1
}

cd "$(dirname "$0")/.."

crates() {
    cargo tree -p taskq --locked -e normal --prefix none --no-default-features --features "pg$1" \
        --format '{p}|{l}' | sed -e 's/ (\*)$//' -e 's/ (proc-macro)//' -e '/^taskq /d' | LC_ALL=C sort -u
}

# The files of the crate in the folder $1; some have a folder of them.
files_of() {
    {
        find "$1" -maxdepth 1 -iregex '.*/\(licen[sc]e\|copying\|copyright\|notice\|unlicense\)[^/]*' -type f
        [ ! -d "$1/LICENSES" ] || find "$1/LICENSES" -type f
    } | LC_ALL=C sort
}

# Notices that stand in the source files only.
notices_of() {
    { grep -rhoE 'SPDX-FileCopyrightText: .*' "$1/src" || true; } | LC_ALL=C sort -u
}

# The text of a crate that comes without one.
kept_for() {
    case $1 in
        pgrx | pgrx-*) echo .ci/licenses/pgrx ;;
        *) echo ".ci/licenses/$1" ;;
    esac
}

text_of() {
    local name=$1 folder=$2 file files
    files=$(files_of "$folder")
    if [ -z "$files" ]; then
        files=$(kept_for "${name% v*}")
        [ -e "$files" ] || die "$name comes without the text of its licence: keep it in $files"
    fi
    printf '==> %s\n\n' "$name"
    notices_of "$folder"
    while read -r file; do
        cat "$file"
        printf '\n'
    done <<<"$files"
}

texts() {
    local name folders folder list
    folders=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -mindepth 2 -maxdepth 2)
    list=$(crates "$1")
    while IFS='|' read -r name _; do
        folder=$(grep -m 1 "/${name/ v/-}\$" <<<"$folders" || true)
        [ -n "$folder" ] || die "the sources of $name are not where cargo puts them"
        text_of "$name" "$folder"
    done <<<"$list"
}

case "${1:-} $#" in
    'crates 2' | 'texts 2') "$1" "$2" ;;
    *)
        sed -n '4,7s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
