#!/usr/bin/env bash
# Kafka Connect with Debezium's JDBC sink, from Maven Central into .conformance/debezium-jdbc/lib.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

maven_jars
