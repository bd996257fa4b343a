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
cargo test --release --workspace "$@" || status=$?

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
