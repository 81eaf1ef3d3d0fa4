#!/usr/bin/env bash
# Gives the tests of shared storage a Google Cloud Storage: fake-gcs-server, built by Go from its module, into .fake-gcs-server.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly VERSION=v1.56.1
if ! command -v go >/dev/null; then
  echo "fake-gcs-server needs Go 1.24 or newer (for example: apt install golang-go); its tests are skipped, and fail in CI"
  exit 0
fi
if [ ! -x .fake-gcs-server/fake-gcs-server ]; then
  tests/support/own_directory.sh .fake-gcs-server
  GOBIN="$PWD/.fake-gcs-server" nice -n 10 go install "github.com/fsouza/fake-gcs-server@$VERSION"
fi
echo "fake-gcs-server: $VERSION"
