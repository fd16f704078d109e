#!/usr/bin/env bash
# An image that holds the extension and nothing else, for the extension volumes of CloudNativePG: /share/extension and /lib. It is an
# OCI image layout, a folder that skopeo, crane, podman and others push to a registry; tar, gzip and JSON make it.
#
#   oci.sh build [VERSION...]    into target/oci/taskq-X-pgN, of what make has compiled: `make oci`
#   oci.sh test [VERSION...]     the same; verifies each digest and size, and unpacks the image; a server that finds the folder by
#                                extension_control_path and dynamic_library_path, as CloudNativePG sets them, uses it: `make test-oci`
#
#   SOURCE_DATE_EPOCH    the time that is written into it (default: that of the last commit)
#
# VERSION is 18, the first one that knows extension_control_path, or a later one.
set -euo pipefail
shopt -s inherit_errexit

die() {
    printf 'oci: %s\n' "$*" >&2
    exit 1
}

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd -P)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || true)}
[ -n "$SOURCE_DATE_EPOCH" ] || die "no commit says when it was made: set SOURCE_DATE_EPOCH"
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

case $(uname -m) in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) architecture=$(uname -m) ;;
esac

# --- the image ---------------------------------------------------------------------------------------------------

# Keeps the file $1 as a blob, and prints its descriptor: media type $2, digest and size.
blob() {
    local digest size
    digest=$(sha256sum <"$1" | cut -d ' ' -f 1)
    size=$(stat -c %s "$1")
    mv "$1" "$image/blobs/sha256/$digest"
    printf '{"mediaType":"%s","digest":"sha256:%s","size":%s}' "$2" "$digest" "$size"
}

labels() {
    printf '{"org.opencontainers.image.title":"taskq","org.opencontainers.image.version":"%s","org.opencontainers.image.licenses":"PostgreSQL",' "$version"
    printf '"org.opencontainers.image.description":"taskq, a task queue with dependencies, for PostgreSQL %s","org.opencontainers.image.created":"%s"}' "$major" "$created"
}

# Prints the folder of the image.
build() {
    local made built tree layer diff config manifest
    [ "$major" -ge 18 ] || die "PostgreSQL $major has no extension_control_path: 18 is the first that has"
    made=$(.ci/compiled.sh "$major")
    built=$(tail -n 1 <<<"$made")
    image=$target/oci/taskq-$version-pg$major
    tree=$image.tree
    rm -rf "$image" "$tree"
    mkdir -p "$image/blobs/sha256"
    umask 022
    install -D -m 755 "$built/release/libtaskq.so" "$tree/lib/taskq.so"
    strip --strip-unneeded "$tree/lib/taskq.so"
    install -D -m 644 -t "$tree/share/extension" "$built/stage/taskq.control" "$built/stage"/taskq--*.sql
    install -D -m 644 LICENSE "$tree/licenses/taskq/LICENSE"
    .ci/licenses.sh texts "$major" | gzip -9n >"$tree/licenses/taskq/third-party-licenses.gz"

    layer=$image/layer
    tar -C "$tree" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf "$layer" lib licenses share
    diff=$(sha256sum <"$layer" | cut -d ' ' -f 1)
    gzip -9n "$layer"
    layer=$(blob "$layer.gz" application/vnd.oci.image.layer.v1.tar+gzip)

    printf '{"created":"%s","architecture":"%s","os":"linux","config":{"Labels":%s},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
        "$created" "$architecture" "$(labels)" "$diff" >"$image/config"
    config=$(blob "$image/config" application/vnd.oci.image.config.v1+json)

    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s],"annotations":%s}' \
        "$config" "$layer" "$(labels)" >"$image/manifest"
    manifest=$(blob "$image/manifest" application/vnd.oci.image.manifest.v1+json)

    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s,"platform":{"architecture":"%s","os":"linux"},"annotations":{"org.opencontainers.image.ref.name":"%s-pg%s"}}]}' \
        "${manifest%\}}" "$architecture" "$version" "$major" >"$image/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' >"$image/oci-layout"
    rm -rf "$tree"
    printf '%s\n' "$image"
}

# --- the tests ---------------------------------------------------------------------------------------------------

# Follows the image from its index on: each blob has the digest and the size that its descriptor says, and there is no other. Unpacks
# its layers into the folder $2.
verify() {
    python3 - "$1" "$2" <<'PYTHON'
import gzip, hashlib, io, json, os, sys, tarfile

image, to = sys.argv[1:]
assert json.load(open(f"{image}/oci-layout")) == {"imageLayoutVersion": "1.0.0"}
seen = set()
FILES = {"lib/taskq.so", "share/extension/taskq.control", "licenses/taskq/LICENSE", "licenses/taskq/third-party-licenses.gz"}

def blob(descriptor, media_type):
    assert descriptor["mediaType"] == media_type, descriptor
    algorithm, digest = descriptor["digest"].split(":")
    content = open(f"{image}/blobs/{algorithm}/{digest}", "rb").read()
    assert hashlib.sha256(content).hexdigest() == digest and len(content) == descriptor["size"], descriptor
    seen.add(digest)
    return content

index = json.load(open(f"{image}/index.json"))
assert index["schemaVersion"] == 2 and len(index["manifests"]) == 1
manifest = json.loads(blob(index["manifests"][0], "application/vnd.oci.image.manifest.v1+json"))
config = json.loads(blob(manifest["config"], "application/vnd.oci.image.config.v1+json"))
assert (config["os"], config["architecture"]) == ("linux", index["manifests"][0]["platform"]["architecture"])
assert len(manifest["layers"]) == len(config["rootfs"]["diff_ids"]) == 1
layer = gzip.decompress(blob(manifest["layers"][0], "application/vnd.oci.image.layer.v1.tar+gzip"))
assert "sha256:" + hashlib.sha256(layer).hexdigest() == config["rootfs"]["diff_ids"][0]
assert seen == set(os.listdir(f"{image}/blobs/sha256")), "a blob that nothing names"
with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
    names = {member.name for member in tar if member.isfile()}
    for name in names:
        assert name in FILES or name.startswith("share/extension/taskq--"), name
    assert FILES <= names, f"it lacks {FILES - names}"
    assert all(member.uid == member.gid == 0 for member in tar.getmembers())
    tar.extractall(to)
print(f"oci: {len(seen)} blobs, {len(names)} files: {index['manifests'][0]['digest']}")
PYTHON
}

# In a folder apart from the server's, which has no file of the extension: where CloudNativePG mounts it, but for the beginning of the
# path.
use() {
    # Known to the trap, which runs when the function has ended.
    pg_config=$(.ci/compiled.sh "$major" | head -n 1)
    [ ! -e "$("$pg_config" --sharedir)/extension/taskq.control" ] || {
        rm -f "$("$pg_config" --sharedir)/extension"/taskq* "$("$pg_config" --pkglibdir)/taskq.so"
    }
    # The server's user cannot enter each folder of a checkout.
    extensions=$(mktemp -d /tmp/taskq-extensions-XXXXXX)
    cluster=$target/oci/cluster
    trap 'PG_CONFIG=$pg_config .ci/cluster.sh stop "$cluster"; rm -rf "$extensions"' EXIT
    chmod 755 "$extensions"
    verify "$image" "$extensions/taskq"
    PG_CONFIG=$pg_config .ci/cluster.sh start "$cluster" -c "extension_control_path=\$system:$extensions/taskq/share" \
        -c "dynamic_library_path=\$libdir:$extensions/taskq/lib" -c shared_preload_libraries=taskq -c taskq.databases=jobs
    local settings
    settings=$(PG_CONFIG=$pg_config .ci/cluster.sh env "$cluster")
    # shellcheck disable=SC2086,SC2163  # words of the form NAME=value
    export $settings
    psql() { command psql -Xq -v ON_ERROR_STOP=1 "$@"; }
    psql -d postgres -c 'DROP DATABASE IF EXISTS jobs WITH (FORCE)' -c 'DROP ROLE IF EXISTS web, hands' -c 'CREATE DATABASE jobs' \
        -c 'CREATE ROLE web' -c 'CREATE ROLE hands' 2>/dev/null
    psql -d jobs -o /dev/null -f .ci/package_use.sql
    [ "$(psql -At -d jobs -c "SELECT extversion FROM pg_extension WHERE extname = 'taskq'")" = "$version" ] || die "another version"
    local workers
    for _ in $(seq 100); do
        workers=$(psql -At -d postgres -c "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'taskq%' AND datname = 'jobs'")
        [ "$workers" = 0 ] || break
        sleep 0.1
    done
    [ "$workers" = 1 ] || die "$workers background workers"
    printf 'oci: found by extension_control_path and used, with its background worker, on %s\n' "$("$pg_config" --version)"
}

what=${1:-}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- 18
for major; do
    case "$what" in
        build) build ;;
        test)
            image=$(build | tail -n 1)
            (use)
            ;;
        *)
            sed -n '5,10s/^# \{0,1\}//p' "$0" >&2
            exit 2
            ;;
    esac
done
