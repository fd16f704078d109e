#!/usr/bin/env bash
# The Debian package postgresql-N-taskq, for the server version that PG_CONFIG belongs to.
#
#   deb.sh build    make it, and print its path: `make deb`
#   deb.sh test     build it twice, in two folders, and compare; install it into a fresh Debian without Rust and use it
#                   there: `make test-deb` (needs root and debootstrap)
#
#   SOURCE_DATE_EPOCH    the time that is written into it (default: that of the last commit)
#   DEBFULLNAME, DEBEMAIL    who maintains the package (default: who made the last commit)
#
# It is laid out as Debian's packages of extensions are: the library in /usr/lib/postgresql/N/lib, control file and script
# in /usr/share/postgresql/N/extension, the pages in /usr/share/doc. No path of this machine gets into it, and all times in
# it are one: so the same sources and the same compiler make the same package, wherever they lie; `test` compares.
set -euo pipefail

die() {
    printf 'deb: %s\n' "$*" >&2
    exit 1
}

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd -P)
pg_config=${PG_CONFIG:-pg_config}
major=$("$pg_config" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/') || die "$pg_config does not work: set PG_CONFIG"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
package=postgresql-$major-taskq

# In Debian's order 0.2.0~rc.1 comes before 0.2.0, and 0.2.0-rc.1 would come after it.
debian_version=${version//-/\~}

last_commit() { git log -1 --format="$1" 2>/dev/null || true; }

# --- the package -------------------------------------------------------------------------------------------------

# A build of its own: the paths of this machine, of the sources and of cargo's folder, do not get into the library.
# CARGO_TARGET_DIR is what make takes for its target, too.
build_library() {
    # Where several match, the last one counts: the build folder lies among the sources, or elsewhere.
    local remap="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$1=."
    # The same for what is compiled from C. Of its debugging information nothing is left in the package but the number of the
    # build, which is worked out with it.
    local map="-ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo -ffile-prefix-map=$1=. -ffile-prefix-map=$2=/target"
    CARGO_TARGET_DIR=$2 CARGO_INCREMENTAL=0 RUSTFLAGS="$remap --remap-path-prefix=$2=/target" CFLAGS="$map" \
        "${MAKE:-make}" --no-print-directory -C "$1" build "PG_CONFIG=$pg_config" >&2
}

# The crates that are compiled into the library: name and version.
crates() {
    cargo tree -p taskq --locked -e normal --prefix none --no-default-features --features "pg$major" \
        --format '{p}|{l}' | sed -e 's/ (\*)$//' -e 's/ (proc-macro)//' -e '/^taskq /d' | LC_ALL=C sort -u
}

copyright() {
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: taskq\n'
    printf 'Comment: The library contains these crates, whose licences, with the names of their authors, are in\n'
    printf ' third-party-licenses.gz:\n'
    crates | sed 's/^\(.*\) v\(.*\)|\(.*\)$/  \1 \2, \3/'
    printf '\nFiles: *\nCopyright: 2026, the taskq authors\nLicense: PostgreSQL\n'
    sed -e '1,4d' -e 's/^$/./' -e 's/^/ /' LICENSE
}

third_party_licenses() {
    local name folders folder file
    folders=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -mindepth 2 -maxdepth 2)
    while IFS='|' read -r name _; do
        folder=$(grep -m 1 "/${name/ v/-}\$" <<<"$folders" || true)
        [ -n "$folder" ] || die "the sources of $name are not where cargo puts them"
        printf '==> %s\n\n' "$name"
        find "$folder" -maxdepth 1 -iregex '.*/\(licen[sc]e\|copying\|copyright\|notice\|unlicense\)[^/]*' -type f | LC_ALL=C sort |
            while read -r file; do
                cat "$file"
                printf '\n'
            done
    done < <(crates)
}

control() {
    local libraries
    libraries=$(cd "$stage" && mkdir debian && : >debian/control &&
        dpkg-shlibdeps -O --ignore-missing-info -e"tree/usr/lib/postgresql/$major/lib/taskq.so" 2>/dev/null |
        sed -n 's/^shlibs:Depends=//p')
    cat <<CONTROL
Package: $package
Version: $debian_version
Architecture: $(dpkg --print-architecture)
Maintainer: ${DEBFULLNAME:-$(last_commit %an)} <${DEBEMAIL:-$(last_commit %ae)}>
Installed-Size: $(find "$tree" -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
Depends: postgresql-$major, $libraries
Section: database
Priority: optional
Description: task queue with dependencies, for PostgreSQL $major
 taskq is a task queue inside the database: tasks are inserted in the
 application's own transactions, run after those they depend on, and are
 owned and returned by workers in any language, by plain SQL calls. With
 priorities, leases with fencing tokens, retries, schedules, limits of
 concurrency and rate, and groups.
CONTROL
}

# The files of docs and examples below the current folder, each with a NUL behind it: what git has, and not what else lies
# about. Without git the folder is an archive or a copy of that.
documents() {
    if git ls-files --error-unmatch README.md >/dev/null 2>&1; then
        git ls-files -z docs examples
    else
        find docs examples -type f -print0
    fi
}

# Prints the path of the package, made from the sources in $1 with the build folder $2.
build() {
    local sources=$1 built=$2 docs file
    for tool in dpkg-deb dpkg-shlibdeps strip; do
        command -v "$tool" >/dev/null || die "$tool is missing (packages dpkg-dev and binutils)"
    done
    export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(last_commit %ct)}
    [ -n "$SOURCE_DATE_EPOCH" ] || die "no commit says when it was made: set SOURCE_DATE_EPOCH"
    umask 022
    cd "$sources"
    build_library "$sources" "$built"

    stage=$built/package
    tree=$stage/tree
    docs=$tree/usr/share/doc/$package
    rm -rf "$stage"
    install -D -m 644 "$built/release/libtaskq.so" "$tree/usr/lib/postgresql/$major/lib/taskq.so"
    strip --strip-unneeded "$tree/usr/lib/postgresql/$major/lib/taskq.so"
    install -D -m 644 -t "$tree/usr/share/postgresql/$major/extension" "$built/stage/taskq.control" \
        "$built/stage"/taskq--*.sql
    install -D -m 644 -t "$docs" README.md SECURITY.md
    documents | xargs -0 cp --parents -t "$docs"
    copyright >"$docs/copyright"
    third_party_licenses | gzip -9n >"$docs/third-party-licenses.gz"
    gzip -9nc CHANGELOG.md >"$docs/changelog.gz"

    mkdir "$tree/DEBIAN"
    control >"$tree/DEBIAN/control"
    (cd "$tree" && find usr -type f | LC_ALL=C sort | xargs -d '\n' md5sum) >"$tree/DEBIAN/md5sums"
    find "$tree" -type d -exec chmod 755 {} +
    find "$tree" -type f -exec chmod u=rwX,go=rX {} +
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    file=$built/${package}_${debian_version}_$(dpkg --print-architecture).deb
    DPKG_DEB_THREADS_MAX=1 dpkg-deb --root-owner-group -Zxz --build "$tree" "$file" >&2
    printf '%s\n' "$file"
}

# --- the tests ---------------------------------------------------------------------------------------------------

# In another folder, with a build of its own from the first crate on.
build_twice() {
    local first=$1 again=$target/deb/again second
    rm -rf "$again"
    mkdir -p "$again/sources"
    git ls-files -z | xargs -0 cp --parents -t "$again/sources"
    second=$(build "$again/sources" "$again/build" | tail -n 1)
    cmp "$first" "$second" || die "built twice, it is not the same: compare $first and $second"
    printf 'deb: built twice, in two folders: %s\n' "$(sha256sum <"$second" | cut -c 1-64)"
    rm -rf "$again"
}

contents() {
    dpkg-deb --fsys-tarfile "$1" | tar -t | grep -v '/$'
}

check_contents() {
    local listed expected
    listed=$(contents "$1")
    for expected in "./usr/lib/postgresql/$major/lib/taskq.so" "./usr/share/postgresql/$major/extension/taskq.control" \
        "./usr/share/postgresql/$major/extension/taskq--$version.sql" "./usr/share/doc/$package/copyright" \
        "./usr/share/doc/$package/changelog.gz" "./usr/share/doc/$package/README.md"; do
        grep -qxF "$expected" <<<"$listed" || die "the package lacks $expected"
    done
    ! grep -v "^\./usr/\(lib/postgresql/$major/lib/taskq\.so\|share/postgresql/$major/extension/taskq[.-].*\|share/doc/$package/.*\)$" \
        <<<"$listed" || die "the package has files where none belong"
    for expected in docs examples; do
        diff <(git ls-files "$expected" | LC_ALL=C sort) \
            <(sed -n "s|^\./usr/share/doc/$package/\($expected/.*\)|\1|p" <<<"$listed" | LC_ALL=C sort) ||
            die "the package has other $expected than git"
    done
    # It does not show where it was built.
    ! dpkg-deb --fsys-tarfile "$1" | grep -aF -e "$root" -e "$target" -e "${CARGO_HOME:-$HOME/.cargo}/" >/dev/null ||
        die "the package names folders of this machine"
}

# A fresh Debian of the release that this machine runs, in a namespace of its own: whatever is started in there ends with
# it, and nothing stays mounted.
install_and_use() {
    local file=$1 debian=$target/deb/root release
    release=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    [ "$(id -u)" -eq 0 ] || die "a fresh Debian takes root to make"
    command -v debootstrap >/dev/null || die "debootstrap is missing"
    rm -rf "$debian"
    if [ ! -e "$target/deb/$release.tar" ]; then
        debootstrap --variant=minbase "$release" "$debian" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" \
            >"$target/deb/debootstrap.log" || die "debootstrap failed, see $target/deb/debootstrap.log"
        tar -C "$debian" --one-file-system -cf "$target/deb/$release.tar" .
    else
        mkdir -p "$debian"
        tar -C "$debian" -xf "$target/deb/$release.tar"
    fi
    cp "$file" .ci/deb_install.sh "$debian/tmp/"
    unshare --mount --pid --fork --mount-proc="$debian/proc" \
        chroot "$debian" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LANG=C.UTF-8 \
        bash /tmp/deb_install.sh "$major" "/tmp/$(basename "$file")" "$version"
    rm -rf "$debian"
}

built=$target/deb/$major
mkdir -p "$built"
case "${1:-}" in
    build)
        file=$(build "$root" "$built" | tail -n 1)
        cp "$file" "$target/"
        printf '%s\n' "$target/$(basename "$file")"
        ;;
    test)
        file=$(build "$root" "$built" | tail -n 1)
        check_contents "$file"
        install_and_use "$file"
        build_twice "$file"
        ;;
    *)
        sed -n '4,10s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
