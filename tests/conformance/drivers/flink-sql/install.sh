#!/usr/bin/env bash
# Flink SQL with Kafka and the format avro-confluent, from Maven Central into .conformance/flink-sql/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

need java "a Java 17 or newer"
need javac "a JDK, 17 or newer"
need mvn "Apache Maven 3 or newer"
ready "$here" "$(javac -version)" && exit 0
cd "$here"
mvn --quiet --batch-mode -Dstyle.color=never compile dependency:copy-dependencies
built
