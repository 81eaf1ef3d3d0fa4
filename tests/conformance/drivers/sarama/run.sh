#!/usr/bin/env bash
# run.sh BOOTSTRAP: the sarama driver on standard input and output; install.sh comes first.
exec "$(dirname "$0")/../../../../.conformance/sarama/driver" "$@"
