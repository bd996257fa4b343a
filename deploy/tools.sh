#!/usr/bin/env bash
# Installs what is needed besides Rust, if it is missing. Without words: a C compiler and cmake, for aws-lc and zlib.
# `prometheus`: Prometheus and promtool, for tests; unpacked below target/tools, since to install the package would start a
# service on this machine. `browser`: Chromium, its driver and a font, for the test of the admin page. `kubectl`: one that is
# new enough, for tests. `drawing`: rsvg-convert and a font, for `make demo-dashboards`.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root=()
[[ "$(id -u)" == 0 ]] || as_root=(sudo)

install() {
    (($#)) || return 0
    echo "installing $*"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@"
}

prometheus() {
    local bin=target/tools/usr/bin
    { type -P prometheus && type -P promtool; } >/dev/null && return
    [[ -x $bin/prometheus && -x $bin/promtool ]] && return
    echo "unpacking prometheus into target/tools"
    mkdir -p target/tools
    local folder
    folder=$(mktemp -d)
    # Where no list of packages is there yet, one is fetched.
    (cd "$folder" && apt-get download -qq prometheus) 2>/dev/null ||
        { "${as_root[@]}" apt-get update -qq && (cd "$folder" && apt-get download -qq prometheus); } ||
        { echo "prometheus cannot be fetched, which the tests need: put prometheus and promtool on the PATH" >&2; exit 1; }
    dpkg-deb -x "$folder"/prometheus_*.deb target/tools
    rm -r "$folder"
    "$bin/promtool" --version | head -n 1
}

# Debian has a kubectl that is new enough since version 13.
kubectl() {
    type -P kubectl >/dev/null && return
    local package=kubernetes-client offered
    [[ -n "$(apt-cache policy "$package" 2>/dev/null)" ]] || "${as_root[@]}" apt-get update -qq
    offered=$(apt-cache policy "$package" | sed -n 's/^ *Candidate: //p')
    dpkg --compare-versions "${offered:-0}" ge 1.29 ||
        { echo "kubectl 1.29 or later is missing, which the tests need: put it on the PATH (this Debian offers ${offered:-none})" >&2; exit 1; }
    install "$package"
}

case "${1:-build}" in
build)
    missing=()
    command -v cc >/dev/null || missing+=(build-essential)
    command -v cmake >/dev/null || missing+=(cmake)
    install ${missing[@]+"${missing[@]}"}
    ;;
prometheus) prometheus ;;
kubectl) kubectl ;;
browser)
    missing=()
    command -v chromium >/dev/null || missing+=(chromium fonts-liberation)
    command -v chromedriver >/dev/null || missing+=(chromium-driver)
    install ${missing[@]+"${missing[@]}"}
    ;;
drawing)
    command -v rsvg-convert >/dev/null || install librsvg2-bin fonts-dejavu-core
    ;;
*)
    echo "unknown: $1" >&2
    exit 2
    ;;
esac
