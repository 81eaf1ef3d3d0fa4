#!/usr/bin/env bash
# MirrorMaker, from Maven Central into .conformance/mirror-maker/lib.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

maven_jars
