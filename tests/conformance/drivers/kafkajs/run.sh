#!/usr/bin/env bash
# run.sh BOOTSTRAP [LOGIN]: the KafkaJS driver on standard input and output; install.sh comes first.
exec node "$(dirname "$0")/../../../../.conformance/kafkajs/main.js" "$@"
