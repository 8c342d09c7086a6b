#!/bin/sh
# Makes the environment and installs a lock and this checkout into it: one run of pip, wheels only, with what it fetches.
# usage: install.sh PYTHON VENV LOCK SIZE [FOLDER ...]     (SIZE: what is to be downloaded, for people; FOLDER: of other
# distributions of this checkout)
set -eu
python=$1 venv=$2 lock=$3 size=$4
shift 4
# The interpreter's own pip installs, and the lock brings another: to unpack and compile one first takes seconds.
if "$python" -c "import pip, sys; sys.exit(int(pip.__version__.split('.')[0]) < 23)" 2>/dev/null; then
  bare=--without-pip pip="$python -m pip --python $venv/bin/python"
else
  bare="" pip="$venv/bin/python -m pip"
fi
pip="$pip --disable-pip-version-check --no-input"

test -x "$venv/bin/python" || "$python" -m venv $bare "$venv"
echo "installing $lock into $venv (once): about $size to download, less what pip has kept" >&2
# pip's messages go to stderr unchanged; of its progress only the wheels and their sizes are shown.
{ $pip install --no-compile --progress-bar off --only-binary :all: --require-hashes -r "$lock" && echo done; } | awk '
  /(Downloading|Using cached) .*\.whl \(/ {
    size = $(NF - 1); sub(/\(/, "", size); unit = $NF
    size += 0; mb = unit ~ /^MB/ ? size : unit ~ /^GB/ ? size * 1000 : unit ~ /^kB/ ? size / 1000 : 0
    total += mb; count++
    if (mb >= 5) { name = $(NF - 2); sub(/.*\//, "", name); sub(/-.*/, "", name); printf "  %-24s %4d MB\n", name, mb }
    fflush()
  }
  /^done$/ { good = 1 }
  END { if (count) printf "  %d wheels, %d MB\n", count, total; exit !good }' >&2
for folder in . "$@"; do $pip install --quiet --no-deps --no-build-isolation -e "$folder"; done
