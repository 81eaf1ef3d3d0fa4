#!/usr/bin/env bash
# Compiles the word count with Kafka Streams into .conformance/kafka-streams/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

need java "a Java 17 or newer"
need javac "a JDK, 17 or newer"
need mvn "Apache Maven 3 or newer"
ready "$here" "$(javac -version)" && exit 0
cd "$here"
mvn --quiet --batch-mode -Dstyle.color=never compile dependency:copy-dependencies
built
