#!/usr/bin/env bash
# Fuzzes requests by the script of the gateway's targets.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
FUZZ_FOLDER=$folder FUZZ_TARGET=${FUZZ_TARGET:-body continuation protobuf selector webhook} exec "$folder/../../../gateway/fuzz/run.sh"
