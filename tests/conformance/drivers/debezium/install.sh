#!/usr/bin/env bash
# Kafka Connect with Debezium's connector for PostgreSQL, from Maven Central into .conformance/debezium/lib.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

maven_jars
