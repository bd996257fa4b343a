#!/usr/bin/env bash
# Fuzzes expressions by the script of the gateway's targets.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
FUZZ_FOLDER=$folder FUZZ_TARGET=${FUZZ_TARGET:-expression} exec "$folder/../../../gateway/fuzz/run.sh"
