#!/usr/bin/env bash
# Builds the reader of __consumer_offsets into .conformance/offsets-monitor/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

go_driver
