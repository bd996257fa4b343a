#!/usr/bin/env bash
# Measures a fresh installation. BIN: where the programs are, DIR: where it lives, PORT: the gateway's.
set -euo pipefail

if [[ "$(stat -f -c %T "$(dirname "$DIR")")" == tmpfs ]]; then
    echo "bench: $DIR is on tmpfs, where a durable write costs nothing" >&2
    exit 1
fi

"$BIN/bench" fsync --directory "$(dirname "$DIR")"

up() {
    "$BIN/fairlead" up --dir "$DIR" --port "$PORT" --detach "$@" | grep '^Fairlead is up'
}
trap '"$BIN/fairlead" down --dir "$DIR" >/dev/null' EXIT

echo "fresh:"
up --fresh
"$BIN/fairlead" down --dir "$DIR" >/dev/null
echo "again:"
up

# The table of `status` has a process per line: name, state, pid.
mapfile -t watched < <("$BIN/fairlead" status --dir "$DIR" | awk '$2 == "ready" { print "--pid"; print $1 "=" $3 }')
measure() {
    "$BIN/bench" --kubeconfig "$DIR/admin.kubeconfig" "${watched[@]}" "$@"
}

measure memory
if (($# > 0)); then
    measure "$@"
    exit
fi
measure get --path /api/v1/namespaces/default --name "GET of a namespace"
measure watches
measure delivery
measure workspaces
measure memory
