#!/usr/bin/env bash
# Installs KafkaJS, its codecs and the driver into .conformance/kafkajs/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

need node "Node.js 18 or newer"
need npm "npm"
ready "$here" "$(node --version)" && exit 0
cp "$here"/*.js "$here"/package*.json "$build"
cd "$build"
npm ci --no-audit --no-fund --loglevel=error
built
