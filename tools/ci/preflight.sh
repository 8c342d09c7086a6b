#!/bin/sh
# Names what this machine lacks, and the command that installs it, before pip or a compiler fails cryptically.
# usage: preflight.sh PYTHON
set -eu
python=${1:-python3}
missing=""
packages=""

need() { # what, apt packages
  missing="$missing
  - $1"
  packages="$packages $2"
}

if ! command -v "$python" >/dev/null 2>&1; then
  need "Python >= 3.10 ('$python' is not on PATH)" "python3 python3-venv"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  echo "error: '$python' is Python $version; socsched needs 3.10 or newer" >&2
  echo "hint: name a newer one: make PYTHON=python3.12 ... (Ubuntu 20.04 and JetPack 5 ship none; use Ubuntu 22.04, JetPack 6 or newer)" >&2
  exit 3
elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  case $python in
    python3|/usr/bin/python3) need "the venv module of Python $version" "python3-venv" ;;
    *) need "the venv module of Python $version" "python$version-venv" ;;
  esac
fi

compiler=""
for candidate in ${CXX:-} g++ clang++ c++; do
  if command -v "$candidate" >/dev/null 2>&1; then compiler=$candidate; break; fi
done
[ -n "$compiler" ] || need "a C++ compiler (TVM links its kernels with it)" "build-essential"

if [ -n "$missing" ]; then
  sudo="sudo "
  if [ "$(id -u)" = 0 ]; then sudo=""; fi
  echo "error: this machine lacks:$missing" >&2
  echo "hint: ${sudo}apt-get install -y$packages" >&2
  exit 3
fi
