#!/usr/bin/env bash
# Builds the reader of __consumer_offsets into .conformance/offsets-monitor/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

need go "Go 1.26 or newer (https://go.dev/dl/)"
ready "$here" "$(go version)" && exit 0
cd "$here"
go build -trimpath -o "$build/driver" .
built
