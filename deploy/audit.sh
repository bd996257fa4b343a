#!/usr/bin/env bash
# Checks the dependencies with cargo-deny: licences, banned crates and sources always, advisories if their database can be
# fetched. The database is on a git host and in no package registry.
set -euo pipefail
cd "$(dirname "$0")/.."

# Without optimization, the installation takes 45 s on two cores.
command -v cargo-deny >/dev/null || CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug cargo-deny

cargo deny check licenses bans sources
if log=$(cargo deny fetch db 2>&1); then
    cargo deny check --disable-fetch advisories
else
    echo "audit: advisories are not checked, because their database cannot be fetched: ${log##*$'\n'}" >&2
fi
