#!/usr/bin/env bash
# Builds the driver of franz-go's schema registry client into .conformance/registry-go/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

go_driver
