#!/usr/bin/env bash
# Fuzzes patches, configurations, schemas and field paths by the script of the gateway's targets.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
FUZZ_FOLDER=$folder FUZZ_TARGET=${FUZZ_TARGET:-apply fields patch structural} exec "$folder/../../../gateway/fuzz/run.sh"
