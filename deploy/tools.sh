#!/usr/bin/env bash
# Installs what the build needs besides Rust, if it is missing: a C compiler and cmake, for aws-lc and zlib.
set -euo pipefail

missing=()
command -v cc >/dev/null || missing+=(build-essential)
command -v cmake >/dev/null || missing+=(cmake)
((${#missing[@]})) || exit 0

echo "installing ${missing[*]}"
as_root=()
[[ "$(id -u)" == 0 ]] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
