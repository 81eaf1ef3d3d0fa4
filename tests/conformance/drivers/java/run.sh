#!/usr/bin/env bash
# run.sh BOOTSTRAP [LOGIN]: the Java driver on standard input and output; install.sh comes first.
build="$(dirname "$0")/../../../../.conformance/java"
exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    -cp "$build/classes:$build/lib/*" stele.conformance.Main "$@"
