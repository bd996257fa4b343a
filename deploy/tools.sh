#!/usr/bin/env bash
# Finds and installs the programs that Fairlead needs besides Rust. One argument:
#   build        a C compiler, cmake for zlib-ng, and protoc for the store on etcd (the default)
#   tests        Prometheus, kubectl, etcd, Chromium and Python's client for `make test`. Prints one line for each that is not available:
#                its name, a tab and the reason. With CI=true, a missing one is an error.
#   prometheus, kubectl, etcd, python, browser, drawing
#                one set of programs; a missing one is an error
# apt installs packages, as root or by sudo. Prometheus, kubectl and etcd are unpacked into target/tools instead, because this
# needs no rights and starts no service. Python's client is a package of pip, in an environment of its own there. Without apt or sudo, one line names the packages and the command to install them.
set -euo pipefail
cd "$(dirname "$0")/.."

unpacked=target/tools/usr/bin
kubectl_minimum=1.29
python_kubernetes=kubernetes==37.0.2

# --- Entry point -----------------------------------------------------------------------------------------------------

main() {
    case "${1:-build}" in
    build) require cc cmake protoc && require_cargo ;;
    tests) tests ;;
    prometheus | kubectl | etcd) require_fetched "$1" ;;
    python) require_python ;;
    browser) require chromium chromedriver ;;
    drawing) require rsvg-convert ;;
    *)
        echo "unknown set of programs: $1" >&2
        exit 2
        ;;
    esac
}

# Everything that tests need. Standard output is the list of what is missing; messages go to standard error.
tests() {
    local missing=() reason tool
    for tool in prometheus kubectl etcd; do
        reason=$(fetch "$tool") || missing+=("$tool"$'\t'"${reason#*; }")
    done
    reason=$(install_for chromium chromedriver) || missing+=(chromium$'\t'"${reason#*; }")
    reason=$(python_client) || missing+=(python-kubernetes$'\t'"${reason#*; }")
    ((${#missing[@]})) || return 0
    if [[ -n "${CI:-}" ]]; then
        printf 'missing: %s\n' "${missing[@]/$'\t'/; }" >&2
        exit 1
    fi
    printf '%s\n' "${missing[@]}"
}

require() {
    local reason
    reason=$(install_for "$@") || { echo "$reason" >&2 && exit 1; }
}

require_cargo() {
    type -P cargo >/dev/null ||
        { echo "missing: cargo; install Rust with rustup (https://rustup.rs)" >&2 && exit 1; }
}

require_fetched() {
    local reason
    reason=$(fetch "$1") || { echo "$reason" >&2 && exit 1; }
}

require_python() {
    local reason
    reason=$(python_client) || { echo "$reason" >&2 && exit 1; }
}

# --- Programs from packages ------------------------------------------------------------------------------------------

# Installs the packages of those programs that are missing. On failure, prints the reason in one line.
install_for() {
    local programs=() packages=() program
    for program in "$@"; do
        is_installed "$program" && continue
        programs+=("$program")
        # shellcheck disable=SC2207
        packages+=($(package_of "$program"))
    done
    ((${#programs[@]})) || return 0
    if ! type -P apt-get >/dev/null; then
        echo "missing: ${programs[*]}; $(advice "${packages[@]}")"
        return 1
    fi
    local package
    for package in "${packages[@]}"; do
        [[ "$(offered "$package")" != "" ]] ||
            { echo "missing: ${programs[*]}; this system has no package $package: put ${programs[*]} on the PATH" && return 1; }
    done
    local as_root
    as_root=$(root_command) || { echo "missing: ${programs[*]}; $(advice "${packages[@]}")" && return 1; }
    echo "installing ${packages[*]}" >&2
    # shellcheck disable=SC2086
    { $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >&2 ||
        { echo "missing: ${programs[*]}; apt-get has failed; $(advice "${packages[@]}")" && return 1; }
}

# Whether a program is on the PATH; protoc also needs the definitions that it comes with, which Debian packs separately.
is_installed() {
    type -P "$1" >/dev/null || return 1
    [[ "$1" == protoc ]] || return 0
    local folder status=0
    folder=$(mktemp -d)
    echo 'syntax = "proto3"; import "google/protobuf/struct.proto";' >"$folder/test.proto"
    protoc -I "$folder" --descriptor_set_out="$folder/out" test.proto 2>/dev/null || status=1
    rm -r "$folder"
    return "$status"
}

# The packages that contain a program, for the package manager of this system.
package_of() {
    case "$(package_manager) $1" in
    "apt cc") echo build-essential ;;
    "apt chromium") echo chromium fonts-liberation ;;
    "apt chromedriver") echo chromium-driver ;;
    "apt etcd") echo etcd-server ;;
    "apt protoc") echo protobuf-compiler libprotobuf-dev ;;
    "dnf protoc") echo protobuf-compiler protobuf-devel ;;
    "brew protoc") echo protobuf ;;
    "apt rsvg-convert") echo librsvg2-bin fonts-dejavu-core ;;
    "apt kubectl") echo kubernetes-client ;;
    "dnf chromium") echo chromium liberation-sans-fonts ;;
    "dnf rsvg-convert") echo librsvg2-tools dejavu-sans-fonts ;;
    "dnf kubectl") echo kubernetes-client ;;
    "dnf prometheus") echo golang-github-prometheus ;;
    "brew rsvg-convert") echo librsvg ;;
    "brew kubectl") echo kubernetes-cli ;;
    *" cc") echo gcc ;;
    *) echo "$1" ;;
    esac
}

package_manager() {
    local program
    for program in apt-get dnf brew; do
        type -P "$program" >/dev/null && echo "${program%-get}" && return
    done
    echo none
}

# The command that installs packages, for the message to the user.
advice() {
    case "$(package_manager)" in
    apt) echo "install with: sudo apt-get install -y --no-install-recommends $*" ;;
    dnf) echo "install with: sudo dnf install -y $*" ;;
    brew) echo "install with: brew install $*" ;;
    *) echo "install the packages that contain: $*" ;;
    esac
}

# Prefix of commands that need root. Fails without sudo, without the right to use it, or if it needs a password and there is
# no terminal.
root_command() {
    [[ "$(id -u)" != 0 ]] || return 0
    type -P sudo >/dev/null || return 1
    sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; } || return 1
    echo sudo
}

# The version of a package that apt offers; nothing if there is none. Fetches the list of packages where there is none yet.
offered() {
    local as_root
    if [[ -z "$(apt-cache policy base-files 2>/dev/null | grep -E '^ +[0-9]+ [a-z]+:')" ]]; then
        # shellcheck disable=SC2086
        as_root=$(root_command) && $as_root apt-get update -qq >&2
    fi
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -v '^(none)$' || true
}

# --- Programs that are unpacked from a package -----------------------------------------------------------------------

# Unpacks a program into target/tools unless it is there or on the PATH. On failure, prints the reason in one line.
fetch() {
    local programs=("$1") program missing=() package version folder
    [[ "$1" != prometheus ]] || programs+=(promtool)
    for program in "${programs[@]}"; do
        type -P "$program" >/dev/null || [[ -x "$unpacked/$program" ]] || missing+=("$program")
    done
    ((${#missing[@]})) || return 0
    package=$(package_of "$1")
    if ! type -P apt-get >/dev/null; then
        echo "missing: ${missing[*]}; $(advice "$package")"
        return 1
    fi
    version=$(offered "$package")
    if [[ "$1" == kubectl ]] && ! dpkg --compare-versions "${version:-0}" ge "$kubectl_minimum"; then
        echo "missing: kubectl; $kubectl_minimum or later is needed, this system offers ${version:-none}: put one on the PATH"
        return 1
    fi
    echo "unpacking $package $version into target/tools" >&2
    mkdir -p target/tools
    folder=$(mktemp -d)
    # apt-get's own sandbox user cannot write into the folder, and warns about it.
    if ! { (cd "$folder" && apt-get download -qq "$package" 2>/dev/null) &&
        dpkg-deb -x "$folder"/*.deb target/tools; }; then
        rm -r "$folder"
        echo "missing: ${missing[*]}; the package $package cannot be fetched: put ${missing[*]} on the PATH"
        return 1
    fi
    rm -r "$folder"
}

# --- Python's client -------------------------------------------------------------------------------------------------

# Makes an environment in target/tools with the package kubernetes, unless there is one. On failure, prints the reason in one
# line.
python_client() {
    local folder=target/tools/python reason
    if [[ -x "$folder/bin/python" ]] && "$folder/bin/python" -c 'import kubernetes' 2>/dev/null; then return 0; fi
    # Debian has the module that makes environments with pip in a package of its own, which no program is named after.
    if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
        reason=$(install_for python3-venv) || { echo "$reason" && return 1; }
    fi
    echo "installing Python's package kubernetes into target/tools" >&2
    rm -rf "$folder"
    if ! { python3 -m venv "$folder" &&
        timeout 300 "$folder/bin/pip" install --quiet --disable-pip-version-check "$python_kubernetes"; } >&2; then
        rm -rf "$folder"
        echo "missing: python-kubernetes; pip cannot install $python_kubernetes"
        return 1
    fi
}

main "$@"
