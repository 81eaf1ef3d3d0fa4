#!/usr/bin/env bash
# Provides Chromium for the console tests: its headless shell, which costs least, or else any Chromium.
set -euo pipefail

found() {
  local name
  for name in "$@"; do
    if command -v "$name" >/dev/null; then
      echo "browser: $(command -v "$name")"
      return 0
    fi
  done
  return 1
}

found chromium-headless-shell && exit 0
if command -v apt-get >/dev/null; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  $sudo apt-get update -qq
  for package in chromium-headless-shell chromium; do
    if $sudo apt-get install -y -qq --no-install-recommends "$package" fonts-dejavu-core >/dev/null; then
      found "$package" && exit 0
    fi
  done
fi
found chromium chromium-browser google-chrome && exit 0
exec "${VENV:-.venv}/bin/python" -m playwright install --with-deps chromium
