# taskq: build, install, try and test. `make help` lists the targets.

PG_CONFIG ?= pg_config
DESTDIR   ?=

VERSION   := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
PG_MAJOR   = $(shell $(PG_CONFIG) --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')

# Where the extension is installed: the server that it is built for, or a private copy of that (see .ci/server.sh).
INTO      ?= $(PG_CONFIG)
PKGLIBDIR  = $(shell $(INTO) --pkglibdir)
EXTDIR     = $(shell $(INTO) --sharedir)/extension
PRIVATE    = PG_CONFIG="$$(PG_CONFIG=$(PG_CONFIG) .ci/server.sh)"

TARGET    := $(or $(CARGO_TARGET_DIR),target)
LIBRARY   := $(TARGET)/release/libtaskq.so
STAGE     := $(TARGET)/stage
SQL_PARTS := sql/schema.sql sql/functions.sql sql/counts.sql sql/estimates.sql sql/views.sql sql/operate.sql sql/metrics.sql sql/search.sql sql/comments.sql sql/grants.sql

# One feature set, one profile, everywhere: pgrx is compiled once.
FEATURES   = --no-default-features --features pg$(PG_MAJOR)
CARGO_ENV  = PGRX_PG_CONFIG_PATH=$(shell $(PG_CONFIG) --bindir)/pg_config

.PHONY: all help setup build stage install put install-private uninstall package packages packages-test wheel deb test-deb reproduce-deb oci test-oci pgxn pictures demo test test-all lint unit-test pg-test outside-test torture test-matrix coverage mutants bench bench-peers bench-waiting bench-suspended bench-look clean

# What tools that know no more than make expect to find.
all: build
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what building and testing need, where it is missing (root or sudo)
	@PG_CONFIG=$(PG_CONFIG) .ci/setup.sh test

build: ## build the library and the extension's files
	$(CARGO_ENV) cargo build --release --locked --lib $(FEATURES)
	@$(MAKE) --no-print-directory stage

# What is installed beside the library: the control file, and the script of this version.
stage:
	@mkdir -p $(STAGE) && rm -f $(STAGE)/*.sql
	@sed 's/@CARGO_VERSION@/$(VERSION)/' taskq.control > $(STAGE)/taskq.control
	@{ printf '%s\n' '\echo Use "CREATE EXTENSION taskq" to load this file. \quit'; cat $(SQL_PARTS); } > $(STAGE)/taskq--$(VERSION).sql

# For a user that may not write into the server's folders: built as that user, copied as root.
SUDO       = $(if $(DESTDIR),,$(shell test -w '$(PKGLIBDIR)' -a -w '$(EXTDIR)' || echo sudo))

# The library that a running server has loaded is replaced, never written into, and at no moment missing or half there
# for a session that begins.
install: build ## install into the server that PG_CONFIG belongs to, with sudo where that takes it
	@$(MAKE) --no-print-directory put

put:
	$(SUDO) install -d '$(DESTDIR)$(PKGLIBDIR)' '$(DESTDIR)$(EXTDIR)'
	$(SUDO) install -m 755 $(LIBRARY) '$(DESTDIR)$(PKGLIBDIR)/taskq.so.new'
	$(SUDO) mv -f '$(DESTDIR)$(PKGLIBDIR)/taskq.so.new' '$(DESTDIR)$(PKGLIBDIR)/taskq.so'
	$(SUDO) install -m 644 $(STAGE)/taskq.control $(STAGE)/*.sql '$(DESTDIR)$(EXTDIR)/'

# For tests, demo and benchmarks: into a private copy of the server, which no other cluster of the machine uses.
install-private:
	@$(PRIVATE) && $(MAKE) --no-print-directory install PG_CONFIG=$(PG_CONFIG) INTO="$$PG_CONFIG" DESTDIR=

uninstall: ## remove what install has put there, with sudo where that takes it
	$(SUDO) rm -f '$(DESTDIR)$(PKGLIBDIR)/taskq.so' '$(DESTDIR)$(EXTDIR)/taskq.control' '$(DESTDIR)$(EXTDIR)'/taskq--*.sql

# Packages are made of what `make` has compiled for the server that PG_CONFIG belongs to; with VERSIONS='15 17 18' for those.
package: ## a tar archive of the installed files, in target/ (VERSIONS='15 17')
	@PG_CONFIG=$(PG_CONFIG) .ci/setup.sh deb
	@PG_CONFIG=$(PG_CONFIG) .ci/deb.sh archive $(VERSIONS)

deb: ## a Debian package, in target/ (VERSIONS='15 17')
	@PG_CONFIG=$(PG_CONFIG) .ci/setup.sh deb
	@PG_CONFIG=$(PG_CONFIG) .ci/deb.sh build $(VERSIONS)

test-deb: ## install the package into a fresh Debian without Rust, and use it (VERSIONS='15 17'; root)
	@PG_CONFIG=$(PG_CONFIG) .ci/setup.sh test-deb
	@PG_CONFIG=$(PG_CONFIG) .ci/deb.sh test $(VERSIONS)

reproduce-deb: ## the package of a release: built twice, in two folders, and compared (VERSIONS='15 17')
	@PG_CONFIG=$(PG_CONFIG) .ci/setup.sh deb
	@PG_CONFIG=$(PG_CONFIG) .ci/deb.sh reproduce $(VERSIONS)

oci: ## an image for the extension volumes of CloudNativePG, an OCI layout in target/oci
	@PG_CONFIG=$(PG_CONFIG) .ci/setup.sh deb
	@PG_CONFIG=$(PG_CONFIG) .ci/oci.sh build $(VERSIONS)

test-oci: ## the same, its digests verified, and used by a server that finds it where CloudNativePG mounts it
	@PG_CONFIG=$(PG_CONFIG) .ci/setup.sh deb
	@PG_CONFIG=$(PG_CONFIG) .ci/oci.sh test $(VERSIONS)

pgxn: ## an archive of the committed sources for PGXN, in target/
	@.ci/pgxn.sh

pictures: ## make the pictures of taskq.page() and the console in docs/pictures anew, with Chromium
	@PG_CONFIG=$(PG_CONFIG) .ci/setup.sh pictures
	@$(MAKE) --no-print-directory install-private
	@$(PRIVATE) .ci/pictures.sh

demo: ## export a branch on a private cluster (REPO=, REV=, WORKERS=)
	@PG_CONFIG=$(PG_CONFIG) .ci/setup.sh build
	@$(MAKE) --no-print-directory install-private
	@cargo build --release --locked -p branch_export
	@$(PRIVATE) .ci/demo.sh

# The tests' feature set: that of the build, and pg_test, which is this crate's alone.
TEST_FEATURES = --no-default-features --features "pg$(PG_MAJOR) pg_test"

test: ## lint and the tests that the targets below run, but for what is long by nature; installs what they need
	@.ci/test.sh all

test-all: ## the same, with storms and faults at random, lost servers, and the example clients
	@.ci/test.sh everything

lint: setup ## format, clippy, the words of pages and comments, pgspot on the install script, and cargo-deny where it is installed
	@.ci/words.py
	cargo fmt --all --check
	cargo fmt --check --manifest-path examples/clients/rust/Cargo.toml
	cargo fmt --check --manifest-path benches/waiting/Cargo.toml
	$(CARGO_ENV) cargo clippy --release --locked -p taskq --lib --tests $(TEST_FEATURES) -- -D warnings
	cargo clippy --release --locked -p taskq_tests -p branch_export -p taskq_models -p taskq_rules --all-targets -- -D warnings
	@for script in .ci/*.sh benches/*.sh benches/peers/*/*.sh; do bash -n "$$script" || exit 1; done
	@.ci/pgspot.sh $(SQL_PARTS)
	@[ "$$(grep -c '"version": "$(VERSION)"' META.json)" -eq 2 ] || { echo "lint: META.json is not for version $(VERSION)"; exit 1; }
	@$(MAKE) --no-print-directory stage
	@if command -v cargo-deny >/dev/null; then cargo deny --locked check advisories bans licenses sources; \
	 else echo "lint: cargo-deny is not installed, so advisories, licences and sources of dependencies are not checked"; fi

unit-test: ## tests of the pure parts, without a server, and of the models of the protocols (TASKQ_MODELS=long: for longer)
	@PG_CONFIG=$(PG_CONFIG) .ci/test.sh unit

pg-test: ## tests that run inside a server (pg_test/; T=own::order: some of them)
	@PG_CONFIG=$(PG_CONFIG) T='$(T)' .ci/test.sh pg

outside-test: ## tests from outside, over connections (tests/; T=flow::groups: some of them)
	@PG_CONFIG=$(PG_CONFIG) T='$(T)' .ci/test.sh outside

packages: ## the client packages: the wheel of Python and the archive of npm, into target/packages
	@.ci/packages.sh build

wheel: ## the wheel of Python alone
	@.ci/packages.sh wheel

packages-test: ## tests of the client packages, installed as their users install them (clients/)
	@PG_CONFIG=$(PG_CONFIG) .ci/test.sh packages

SECONDS_TORTURE ?= 1800
torture: ## faults of all kinds at random over a large graph, and an audit of it (SECONDS_TORTURE=1800, TASKQ_TORTURE_SEED=)
	@$(MAKE) --no-print-directory install-private
	@$(PRIVATE) SECONDS_TORTURE=$(SECONDS_TORTURE) cargo test --release --locked -p taskq_tests --test torture -- --nocapture the_books

test-matrix: ## the tests that need a server on other versions of PostgreSQL (VERSIONS='17 18'; T='own flow': some of those from outside)
	@T='$(T)' .ci/matrix.sh $(VERSIONS)

coverage: ## the lines and branches of src that tests reach, per module (T='own flow', unit: these alone)
	@T='$(T)' PG_CONFIG=$(PG_CONFIG) .ci/coverage.sh

mutants: ## how many small mistakes in the source tests notice (SAMPLE=, SEED=, KIND=, FILES=, NAMES=, MINUTES=)
	@PG_CONFIG=$(PG_CONFIG) .ci/mutants.py

bench: ## measure, also beside other queues, and print tables (takes half an hour)
	@$(MAKE) --no-print-directory install-private
	@$(PRIVATE) benches/run.sh
	@$(PRIVATE) benches/peers.sh

bench-peers: ## measure beside other queues only (ROUNDS=, SECONDS_EACH=, SIZE=, PEERS=)
	@$(MAKE) --no-print-directory install-private
	@$(PRIVATE) benches/peers.sh

bench-look: ## what looks cost at a queue of NUMBER='10000000' tasks (takes an hour)
	@$(MAKE) --no-print-directory install-private
	@$(PRIVATE) benches/look.sh

bench-packages: ## measure the client packages beside others of their languages (takes a quarter of an hour; ROUNDS=)
	@$(MAKE) --no-print-directory install-private
	@$(PRIVATE) .ci/packages.sh bench

bench-waiting: ## measure waiting and waking (takes some minutes)
	@$(MAKE) --no-print-directory install-private
	@$(PRIVATE) benches/waiting.sh

bench-suspended: ## what a million suspended tasks cost the others (takes some five minutes; SIZE=)
	@$(MAKE) --no-print-directory install-private
	@$(PRIVATE) benches/suspended.sh

clean: ## remove what was built
	cargo clean
