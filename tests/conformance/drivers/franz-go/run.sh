#!/usr/bin/env bash
# run.sh BOOTSTRAP [LOGIN]: the franz-go driver on standard input and output; install.sh comes first.
exec "$(dirname "$0")/../../../../.conformance/franz-go/driver" "$@"
