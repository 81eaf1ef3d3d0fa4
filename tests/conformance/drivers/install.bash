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

# ── what several scripts do whole ──

# What Maven makes with these goals: maven VERSION-COMMAND GOAL...
maven() {
    need java "a Java 17 or newer"
    need mvn "Apache Maven 3 or newer"
    ready "$here" "$($1 2>&1)" && exit 0
    cd "$here"
    mvn --quiet --batch-mode -Dstyle.color=never "${@:2}"
    built
}

# Jars alone, into lib.
maven_jars() {
    maven "java -version" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$build/lib"
}

# Classes, and the jars that they need.
maven_classes() {
    need javac "a JDK, 17 or newer"
    maven "javac -version" compile dependency:copy-dependencies
}

# A program in Go, from this directory and others: go_driver [SOURCE...]
go_driver() {
    need go "Go 1.26 or newer (https://go.dev/dl/)"
    ready "$here" "$@" "$(go version)" && exit 0
    cd "$here"
    go build -trimpath -o "$build/driver" .
    built
}

# Scripts, and the packages that they need.
node_driver() {
    need node "Node.js 18 or newer"
    need npm "npm"
    ready "$here" "$(node --version)" && exit 0
    cp "$here"/*.js "$here"/package*.json "$build"
    cd "$build"
    npm ci --no-audit --no-fund --loglevel=error
    built
}
