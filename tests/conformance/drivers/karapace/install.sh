#!/usr/bin/env bash
# The Avro serializers of confluent-kafka into .conformance/karapace/venv. Karapace itself is not on PyPI: it is
# installed from its repository, and KARAPACE_PYTHON names the Python that has it.
set -euo pipefail
source "$(dirname "$0")/../install.bash"

if ! "${KARAPACE_PYTHON:-false}" -c 'import karapace' 2>/dev/null; then
    echo "karapace is not on PyPI: install it from its repository into a virtual environment, and name its Python" \
        "in KARAPACE_PYTHON" >&2
    exit 69
fi
need python3 "Python 3.11 or newer"
ready "$here" "$(python3 --version)" && exit 0
python3 -m venv "$build/venv"
"$build/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
built
