#!/bin/sh
# Installs socsched the three ways people do, in clean environments, and checks that it finds its files there.
# usage: install_test.sh [PYTHON ...]     (default: python3; name several to try each, say python3.10 python3.13)
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- python3

expect() { # text, file
  grep -q "$1" "$2" || { echo "FAIL: '$1' is missing in:" >&2; cat "$2" >&2; exit 1; }
}

check() { # how, environment
  mkdir -p "$work/empty"
  cd "$work/empty" # a checkout's own folders must not be found by accident
  "$2/bin/socsched" platforms list --json >"$work/platforms"
  "$2/bin/socsched" pipelines list --json >"$work/pipelines"
  "$2/bin/socsched" platforms rules jetson-agx-orin-64gb --json >"$work/rules"
  "$2/bin/socsched" doctor >"$work/doctor"
  expect jetson-agx-orin-64gb "$work/platforms"
  expect pointpillars "$work/pipelines"
  expect nvdla-v2 "$work/rules"
  "$2/bin/python" -m socsched --version
  echo "ok: $1"
}

for python; do
  name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
  pip="$work/$name/bin/python -m pip --quiet --disable-pip-version-check"
  "$python" -m venv "$work/$name"
  $pip install --require-hashes -r "$root/requirements/run.lock"

  # A copy without the ignored: what a release would be made from.
  rm -rf "$work/source"
  mkdir "$work/source"
  (cd "$root" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/source")
  echo "not to be shipped" >"$work/source/platforms/private.secret"
  printf '*.secret\n' >>"$work/source/.gitignore"

  $pip wheel --no-deps --no-build-isolation -w "$work/dist-$name" "$work/source"
  $pip install --no-deps "$work/dist-$name"/socsched-*.whl
  "$work/$name/bin/python" -m zipfile -l "$work/dist-$name"/socsched-*.whl >"$work/listing"
  expect socsched/platforms/jetson-agx-orin-64gb.yaml "$work/listing"
  expect socsched/reporting/assets/report.css "$work/listing"
  if grep -q secret "$work/listing"; then echo "FAIL: an ignored file is in the wheel" >&2; exit 1; fi
  check "$name, wheel" "$work/$name"

  $pip uninstall -y socsched
  $pip install --no-deps --no-build-isolation "$work/source"
  check "$name, pip install ." "$work/$name"

  $pip uninstall -y socsched
  $pip install --no-deps --no-build-isolation -e "$work/source"
  check "$name, pip install -e ." "$work/$name"
done
