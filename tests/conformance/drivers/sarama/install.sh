#!/usr/bin/env bash
# Builds the sarama driver into .conformance/sarama/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

go_driver "$here/../go-driver"
