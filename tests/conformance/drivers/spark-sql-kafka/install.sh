#!/usr/bin/env bash
# PySpark and Spark's own Kafka connector, of one version, into .conformance/spark-sql-kafka/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

need java "Java 17 or 21"
need mvn "Apache Maven 3 or newer"
need python3 "Python 3.11 or newer"
ready "$here" "$(python3 --version)" && exit 0
cd "$here"
python3 -m venv "$build/venv"
"$build/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
mvn --quiet --batch-mode -Dstyle.color=never dependency:copy-dependencies -DoutputDirectory="$build/jars"
built
