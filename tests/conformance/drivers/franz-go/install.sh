#!/usr/bin/env bash
# Builds the franz-go driver into .conformance/franz-go/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

go_driver "$here/../go-driver"
