#!/usr/bin/env bash
# Measures a fresh installation and prints one table.
# BIN: folder of the programs. DIR: directory of the installation. PORT: port of the gateway.
# Arguments, if any, are the one `bench` command to run.
set -euo pipefail

if [[ "$(stat -f -c %T "$(dirname "$DIR")")" == tmpfs ]]; then
    echo "bench: $DIR is on tmpfs, where a durable write costs nothing" >&2
    exit 1
fi
ulimit -n "$(ulimit -Hn)" || true

row() {
    printf '| %s | %s | %s |\n' "$1" "$2" "$3"
}
up() {
    "$BIN/fairlead" up --dir "$DIR" --port "$PORT" --detach "$@" | sed -n 's/^Fairlead is up.* after \(.*\)\.$/\1/p'
}
down() {
    "$BIN/fairlead" down --dir "$DIR" >/dev/null
}
trap down EXIT

# Merges all tables: the heading is printed once.
exec > >(awk 'NR <= 2 || !/^\| *quantity|^\|-/ { print; fflush() }')

"$BIN/bench" fsync --directory "$(dirname "$DIR")"
row "up to all ready, fresh" "$(up --fresh)" "2 shards, gateway, cache, issuer"
down
row "up to all ready, again" "$(up)" "2 shards, gateway, cache, issuer"

# `status` prints one process per line: name, state, process id.
observe() {
    mapfile -t watched < <("$BIN/fairlead" status --dir "$DIR" | awk '$2 == "ready" { print "--pid"; print $1 "=" $3 }')
}
# Processes do not return all freed memory to the system, so memory is measured in new processes.
again() {
    down
    up >/dev/null
    observe
}
observe
measure() {
    "$BIN/bench" --kubeconfig "$DIR/admin.kubeconfig" "${watched[@]}" "$@" 2>/dev/null
}
direct() {
    "$BIN/bench" --kubeconfig "$DIR/kubeconfigs/root-shard.kubeconfig" --context shard-base "${watched[@]}" "$@" 2>/dev/null
}

if (($# > 0)); then
    measure "$@"
    exit
fi
object=/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt
measure memory
measure workspaces --count 2000 --name-prefix first
measure --context base get --path "/clusters/root:first-0$object" --name "GET through the gateway"
direct get --path "/clusters/root/api/v1/namespaces/default" --name "GET from the shard"
again
measure --context base watches --path "/clusters/root:first-0/api/v1/configmaps" --count 5000 --per-connection 100
again
measure --context base watches --path "/clusters/root:first-1/api/v1/configmaps" --count 1000 --per-connection 1
again
measure delivery --rate 200 --watches 1000 --receivers 10
measure workspaces --count "${WORKSPACES:-18000}" --name-prefix second
measure memory
