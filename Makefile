# One profile is used for everything but releases, so that nothing is compiled twice.

BIN := target/release
# Extra arguments, for example `make up ARGS='--shards 3 --fresh'`.
ARGS ?=
# Port of the installation that `make bench` measures.
BENCH_PORT ?= 7443

.PHONY: up build test bench bench-apiserver bench-sharing bench-store bench-gateway dashboards demo-comer demo-dashboards admin-page sim lint audit hostile faults soak h2spec pebble tls-scan slow figures fuzz

## Build and run a gateway, two shards, a cache server and a development issuer; Ctrl-C stops them.
up: build
	$(BIN)/fairlead up $(ARGS)

build:
	@deploy/tools.sh
	cargo build --release --workspace --bins

## Run all tests: units, and behaviours of real processes. The last line names the tests that were left out.
test: build
	@deploy/test.sh $(ARGS)

## Measure a fresh installation (not on tmpfs, because durable writes are measured) and print the tables.
bench: build
	@BIN=$(BIN) DIR=target/bench PORT=$(BENCH_PORT) deploy/bench.sh $(ARGS)

## Measure the API server of a shipped shard beside its goals, and beside a Go kcp if KCP names its program; needs an idle machine.
## ARGS='--only get,list' selects measurements, ARGS=--full takes the amounts of the goals, ARGS=--smoke tiny ones.
bench-apiserver: build
	cargo build --profile dist -p fairlead-shard --bins
	@ulimit -n $$(ulimit -Hn) && FAIRLEAD_BIN_DIR="$(abspath target/dist)" $(BIN)/bench-apiserver --dir target/bench-apiserver $(ARGS)

## Measure shared APIs beside their goals, with a shipped gateway, cache server and two shards, and beside a Go kcp (smaller amounts)
## if KCP names its program; needs an idle machine.
## ARGS='--only bind,list' selects measurements, ARGS=--full takes the amounts of the goals, ARGS=--smoke tiny ones.
bench-sharing: build
	cargo build --profile dist -p fairlead-shard -p fairlead-gateway -p fairlead-cache --bins
	@ulimit -n $$(ulimit -Hn) && FAIRLEAD_BIN_DIR="$(abspath target/dist)" $(BIN)/bench-sharing --dir target/bench-sharing $(ARGS)

## Measure the stores on redb and etcd beside their goals; needs an idle machine and etcd.
## ARGS='--only writes,start' selects measurements, ARGS=--full takes the amounts of the goals, ARGS=--smoke tiny ones.
bench-store:
	@deploy/tools.sh
	@deploy/tools.sh etcd
	cargo build --release -p fairlead-bench --bin bench-store
	@ulimit -n $$(ulimit -Hn) && $(BIN)/bench-store --dir target/bench-store $(ARGS)

## Measure the gateway beside other proxies (CONTRIBUTING.md); needs an idle machine. ARGS=--quick for a first impression.
bench-gateway:
	@deploy/tools.sh
	cargo build --profile dist -p fairlead-gateway -p fairlead-bench --bins
	cargo build --profile dist --manifest-path tests/bench/pingora/Cargo.toml --target-dir target --locked
	@target/dist/bench-gateway $(ARGS)

## Generate the dashboards for Grafana from deploy/dashboards/source; a test fails if they are outdated.
dashboards:
	@deploy/tools.sh
	cargo run --release -p fairlead-tests --bin dashboards -- write

## Run an installation under load with Prometheus, and draw every dashboard into target/dashboards.
demo-dashboards: build
	@deploy/tools.sh prometheus
	@deploy/tools.sh drawing
	@$(BIN)/dashboards demo $(ARGS)

## Print the cost of parts of the gateway (CONTRIBUTING.md); needs an idle machine.
figures: build
	@cargo test --release -p fairlead-gateway --lib -- --ignored --nocapture --test-threads=1 $(ARGS)
	@cargo test --release -p fairlead-gateway --test behaviour -- --ignored --nocapture --test-threads=1 figures:: $(ARGS)

## Simulate the placement of a million workspaces on a hundred shards; fails below the required evenness.
sim:
	cargo run --release -p fairlead-gateway --features simulation --bin simulate-picks

## Check format and lints.
lint:
	@deploy/tools.sh
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings

## Check licences, banned crates and sources, and advisories if their database can be fetched.
audit:
	@deploy/audit.sh

## Send a million hostile requests (HOSTILE_REQUESTS, HOSTILE_SEED), then run each HTTP/2 attack for 30 s
## (FLOOD_SECONDS, FLOOD_GOODPUT, FLOOD_CUT_SECONDS, FLOOD_CLASS). `make test` sends 20,000 requests.
hostile: build
	@HOSTILE_REQUESTS=$${HOSTILE_REQUESTS:-1000000} cargo test --release -p fairlead-gateway --test hostile -- --nocapture campaign $(ARGS)
	@FLOOD_SECONDS=$${FLOOD_SECONDS:-30} FLOOD_GOODPUT=$${FLOOD_GOODPUT:-0.95} FLOOD_CUT_SECONDS=$${FLOOD_CUT_SECONDS:-1} cargo test --release -p fairlead-gateway --test hostile -- --nocapture goodput $(ARGS)

## Run slowhttptest with 4,000 connections in each mode. SLOWHTTPTEST names the program, SLOW_SECONDS is the time per mode
## (60), SLOW_MOST_MILLIS the longest wait of a well-behaved client (100).
slow: build
	@command -v "$${SLOWHTTPTEST:-slowhttptest}" >/dev/null || { echo "slowhttptest is missing: install it, or set SLOWHTTPTEST to its path" >&2; exit 1; }
	@ulimit -n 16384 && SLOW_MOST_MILLIS=$${SLOW_MOST_MILLIS:-100} cargo test --release -p fairlead-gateway --test hostile -- --ignored --nocapture slowhttptest $(ARGS)

## Inject faults: outages of FAULT_SECONDS (60; `make test`: 2) beside the gateway, of which FAULT_FILTER selects some, and
## FAULT_ROUNDS (200; `make test`: 5) kills of a shard under 32 writers, whose choices FAULT_SEED repeats,
## FAULT_ETCD_ROUNDS (40; 3) of a shard on etcd with FAULT_ETCD_MEMBERS (3; 1) members, FAULT_REPLICA_SECONDS (600; 10) of kills
## of its replicas and members beside FAULT_REPLICA_WATCHES (200; 28) watches, FAULT_LEADER_ROUNDS (50; 2) kills of the leader
## of three replicas, ROLLING_ROUNDS (3; 1) rolling upgrades of three replicas under ROLLING_RATE (500; 100) requests per second,
## or upgrades from the build in ROLLING_OLD_BIN_DIR, and FAULT_SHARING_ROUNDS (12; 4) kills of servers beside FAULT_BINDINGS
## (1,000; 40) bindings. Then runs the API server's behaviours on an etcd with FAULT_ETCD_MEMBERS members.
faults: build
	@deploy/tools.sh etcd
	@FAULT_ROUNDS=$${FAULT_ROUNDS:-200} \
		FAULT_ETCD_ROUNDS=$${FAULT_ETCD_ROUNDS:-40} FAULT_ETCD_MEMBERS=$${FAULT_ETCD_MEMBERS:-3} \
		FAULT_REPLICA_SECONDS=$${FAULT_REPLICA_SECONDS:-600} FAULT_REPLICA_WATCHES=$${FAULT_REPLICA_WATCHES:-200} \
		FAULT_LEADER_ROUNDS=$${FAULT_LEADER_ROUNDS:-50} ROLLING_RATE=$${ROLLING_RATE:-500} ROLLING_ROUNDS=$${ROLLING_ROUNDS:-3} \
		FAULT_SHARING_ROUNDS=$${FAULT_SHARING_ROUNDS:-12} FAULT_BINDINGS=$${FAULT_BINDINGS:-1000} \
		cargo test --release -p fairlead-tests --test faults -- --nocapture --test-threads=1 $(ARGS)
	@FAIRLEAD_TEST_STORE=etcd FAULT_ETCD_MEMBERS=$${FAULT_ETCD_MEMBERS:-3} cargo test --release --workspace --test api_server -- $(ARGS)
	@FAULT_SECONDS=$${FAULT_SECONDS:-60} cargo test --release -p fairlead-gateway --test faults -- --nocapture $(ARGS)

## Measure fairness in time (FAIRNESS_MOST), and reload, upgrade and drain under load (LIFE_RELOADS, LIFE_UPGRADES,
## LIFE_DRAINS, LIFE_REQUESTS, LIFE_WATCHES, LIFE_WINDOW). `make test` does so with smaller numbers.
soak: build
	@FAIRNESS_MOST=$${FAIRNESS_MOST:-1.5} cargo test --release -p fairlead-gateway --test behaviour -- --nocapture fifty_times_its_share
	@LIFE_RELOADS=$${LIFE_RELOADS:-100} LIFE_UPGRADES=$${LIFE_UPGRADES:-20} LIFE_DRAINS=$${LIFE_DRAINS:-10} LIFE_REQUESTS=$${LIFE_REQUESTS:-1000} LIFE_WATCHES=$${LIFE_WATCHES:-1000} LIFE_WINDOW=$${LIFE_WINDOW:-5} cargo test --release -p fairlead-gateway --test faults -- --nocapture reloads_upgrades_and_drains $(ARGS)

## Check HTTP/2 conformance of every kind of listener with h2spec. H2SPEC names the program.
h2spec: build
	@if [ ! -x "$(H2SPEC)" ]; then echo "h2spec is missing: set H2SPEC to its path (github.com/summerwind/h2spec, built with go build ./cmd/h2spec)" >&2; exit 1; fi
	@H2SPEC="$(abspath $(H2SPEC))" cargo test --release -p fairlead-gateway --test hostile -- --ignored --nocapture h2spec $(ARGS)

## Scan the TLS of a listener. SSLYZE names sslyze, TLSFUZZER the folder of tlsfuzzer, PYTHON a Python with its requirements.
tls-scan: build
	@if [ ! -x "$(SSLYZE)" ] || [ ! -d "$(TLSFUZZER)/scripts" ]; then echo "set SSLYZE to sslyze (pip install sslyze), TLSFUZZER to the folder of github.com/tlsfuzzer/tlsfuzzer, and PYTHON to one with its requirements" >&2; exit 1; fi
	@SSLYZE="$(abspath $(SSLYZE))" TLSFUZZER="$(abspath $(TLSFUZZER))" cargo test --release -p fairlead-gateway --test hostile -- --ignored --nocapture --test-threads=1 scans $(ARGS)

## Obtain certificates from the ACME test server pebble. PEBBLE names the program.
pebble: build
	@if [ ! -x "$(PEBBLE)" ]; then echo "pebble is missing: set PEBBLE to its path (github.com/letsencrypt/pebble)" >&2; exit 1; fi
	@PEBBLE="$(abspath $(PEBBLE))" cargo test --release -p fairlead-gateway --test behaviour -- --ignored --nocapture pebble $(ARGS)

## Fuzz input of clients and administrators, FUZZ_SECONDS (300) per target; FUZZ_TARGET selects one.
fuzz:
	@set -e; for folder in gateway shard/cel shard/schema shard/apiserver; do \
		if [ -z "$(FUZZ_TARGET)" ] || [ -f "$$folder/fuzz/fuzz_targets/$(FUZZ_TARGET).rs" ]; then $$folder/fuzz/run.sh; fi; \
	done

## Run two gateways, one behind a CDN and one internal (deploy/patterns/comer), and show the rights of each identity.
demo-comer: build
	@deploy/tools.sh kubectl
	@$(BIN)/demo-comer

## Draw the admin page in headless Chromium: target/dashboards/admin-*.png, light and dark.
admin-page: build
	@deploy/tools.sh browser
	@cargo test --release -p fairlead-tests --test behaviour -- admin::an_operator_views
	@ls target/dashboards/admin-*.png
