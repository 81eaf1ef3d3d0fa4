#!/usr/bin/env bash
# Kafka Connect with its file connectors, from Maven Central into .conformance/kafka-connect/lib.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

maven_jars
