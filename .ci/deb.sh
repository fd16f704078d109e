#!/usr/bin/env bash
# The Debian package postgresql-N-taskq, and the tar archive, for the server versions that are named, else for that of the server
# that PG_CONFIG belongs to.
#
#   deb.sh build [VERSION...]      packages of what make has compiled, in target/: `make deb`
#   deb.sh archive [VERSION...]    tar archives of the same files, of the documentation the licences only, in target/: `make package`
#   deb.sh test [VERSION...]       both, and: has each what belongs there, and nothing else; each package is installed into a fresh
#                                  Debian without Rust and used there: `make test-deb` (needs root and debootstrap)
#   deb.sh reproduce [VERSION...]  a package that names no path of this machine, built twice, in two folders, and compared:
#                                  `make reproduce-deb`
#
#   SOURCE_DATE_EPOCH    the time that is written into it (default: that of the last commit)
#   DEBFULLNAME, DEBEMAIL    who maintains the package (default: who made the last commit)
#
# It is laid out as Debian's packages of extensions are: the library in /usr/lib/postgresql/N/lib, control file and script
# in /usr/share/postgresql/N/extension, the pages in /usr/share/doc. All times in it are one. PostgreSQL 15 is in Debian 12, 17 in
# Debian 13 and 18 in the one after; 16 is in none of them, and its package is unpacked into the server of other_server.sh.
set -euo pipefail
shopt -s inherit_errexit

die() {
    printf 'deb: %s\n' "$*" >&2
    exit 1
}

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd -P)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

# In Debian's order 0.2.0~rc.1 comes before 0.2.0, and 0.2.0-rc.1 would come after it.
debian_version=${version//-/\~}

default_version() {
    "${PG_CONFIG:-pg_config}" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/' || die "pg_config does not work: set PG_CONFIG"
}

# The version for which a package is made.
choose() {
    major=$1
    package=postgresql-$major-taskq
    work=$target/deb/$major/package
    mkdir -p "$work"
}

last_commit() { git log -1 --format="$1" 2>/dev/null || true; }

# The time of all files in what is made.
set_time() {
    export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(last_commit %ct)}
    [ -n "$SOURCE_DATE_EPOCH" ] || die "no commit says when it was made: set SOURCE_DATE_EPOCH"
    umask 022
}

# --- the package -------------------------------------------------------------------------------------------------

# A build for a release: the paths of this machine, of the sources $1, of the build folder $2 and of cargo's folder, do not get into
# the library. CARGO_TARGET_DIR is what make takes for its target, too.
build_without_paths() {
    # Where several match, the last one counts: the build folder lies among the sources, or elsewhere.
    local remap="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$1=."
    # The same for what is compiled from C. Of its debugging information nothing is left in the package but the number of the
    # build, which is worked out with it.
    local map="-ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo -ffile-prefix-map=$1=. -ffile-prefix-map=$2=/target"
    CARGO_TARGET_DIR=$2 CARGO_INCREMENTAL=0 RUSTFLAGS="$remap --remap-path-prefix=$2=/target" CFLAGS="$map" \
        "${MAKE:-make}" --no-print-directory -C "$1" build "PG_CONFIG=$pg_config" >&2
}

copyright() {
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: taskq\n'
    printf 'Comment: The library contains these crates, whose licences, with the names of their authors, are in\n'
    printf ' third-party-licenses.gz:\n'
    .ci/licenses.sh crates "$major" | sed 's/^\(.*\) v\(.*\)|\(.*\)$/  \1 \2, \3/'
    printf '\nFiles: *\nCopyright: 2026, the taskq authors\nLicense: PostgreSQL\n'
    sed -e '1,4d' -e 's/^$/./' -e 's/^/ /' LICENSE
}

# What both the package and the archive have of licences, into the folder $1.
licenses() {
    mkdir -p "$1"
    copyright >"$1/copyright"
    .ci/licenses.sh texts "$major" | gzip -9n >"$1/third-party-licenses.gz"
}

control() {
    local libraries
    libraries=$(cd "$work" && mkdir -p debian && : >debian/control &&
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

# Prints the path of the package, of the pages in the folder $1 and what was built in $2.
package() {
    local sources=$1 built=$2 docs file
    for tool in dpkg-deb dpkg-shlibdeps strip; do
        command -v "$tool" >/dev/null || die "$tool is missing (packages dpkg-dev and binutils)"
    done
    set_time
    cd "$sources"
    tree=$work/tree
    docs=$tree/usr/share/doc/$package
    rm -rf "$work"
    install -D -m 644 "$built/release/libtaskq.so" "$tree/usr/lib/postgresql/$major/lib/taskq.so"
    strip --strip-unneeded "$tree/usr/lib/postgresql/$major/lib/taskq.so"
    install -D -m 644 -t "$tree/usr/share/postgresql/$major/extension" "$built/stage/taskq.control" \
        "$built/stage"/taskq--*.sql
    install -D -m 644 -t "$docs" README.md SECURITY.md CONTRIBUTING.md CHANGELOG.md LICENSE
    documents | xargs -0 cp --parents -t "$docs"
    .ci/unlink.pl "$docs"
    licenses "$docs"
    gzip -9nc CHANGELOG.md >"$docs/changelog.gz"

    mkdir "$tree/DEBIAN"
    control >"$tree/DEBIAN/control"
    (cd "$tree" && find usr -type f | LC_ALL=C sort | xargs -d '\n' md5sum) >"$tree/DEBIAN/md5sums"
    find "$tree" -type d -exec chmod 755 {} +
    find "$tree" -type f -exec chmod u=rwX,go=rX {} +
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    file=$work/${package}_${debian_version}_$(dpkg --print-architecture).deb
    DPKG_DEB_THREADS_MAX=1 dpkg-deb --root-owner-group -Zxz --build "$tree" "$file" >&2
    printf '%s\n' "$file"
}

# Prints the path of the package of what make has compiled.
build() {
    local made file
    made=$(.ci/compiled.sh "$major")
    file=$(package "$root" "$(tail -n 1 <<<"$made")" | tail -n 1)
    cp "$file" "$target/"
    printf '%s\n' "$target/$(basename "$file")"
}

# The files, at the paths of the server that they are for; those of other_server.sh are where Debian has them.
archive() {
    local made pg_config built server files file lib share
    made=$(.ci/compiled.sh "$major")
    pg_config=$(head -n 1 <<<"$made")
    built=$(tail -n 1 <<<"$made")
    set_time
    server=$target/matrix/$major/root
    files=$work/archive
    lib=$("$pg_config" --pkglibdir)
    share=$("$pg_config" --sharedir)
    rm -rf "$files"
    install -D -m 755 "$built/release/libtaskq.so" "$files/${lib#"$server"}/taskq.so"
    strip --strip-unneeded "$files/${lib#"$server"}/taskq.so"
    install -D -m 644 -t "$files/${share#"$server"}/extension" "$built/stage/taskq.control" "$built/stage"/taskq--*.sql
    file=$target/taskq-$version-pg$major.tar.gz
    licenses "$files/usr/share/doc/$package"
    # No folders: unpacked as root they would give those of the machine another owner, mode and time.
    find "$files" -type f -printf '%P\n' | LC_ALL=C sort |
        tar -C "$files" --no-recursion -T - --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - | gzip -9n >"$file"
    printf '%s\n' "$file"
}

# --- the tests ---------------------------------------------------------------------------------------------------

# In two folders, each with a build of its own from the first crate on.
reproduce() {
    local folder files=()
    pg_config=$(.ci/compiled.sh "$major" | head -n 1)
    for folder in "$target/deb/$major/first" "$target/deb/$major/second/further"; do
        rm -rf "$folder"
        mkdir -p "$folder/sources"
        git ls-files -z | xargs -0 cp --parents -t "$folder/sources"
        build_without_paths "$folder/sources" "$folder/build"
        cp "$(package "$folder/sources" "$folder/build" | tail -n 1)" "$folder/"
        cd "$root"
        files+=("$folder"/*.deb)
    done
    cmp "${files[@]}" || die "built twice, it is not the same: compare ${files[*]}"
    # It does not show where it was built.
    ! dpkg-deb --fsys-tarfile "${files[0]}" | grep -aF -e "$root" -e "$target" -e "${CARGO_HOME:-$HOME/.cargo}/" >/dev/null ||
        die "the package names folders of this machine"
    cp "${files[0]}" "$target/"
    printf 'deb: built twice, in two folders: %s %s\n' "$(sha256sum <"${files[0]}" | cut -c 1-64)" "$(basename "${files[0]}")"
    rm -rf "$target/deb/$major/first" "$target/deb/$major/second"
}

contents() {
    dpkg-deb --fsys-tarfile "$1" | tar -t | grep -v '/$'
}

check_contents() {
    local listed expected
    listed=$(contents "$1")
    for expected in "./usr/lib/postgresql/$major/lib/taskq.so" "./usr/share/postgresql/$major/extension/taskq.control" \
        "./usr/share/postgresql/$major/extension/taskq--$version.sql" "./usr/share/doc/$package/copyright" \
        "./usr/share/doc/$package/changelog.gz" "./usr/share/doc/$package/README.md" \
        "./usr/share/doc/$package/third-party-licenses.gz"; do
        grep -qxF "$expected" <<<"$listed" || die "the package lacks $expected"
    done
    ! grep -v "^\./usr/\(lib/postgresql/$major/lib/taskq\.so\|share/postgresql/$major/extension/taskq[.-].*\|share/doc/$package/.*\)$" \
        <<<"$listed" || die "the package has files where none belong"
    for expected in docs examples; do
        diff <(git ls-files "$expected" | LC_ALL=C sort) \
            <(sed -n "s|^\./usr/share/doc/$package/\($expected/.*\)|\1|p" <<<"$listed" | LC_ALL=C sort) ||
            die "the package has other $expected than git"
    done
}

# Why: a reader of the installed pages follows their links. How it failed: two hundred led to files of the sources.
check_links() {
    local folder=$work/links
    rm -rf "$folder"
    dpkg-deb --extract "$1" "$folder"
    python3 - "$folder/usr/share/doc/$package" <<'PYTHON'
import pathlib, re, sys

folder, broken, followed = pathlib.Path(sys.argv[1]), [], 0
for page in folder.rglob("*.md"):
    for target in re.findall(r"\]\(([^()\s]+)\)", page.read_text()):
        if not re.match(r"#|[a-z]+:", target):
            followed += 1
            if not (page.parent / target.split("#")[0]).exists():
                broken.append(f"{page.relative_to(folder)}: {target}")
sys.exit("deb: these links lead nowhere:\n" + "\n".join(broken) if broken or followed < 100 else 0)
PYTHON
    rm -rf "$folder"
}

# Why: the licences of the crates have to be passed on with the library. How it failed: seven crates had no text.
check_licenses() {
    local listed without
    listed=$(.ci/licenses.sh crates "$major" | sed 's/|.*//')
    diff <(sed -n 's/^==> //p' <<<"$1") <(printf '%s\n' "$listed") || die "the licences are those of other crates"
    without=$(awk '/^==> / { if (crate && !found) print crate; crate = $0; found = 0; next }
        tolower($0) ~ /permission|licen[sc]e/ { found = 1 }
        END { if (!found) print crate }' <<<"$1")
    [ -z "$without" ] || die "no licence of $without"
}

check_archive() {
    local listed expected docs=usr/share/doc/$package
    listed=$(tar -tzf "$1")
    ! grep '/$' <<<"$listed" || die "the archive has folders, whose owner and mode it would set on the machine"
    for expected in taskq.so taskq.control "taskq--$version.sql" copyright third-party-licenses.gz; do
        grep -q "/$expected\$" <<<"$listed" || die "the archive lacks $expected"
    done
    ! grep -vE "/taskq(\.so|\.control|--.*\.sql)\$|^$docs/(copyright|third-party-licenses\.gz)\$" <<<"$listed" ||
        die "the archive has files where none belong"
    check_licenses "$(tar -xzOf "$1" "$docs/third-party-licenses.gz" | gzip -dc)"
}

# The release of Debian that has the server.
release_of() {
    case $1 in
        15) echo bookworm ;;
        17) echo trixie ;;
        18) echo forky ;;
    esac
}

# A fresh Debian, in a namespace of its own: what is started in there ends with it, and nothing stays mounted.
install_and_use() {
    local file=$1 release=$2 debian=$target/deb/root scripts=/usr/share/debootstrap/scripts script=''
    [ "$(id -u)" -eq 0 ] || die "a fresh Debian takes root to make"
    command -v debootstrap >/dev/null || die "debootstrap is missing"
    rm -rf "$debian"
    if [ ! -e "$target/deb/$release.tar" ]; then
        # One that this debootstrap does not know is made as the youngest that it knows.
        [ -e "$scripts/$release" ] || script=$scripts/sid
        # shellcheck disable=SC2086  # nothing, or a path
        debootstrap --variant=minbase "$release" "$debian" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" $script \
            >"$target/deb/debootstrap.log" 2>&1 || die "debootstrap failed, see $target/deb/debootstrap.log"
        tar -C "$debian" --one-file-system -cf "$target/deb/$release.tar" .
    else
        mkdir -p "$debian"
        tar -C "$debian" -xf "$target/deb/$release.tar"
    fi
    cp "$file" .ci/deb_install.sh .ci/package_use.sql "$debian/tmp/"
    unshare --mount --pid --fork --mount-proc="$debian/proc" \
        chroot "$debian" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LANG=C.UTF-8 \
        bash /tmp/deb_install.sh "$major" "/tmp/$(basename "$file")" "$version"
    rm -rf "$debian"
}

# Where no release of Debian has the server: into the one that there is.
unpack_and_use() {
    local file=$1 pg_config unpacked=$work/unpacked settings
    pg_config=$(.ci/other_server.sh "$major")
    rm -rf "$unpacked"
    dpkg-deb --extract "$file" "$unpacked"
    install -m 755 "$unpacked/usr/lib/postgresql/$major/lib/taskq.so" "$("$pg_config" --pkglibdir)/"
    install -m 644 "$unpacked/usr/share/postgresql/$major/extension"/taskq* "$("$pg_config" --sharedir)/extension/"
    (
        trap 'PG_CONFIG=$pg_config .ci/cluster.sh stop "$work/cluster"' EXIT
        PG_CONFIG=$pg_config .ci/cluster.sh start "$work/cluster"
        settings=$(PG_CONFIG=$pg_config .ci/cluster.sh env "$work/cluster")
        # shellcheck disable=SC2086,SC2163  # words of the form NAME=value
        export $settings
        psql -Xq -d postgres -v ON_ERROR_STOP=1 -o /dev/null -c 'CREATE ROLE web' -c 'CREATE ROLE hands' -f .ci/package_use.sql
    )
    printf 'deb: unpacked and used with %s\n' "$("$pg_config" --version)"
}

test_package() {
    local file release
    file=$(build | tail -n 1)
    check_contents "$file"
    check_links "$file"
    check_archive "$(archive | tail -n 1)"
    release=$(release_of "$major")
    if [ -n "$release" ]; then
        install_and_use "$file" "$release"
    else
        unpack_and_use "$file"
    fi
}

what=${1:-}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- "$(default_version)"
for one; do
    choose "$one"
    case "$what" in
        build) build ;;
        archive) archive ;;
        reproduce) reproduce ;;
        test) test_package ;;
        *)
            sed -n '5,14s/^# \{0,1\}//p' "$0" >&2
            exit 2
            ;;
    esac
done
