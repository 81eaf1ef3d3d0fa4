#!/usr/bin/env bash
# run.sh BOOTSTRAP [LOGIN]: the sarama driver on standard input and output; install.sh comes first.
exec "$(dirname "$0")/../../../../.conformance/sarama/driver" "$@"
