#!/usr/bin/env bash
# Compiles the word count with Kafka Streams into .conformance/kafka-streams/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

maven_classes
