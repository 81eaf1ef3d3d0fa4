#!/usr/bin/env bash
# Flink SQL with Kafka and the format avro-confluent, from Maven Central into .conformance/flink-sql/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

maven_classes
