#!/usr/bin/env bash
# Fails, and says why, if a directory of this tree is a link that leads out of it: it may belong to another tree.
# What is installed there would change that tree, or let its programs run this one.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
path="$1"
[[ $path = /* ]] || path="$root/$path"
# A link may lead to nothing yet; then what it names counts.
target="$(readlink -f "$path" 2>/dev/null || readlink "$path" || echo "$path")"
case "$target/" in
  "$root"/*) exit 0 ;;
esac
echo "$1 leads to $target, which is not in $root: nothing is installed there, because it may belong to another tree." >&2
echo "Remove the link (rm $1); the next call makes the directory anew. To use that environment on purpose: make VENV=$target" >&2
exit 1
