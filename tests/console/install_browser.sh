#!/usr/bin/env bash
# Provides Chromium for the console tests: an installed one, otherwise that of Debian or of Playwright.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then
    echo "browser: $(command -v "$name")"
    exit 0
  fi
done
if command -v apt-get >/dev/null; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  $sudo apt-get update -qq
  if $sudo apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; then
    echo "browser: $(command -v chromium)"
    exit 0
  fi
fi
exec "${VENV:-.venv}/bin/python" -m playwright install --with-deps chromium
