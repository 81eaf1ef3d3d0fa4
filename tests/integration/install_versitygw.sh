#!/usr/bin/env bash
# Gives make long a third S3 server: versitygw, built by Go from its module, into .versitygw.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly VERSION=v1.8.0
if ! command -v go >/dev/null; then
  echo "versitygw needs Go 1.23 or newer (for example: apt install golang-go); its tests are skipped, and fail in CI"
  exit 0
fi
if [ ! -x .versitygw/versitygw ]; then
  tests/support/own_directory.sh .versitygw
  GOBIN="$PWD/.versitygw" nice -n 10 go install "github.com/versity/versitygw/cmd/versitygw@$VERSION"
fi
echo "versitygw: $VERSION"
