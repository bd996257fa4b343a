#!/usr/bin/env bash
# Fuzzes with coverage as a guide, on the stable toolchain: the instrumentation is LLVM's own, and there is no unsafe
# code that a sanitizer could watch. What fails becomes part of the corpus, which `make test` reads.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${FUZZ_SECONDS:-300}
targets=${FUZZ_TARGET:-path headers mapping}
host=$(rustc -vV | sed -n 's/^host: //p')
built=../../target/fuzz

flags=(-Cpasses=sancov-module)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done
# The same versions as in what is fuzzed.
cp ../../Cargo.lock Cargo.lock
# Only what runs on the target is instrumented, not what runs while compiling.
RUSTFLAGS="${flags[*]}" cargo build --release --target "$host" --target-dir "$built"

failed=0
for target in $targets; do
    found=$built/found/$target
    mkdir -p "$found"
    if ! "$built/$host/release/$target" -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 \
        -artifact_prefix="corpus/$target/found-" "$found" "corpus/$target"; then
        echo "fuzz: $target has failed; the input is in gateway/fuzz/corpus/$target" >&2
        failed=1
    fi
done
exit "$failed"
