#!/usr/bin/env bash
# Installs KafkaJS, its codecs and the driver into .conformance/kafkajs/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

node_driver
