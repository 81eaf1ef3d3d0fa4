#!/usr/bin/env bash
# Builds the driver for Apache Kafka's Java client into .conformance/java/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

maven_classes
