# syntax=docker/dockerfile:1
# The official image of PostgreSQL with the extension, and its background worker, in it.
#
#   docker build --tag taskq --build-arg PG_MAJOR=15 .                              # on Debian 12
#   docker build --tag taskq --build-arg PG_MAJOR=18 --build-arg DEBIAN=trixie .    # on Debian 13
#   docker run --env POSTGRES_PASSWORD=secret --publish 5432:5432 taskq
#
# Our tests cannot make images. What it is made of is tested apart, on Debian: the package, and its installation where
# there is no Rust (make test-deb). The image itself is tried before a release, see docs/releasing.md.
#
# The database that the image makes has the extension; CREATE EXTENSION brings it into others.

ARG PG_MAJOR=15
ARG DEBIAN=bookworm
ARG RUST=1.89

FROM rust:${RUST}-${DEBIAN} AS rust

# The package is built where it will run: with the headers and the C library of the same image.
FROM postgres:${PG_MAJOR}-${DEBIAN} AS build
ARG PG_MAJOR
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates clang dpkg-dev gcc git libc6-dev libclang-dev make pkg-config \
        "postgresql-server-dev-${PG_MAJOR}"
COPY --from=rust /usr/local/cargo /usr/local/cargo
COPY --from=rust /usr/local/rustup /usr/local/rustup
ENV CARGO_HOME=/usr/local/cargo RUSTUP_HOME=/usr/local/rustup PATH=/usr/local/cargo/bin:$PATH
WORKDIR /taskq
COPY . .
# The build context need not have the history, from which these are taken otherwise.
ARG SOURCE_DATE_EPOCH=0
ARG DEBFULLNAME="The taskq authors"
ARG DEBEMAIL=taskq@localhost
RUN make deb "PG_CONFIG=/usr/lib/postgresql/${PG_MAJOR}/bin/pg_config" \
 && mv "target/postgresql-${PG_MAJOR}-taskq_"*.deb /taskq.deb

FROM postgres:${PG_MAJOR}-${DEBIAN}
RUN --mount=from=build,source=/taskq.deb,target=/taskq.deb dpkg --install /taskq.deb
# When the image's server makes its cluster: the background worker for all databases, the extension in the first one.
COPY --chmod=755 <<'SCRIPT' /docker-entrypoint-initdb.d/10-taskq.sh
#!/bin/sh
set -e
echo "shared_preload_libraries = 'taskq'" >>"$PGDATA/postgresql.conf"
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" -c 'CREATE EXTENSION taskq'
SCRIPT
