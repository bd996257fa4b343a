#!/usr/bin/env bash
# Installs what the build and the tests need besides Rust, if it is missing: a C compiler and cmake, for aws-lc and zlib; a
# browser with its driver and a font, for the test of the admin page.
set -euo pipefail

missing=()
command -v cc >/dev/null || missing+=(build-essential)
command -v cmake >/dev/null || missing+=(cmake)
command -v chromium >/dev/null || missing+=(chromium fonts-liberation)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
((${#missing[@]})) || exit 0

echo "installing ${missing[*]}"
as_root=()
[[ "$(id -u)" == 0 ]] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
