#!/usr/bin/env bash
# Gives the test of the alert rules its promtool, which comes with Debian's Prometheus.
set -euo pipefail

if ! command -v promtool >/dev/null; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq --no-install-recommends prometheus >/dev/null
fi
echo "promtool: $(command -v promtool)"
