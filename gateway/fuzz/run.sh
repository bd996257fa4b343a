#!/usr/bin/env bash
# Coverage-guided fuzzing on the stable toolchain, with LLVM's own instrumentation. Sanitizers are not needed, because there
# is no unsafe code. A failing input is added to the corpus, which `make test` reads. FUZZ_FOLDER names the folder of the
# targets, if it is another one.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "${FUZZ_FOLDER:-$(dirname "$0")}"

seconds=${FUZZ_SECONDS:-300}
targets=${FUZZ_TARGET:-path headers mapping http1}
host=$(rustc -vV | sed -n 's/^host: //p')
built=$root/target/fuzz

flags=(-Cpasses=sancov-module)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done
# The fuzz targets use the dependency versions of the workspace.
cp "$root/Cargo.lock" Cargo.lock
# `--target` restricts the instrumentation to the fuzz targets: build scripts and macros are not instrumented.
RUSTFLAGS="${flags[*]}" cargo build --release --target "$host" --target-dir "$built"

failed=0
for target in $targets; do
    found=$built/found/$target
    mkdir -p "$found"
    if ! "$built/$host/release/$target" -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 \
        -artifact_prefix="corpus/$target/found-" "$found" "corpus/$target"; then
        echo "fuzz: $target has failed; the input is in ${PWD#"$root/"}/corpus/$target" >&2
        failed=1
    fi
done
exit "$failed"
