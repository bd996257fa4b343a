# Everything but what is shipped is built with one profile, so that nothing is compiled twice.

BIN := target/release
# Extra arguments, for example `make up ARGS='--shards 3 --fresh'`.
ARGS ?=
# Where the installation that is measured listens.
BENCH_PORT ?= 7443

.PHONY: up build test bench bench-gateway demo-comer sim lint audit hostile faults soak h2spec fuzz

## Build and run a gateway, two shards, a cache server and a development issuer here; Ctrl-C stops them.
up: build
	$(BIN)/fairlead up $(ARGS)

build:
	@deploy/tools.sh
	cargo build --release --workspace --bins

## All tests: units, and behaviours of real processes.
test: build
	cargo test --release --workspace $(ARGS)

## Measure a fresh installation of its own (not on tmpfs: durable writes are part of it) and print the tables.
bench: build
	@BIN=$(BIN) DIR=target/bench PORT=$(BENCH_PORT) deploy/bench.sh $(ARGS)

## Measure the gateway, built as it is shipped, beside haproxy, nginx, a bare forwarder, the backend directly, and the
## program that $KCP_FRONT_PROXY names; needs an otherwise idle machine. For a first impression: ARGS=--quick.
bench-gateway:
	@deploy/tools.sh
	cargo build --profile dist -p fairlead-gateway -p fairlead-bench --bins
	@target/dist/bench-gateway $(ARGS)

## How evenly gateways spread a million workspaces over a hundred shards, by policy; fails when it is less than promised.
sim:
	cargo run --release -p fairlead-gateway --features simulation --bin simulate-picks

## What reviewers should not have to say.
lint:
	@deploy/tools.sh
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings

## Licences, advisories, banned crates. Needs the network.
audit:
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check

## A million hostile requests against a gateway (`make test` sends 20,000). HOSTILE_REQUESTS and HOSTILE_SEED choose others.
hostile: build
	@HOSTILE_REQUESTS=$${HOSTILE_REQUESTS:-1000000} cargo test --release -p fairlead-gateway --test hostile -- --nocapture campaign $(ARGS)

## Everything that may go wrong in an installation, with outages of a minute (`make test`: of two seconds). FAULT_SECONDS and FAULT_FILTER choose others.
faults: build
	@FAULT_SECONDS=$${FAULT_SECONDS:-60} cargo test --release -p fairlead-gateway --test faults -- --nocapture $(ARGS)

## 100 reloads, 20 upgrades and 10 drains under 1,000 requests a second and 1,000 watches (`make test`: 10, 3, 2, 200 and 50). LIFE_RELOADS, LIFE_UPGRADES, LIFE_DRAINS, LIFE_REQUESTS, LIFE_WATCHES and LIFE_WINDOW choose others.
soak: build
	@LIFE_RELOADS=$${LIFE_RELOADS:-100} LIFE_UPGRADES=$${LIFE_UPGRADES:-20} LIFE_DRAINS=$${LIFE_DRAINS:-10} LIFE_REQUESTS=$${LIFE_REQUESTS:-1000} LIFE_WATCHES=$${LIFE_WATCHES:-1000} LIFE_WINDOW=$${LIFE_WINDOW:-5} cargo test --release -p fairlead-gateway --test faults -- --nocapture reloads_upgrades_and_drains $(ARGS)

## HTTP/2 conformance: every case of h2spec, a program of others. H2SPEC names it.
h2spec: build
	@if [ ! -x "$(H2SPEC)" ]; then echo "h2spec is missing: set H2SPEC to its path (github.com/summerwind/h2spec, built with go build ./cmd/h2spec)" >&2; exit 1; fi
	@H2SPEC="$(abspath $(H2SPEC))" cargo test --release -p fairlead-gateway --test hostile -- --ignored --nocapture h2spec $(ARGS)

## Fuzz whatever clients and administrators write, FUZZ_SECONDS (300) per target, FUZZ_TARGET for one. What fails is kept in gateway/fuzz/corpus and read by `make test`.
fuzz:
	@gateway/fuzz/run.sh

## Two gateways on one machine, one behind a CDN and one inside, as in deploy/patterns/comer: who can do what at which door, shown with kubectl.
demo-comer: build
	@$(BIN)/demo-comer
