#!/usr/bin/env bash
# Gives the tests of shared storage an Azure Blob Storage: Azurite, from npm, into .azurite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly VERSION=3.37.0
if ! command -v npm >/dev/null; then
  echo "Azurite needs Node.js with npm (for example: apt install npm); its tests are skipped, and fail in CI"
  exit 0
fi
if [ ! -x .azurite/node_modules/.bin/azurite-blob ]; then
  tests/support/own_directory.sh .azurite
  nice -n 10 npm install --silent --no-audit --no-fund --ignore-scripts --prefix .azurite "azurite@$VERSION"
fi
echo "azurite: $VERSION"
