#!/usr/bin/env bash
# The install scripts of released versions, in sql/releases. They do not change any more: who has installed one has that
# schema, and an update begins there.
#
#   releases.sh freeze SCRIPT VERSION    keep SCRIPT as the install script of VERSION; refuses where a tag has another one
#   releases.sh check SCRIPT VERSION     say what is not as it should be
#
# SCRIPT is what the parts of sql/ make now. Called by make.
set -euo pipefail

cd "$(dirname "$0")/.."
[ $# -eq 3 ] || { sed -n '4,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
script=$2
version=$3
frozen=sql/releases/taskq--$version.sql

die() {
    printf 'releases: %s\n' "$*" >&2
    exit 1
}

# A version that is yet to be, as 0.1.1-dev: it has no script of its own in sql/releases.
is_released() { [[ $version != *-* ]]; }

# What a tag has of a file; fails where there is no such tag, no such file in it, or no history.
of_tag() { git show "refs/tags/v$1:sql/releases/$2" 2>/dev/null; }

freeze() {
    is_released || die "$version is not a version to be released"
    if of_tag "$version" "taskq--$version.sql" >/dev/null; then
        of_tag "$version" "taskq--$version.sql" | cmp -s - "$script" ||
            die "$version is released, and its script does not change any more: raise the version in Cargo.toml"
    fi
    mkdir -p sql/releases
    cp "$script" "$frozen"
}

check() {
    local file name
    if is_released; then
        [ -e "$frozen" ] || die "$frozen is missing: 'make freeze' writes it"
        if ! cmp -s "$script" "$frozen"; then
            if of_tag "$version" "taskq--$version.sql" >/dev/null; then
                die "sql/ has changed since $version was released: raise the version in Cargo.toml, and write an update"
            fi
            diff -u "$frozen" "$script" | head -n 20 >&2 || true
            die "sql/ has changed since $frozen was written: 'make freeze' writes it anew"
        fi
    fi
    for file in sql/releases/*.sql; do
        name=${file##*/taskq--}
        name=${name%.sql}
        # That of an update belongs to the version that it leads to.
        if of_tag "${name##*--}" "${file##*/}" >/dev/null; then
            of_tag "${name##*--}" "${file##*/}" | cmp -s - "$file" || die "$file is released, and has changed since"
        fi
    done
    [ "$(grep -c "\"version\": \"$version\"" META.json)" -eq 2 ] || die "META.json is not for version $version, as Cargo.toml is"
    ! is_released || grep -q "^## \[$version\]" CHANGELOG.md || die "CHANGELOG.md has no heading for $version"
}

case "$1" in
    freeze) freeze ;;
    check) check ;;
    *) die "freeze or check, not $1" ;;
esac
