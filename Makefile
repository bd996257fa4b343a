# Everything but what is shipped is built with one profile, so that nothing is compiled twice.

BIN := target/release
# Extra arguments, for example `make up ARGS='--shards 3 --fresh'`.
ARGS ?=
# Where the installation that is measured listens.
BENCH_PORT ?= 7443

.PHONY: up build test bench bench-gateway dashboards demo-comer demo-dashboards admin-page sim lint audit hostile faults soak h2spec pebble tls-scan slow figures fuzz

## Build and run a gateway, two shards, a cache server and a development issuer here; Ctrl-C stops them.
up: build
	$(BIN)/fairlead up $(ARGS)

build:
	@deploy/tools.sh
	cargo build --release --workspace --bins

## Run all tests: units, and behaviours of real processes. The last line names the tests that were left out.
test: build
	@deploy/test.sh $(ARGS)

## Measure a fresh installation of its own (not on tmpfs: durable writes are part of it) and print the tables.
bench: build
	@BIN=$(BIN) DIR=target/bench PORT=$(BENCH_PORT) deploy/bench.sh $(ARGS)

## Measure the gateway, built as it is shipped, beside haproxy, nginx, a bare forwarder, the backend directly, and the
## program that $KCP_FRONT_PROXY names; needs an otherwise idle machine. For a first impression: ARGS=--quick.
bench-gateway:
	@deploy/tools.sh
	cargo build --profile dist -p fairlead-gateway -p fairlead-bench --bins
	@target/dist/bench-gateway $(ARGS)

## Write the dashboards for Grafana from deploy/dashboards/source; `make test` fails if somebody forgets.
dashboards:
	@deploy/tools.sh
	cargo run --release -p fairlead-tests --bin dashboards -- write

## Run an installation of its own under load, with Prometheus, and draw every dashboard into target/dashboards.
demo-dashboards: build
	@deploy/tools.sh prometheus
	@deploy/tools.sh drawing
	@$(BIN)/dashboards demo $(ARGS)

## What parts of the gateway cost, printed and not judged: a table and a snapshot of a million workspaces, a line of the access log, what is counted of busy workspaces, CPU per request, memory per watch and workspace. Needs an otherwise idle machine.
figures: build
	@cargo test --release -p fairlead-gateway --lib -- --ignored --nocapture --test-threads=1 $(ARGS)
	@cargo test --release -p fairlead-gateway --test behaviour -- --ignored --nocapture --test-threads=1 figures:: $(ARGS)

## How evenly gateways spread a million workspaces over a hundred shards, by policy; fails when it is less than promised.
sim:
	cargo run --release -p fairlead-gateway --features simulation --bin simulate-picks

## What reviewers should not have to say.
lint:
	@deploy/tools.sh
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings

## Check licences, banned crates and sources, and advisories if their database can be fetched.
audit:
	@deploy/audit.sh

## A million hostile requests against a gateway (`make test` sends 20,000). HOSTILE_REQUESTS and HOSTILE_SEED choose others. Then each class of attack over HTTP/2 for 30 s, and what it costs honest clients (FLOOD_SECONDS, FLOOD_GOODPUT, FLOOD_CUT_SECONDS, FLOOD_CLASS).
hostile: build
	@HOSTILE_REQUESTS=$${HOSTILE_REQUESTS:-1000000} cargo test --release -p fairlead-gateway --test hostile -- --nocapture campaign $(ARGS)
	@FLOOD_SECONDS=$${FLOOD_SECONDS:-30} FLOOD_GOODPUT=$${FLOOD_GOODPUT:-0.95} FLOOD_CUT_SECONDS=$${FLOOD_CUT_SECONDS:-1} cargo test --release -p fairlead-gateway --test hostile -- --nocapture goodput $(ARGS)

## Slow clients, 4,000 at a time in the four modes of slowhttptest, a program of others (SLOWHTTPTEST names it, SLOW_SECONDS: for each mode, 60). Fails if an honest client has to wait for more than SLOW_MOST_MILLIS (100).
slow: build
	@command -v "$${SLOWHTTPTEST:-slowhttptest}" >/dev/null || { echo "slowhttptest is missing: install it, or set SLOWHTTPTEST to its path" >&2; exit 1; }
	@ulimit -n 16384 && SLOW_MOST_MILLIS=$${SLOW_MOST_MILLIS:-100} cargo test --release -p fairlead-gateway --test hostile -- --ignored --nocapture slowhttptest $(ARGS)

## Everything that may go wrong in an installation, with outages of a minute (`make test`: of two seconds). FAULT_SECONDS and FAULT_FILTER choose others.
faults: build
	@FAULT_SECONDS=$${FAULT_SECONDS:-60} cargo test --release -p fairlead-gateway --test faults -- --nocapture $(ARGS)

## What one workspace at fifty times its share costs the others, in time (`make test`: in requests); and 100 reloads, 20 upgrades and 10 drains under 1,000 requests a second and 1,000 watches (`make test`: 10, 3, 2, 200 and 50). FAIRNESS_MOST, LIFE_RELOADS, LIFE_UPGRADES, LIFE_DRAINS, LIFE_REQUESTS, LIFE_WATCHES and LIFE_WINDOW choose others.
soak: build
	@FAIRNESS_MOST=$${FAIRNESS_MOST:-1.5} cargo test --release -p fairlead-gateway --test behaviour -- --nocapture fifty_times_its_share
	@LIFE_RELOADS=$${LIFE_RELOADS:-100} LIFE_UPGRADES=$${LIFE_UPGRADES:-20} LIFE_DRAINS=$${LIFE_DRAINS:-10} LIFE_REQUESTS=$${LIFE_REQUESTS:-1000} LIFE_WATCHES=$${LIFE_WATCHES:-1000} LIFE_WINDOW=$${LIFE_WINDOW:-5} cargo test --release -p fairlead-gateway --test faults -- --nocapture reloads_upgrades_and_drains $(ARGS)

## HTTP/2 conformance at every kind of door: every case of h2spec, a program of others. H2SPEC names it.
h2spec: build
	@if [ ! -x "$(H2SPEC)" ]; then echo "h2spec is missing: set H2SPEC to its path (github.com/summerwind/h2spec, built with go build ./cmd/h2spec)" >&2; exit 1; fi
	@H2SPEC="$(abspath $(H2SPEC))" cargo test --release -p fairlead-gateway --test hostile -- --ignored --nocapture h2spec $(ARGS)

## What tools of others say of a door's TLS: SSLYZE names sslyze, TLSFUZZER the folder of tlsfuzzer, PYTHON one that has what it needs.
tls-scan: build
	@if [ ! -x "$(SSLYZE)" ] || [ ! -d "$(TLSFUZZER)/scripts" ]; then echo "set SSLYZE to sslyze (pip install sslyze), TLSFUZZER to the folder of github.com/tlsfuzzer/tlsfuzzer, and PYTHON to one with its requirements" >&2; exit 1; fi
	@SSLYZE="$(abspath $(SSLYZE))" TLSFUZZER="$(abspath $(TLSFUZZER))" cargo test --release -p fairlead-gateway --test hostile -- --ignored --nocapture --test-threads=1 scans $(ARGS)

## Certificates from pebble, an authority for tests and a program of others. PEBBLE names it.
pebble: build
	@if [ ! -x "$(PEBBLE)" ]; then echo "pebble is missing: set PEBBLE to its path (github.com/letsencrypt/pebble)" >&2; exit 1; fi
	@PEBBLE="$(abspath $(PEBBLE))" cargo test --release -p fairlead-gateway --test behaviour -- --ignored --nocapture pebble $(ARGS)

## Fuzz whatever clients and administrators write, FUZZ_SECONDS (300) per target, FUZZ_TARGET for one. What fails is kept in gateway/fuzz/corpus and read by `make test`.
fuzz:
	@gateway/fuzz/run.sh

## Two gateways on one machine, one behind a CDN and one inside, as in deploy/patterns/comer: who can do what at which door, shown with kubectl.
demo-comer: build
	@deploy/tools.sh kubectl
	@$(BIN)/demo-comer

## Draw the gateway's admin page in headless Chromium before a running installation: target/dashboards/admin-*.png, light and dark.
admin-page: build
	@deploy/tools.sh browser
	@cargo test --release -p fairlead-tests --test behaviour -- admin::an_operator_sees
	@ls target/dashboards/admin-*.png
