#!/usr/bin/env bash
# Builds the version guesser into .conformance/kversion/.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

go_driver
