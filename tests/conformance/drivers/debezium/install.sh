#!/usr/bin/env bash
# Kafka Connect with Debezium's connector for PostgreSQL, from Maven Central into .conformance/debezium/lib.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

need java "a Java 17 or newer"
need mvn "Apache Maven 3 or newer"
ready "$here" "$(java -version 2>&1)" && exit 0
cd "$here"
mvn --quiet --batch-mode -Dstyle.color=never dependency:copy-dependencies -DincludeScope=runtime \
    -DoutputDirectory="$build/lib"
built
