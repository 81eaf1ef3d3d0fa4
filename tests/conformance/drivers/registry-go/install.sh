#!/usr/bin/env bash
# Builds the driver of franz-go's schema registry client into .conformance/registry-go/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

need go "Go 1.26 or newer (https://go.dev/dl/)"
ready "$here" "$(go version)" && exit 0
cd "$here"
go build -trimpath -o "$build/driver" .
built
