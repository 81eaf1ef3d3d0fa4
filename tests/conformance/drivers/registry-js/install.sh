#!/usr/bin/env bash
# Installs KafkaJS' schema registry client and its driver into .conformance/registry-js/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

need node "Node.js 18 or newer"
need npm "npm"
ready "$here" "$(node --version)" && exit 0
cp "$here"/*.js "$here"/package*.json "$build"
cd "$build"
npm ci --no-audit --no-fund --loglevel=error
built
