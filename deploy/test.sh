#!/usr/bin/env bash
# Runs all tests; arguments go to `cargo test`. Tests whose program is not available on this machine are left out: the last
# line names the programs, the reasons and the tests. In CI (CI=true) none is left out. The exit status is that of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

# Each line: a program, a tab, the reason why it is missing.
missing=$(deploy/tools.sh tests)
FAIRLEAD_TESTS_WITHOUT=$(cut -f 1 <<<"$missing" | tr '\n' ' ')
export FAIRLEAD_TESTS_WITHOUT
# Each left-out test appends a line here: the program, a tab, its own name.
record=target/tests-left-out
mkdir -p target
: >"$record"

# Tests open thousands of connections.
ulimit -n "$(ulimit -Hn)" || true
status=0
# A failure in one program does not hide those of the others.
cargo test --release --workspace --no-fail-fast "$@" || status=$?

# The API server's behaviours on the other stores. Selected by name, not by package: the features of one package alone would
# compile the dependencies again.
# Their files are in memory if there is room: on a disk the stores on redb wait a minute for syncs. They are removed here, because
# the tests leave some.
in_memory=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1 || true)
folder=$([[ "${in_memory:-0}" -gt 1000000 ]] && mktemp -d -p /dev/shm || mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
for store in redb etcd; do
    if [[ "$store" == etcd && " $FAIRLEAD_TESTS_WITHOUT" == *" etcd "* ]]; then
        printf 'etcd\tapi_server on etcd\n' >>"$record"
        continue
    fi
    echo "the API server's behaviours on $store"
    TMPDIR=$folder FAIRLEAD_TEST_STORE=$store cargo test --release --workspace --test api_server "$@" || status=$?
done

if [[ -s "$record" ]]; then
    sort -u "$record" | sed 's/^\([^\t]*\)\t/left out without \1: /'
    last=""
    while IFS=$'\t' read -r program reason; do
        # Tests are named by their module: `behaviour kubectl::objects::…` is one of `behaviour kubectl`.
        tests=$(sort -u "$record" | awk -F '\t' -v program="$program" '$1 == program { sub(/::.*/, "", $2); n[$2]++ }
            END { for (of in n) printf "%s%d tests of `%s`", (i++ ? ", " : ""), n[of], of }')
        last+="${last:+; }$program ($reason; needed by ${tests:-none of the chosen tests})"
    done <<<"$missing"
    echo "left out: $last"
fi
exit "$status"
