#!/usr/bin/env bash
# Installs KafkaJS' schema registry client and its driver into .conformance/registry-js/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

node_driver
