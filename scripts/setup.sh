# What quickstart and test share, to be sourced: steps that print themselves, packages, the build.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build

# run COMMAND...: prints the command, then runs it.
run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

# need PACKAGE...: installs the Debian packages that are missing.
need() {
    local missing=() package
    if ! command -v dpkg-query >/dev/null; then
        echo "this is no Debian system: make sure that you have what these packages hold: $*"
        return
    fi
    for package in "$@"; do
        if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" != installed ]; then
            missing+=("$package")
        fi
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return
    fi
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        as_root=(sudo)
    fi
    run "${as_root[@]}" apt-get update -qq
    run "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# What building takes, and what trained programs are compiled with.
build_packages=(gcc libc6-dev cmake ninja-build libjansson-dev libopenblas-serial-dev libclang-19-dev python3)

# configured FOLDER: it can be built in. A cache alone is what a configuration leaves that found something missing.
configured() {
    [ -f "$1/build.ninja" ] || [ -f "$1/Makefile" ]
}

# build_targets [TARGET...]: configures once and builds them, or everything, in build/.
build_targets() {
    if ! configured "$build"; then
        run cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release
    fi
    local targets=()
    [ $# -eq 0 ] || targets=(--target "$@")
    run cmake --build "$build" -j "$(nproc)" "${targets[@]}"
}
