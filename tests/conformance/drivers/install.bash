# Sourced by the install.sh of the drivers: builds go to .conformance/<client>/ at the root of the
# repository, and are made again only when what they are made from has changed.

here="$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)"
client="$(basename "$here")"
build="$(cd "$here/../../../.." && pwd)/.conformance/$client"

# need TOOL PACKAGE: end with a word about what to install; 69 is EX_UNAVAILABLE.
need() {
    if ! command -v "$1" >/dev/null; then
        echo "$client needs $1: install $2" >&2
        exit 69
    fi
}

# ready SOURCE... VERSION: whether the build was made from these files and directories by this version of
# the tool. If not, clears it away and remembers what `built` is to note.
ready() {
    local version="${*: -1}"
    fingerprint="$({
        echo "$version"
        find "${@:1:$#-1}" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum)"
    mkdir -p "$(dirname "$build")"
    # Held until this script ends: whoever installs the same meanwhile finds it done.
    exec 9>"$build.lock"
    if command -v flock >/dev/null; then flock 9; fi
    [ "$(cat "$build/fingerprint" 2>/dev/null)" = "$fingerprint" ] && return 0
    rm -rf "$build"
    mkdir -p "$build"
    return 1
}

# Noted last, so that a build that was cut short is made again.
built() {
    echo "$fingerprint" >"$build/fingerprint"
}
