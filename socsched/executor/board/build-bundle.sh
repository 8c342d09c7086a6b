#!/bin/sh
# Builds on the board what only its own tools can make: engines of TensorRT, and the adapter that runs them.
#   build.sh [--again]    --again: also what was built before
# Needs trtexec (libnvinfer-bin, in /usr/src/tensorrt/bin), g++ and TensorRT's headers (libnvinfer-dev) of this JetPack.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export TIMING_CACHE="$here/@FOLDER@/timing.cache"
case "${1:-}" in '' | --again) ;; --help | -h) sed -n '2,4s/^# //p' "$0"; exit 0 ;; *) sed -n '2,4s/^# //p' "$0" >&2; exit 2 ;; esac
build() { # folder, artefact
    if [ -z "${again:-}" ] && [ -s "$here/$1/$2" ]; then return; fi
    echo "building $1/$2"
    log="$here/$1/build.log"
    if [ -f "$here/$1/build.sh" ]; then set -- "$1" "$2" sh "$here/$1/build.sh"; else set -- "$1" "$2" python3 "$here/$1/build.py"; fi
    folder=$1 artefact=$2
    shift 2
    rm -f "$here/$folder/$artefact"
    if ! "$@" >"$log" 2>&1 || [ ! -s "$here/$folder/$artefact" ]; then
        tail -n 5 "$log" >&2
        echo "error: $folder/$artefact was not built; the log is $log" >&2
        exit 3
    fi
}
[ "${1:-}" != --again ] || again=yes
@ENGINES@
if [ -n "@ADAPTER@" ] && { [ -n "${again:-}" ] || [ ! -s "$here/@ADAPTER@" ]; }; then
    echo "building @ADAPTER@"
    command -v "${CXX:-g++}" >/dev/null || { echo "error: no C++ compiler: sudo apt-get install -y g++" >&2; exit 3; }
    mkdir -p "$here/@ADAPTERS@"
    sh "$here/@FOLDER@/source/build.sh" "$here/@FOLDER@/source" "$here/@ADAPTERS@" || {
        echo "error: the adapter was not built: sudo apt-get install -y libnvinfer-dev" >&2
        exit 3
    }
fi
echo "everything is built: sh $here/start.sh --selftest"
