#!/bin/sh
# Runs this checkout, as a clone, on a fresh Debian that has python3, python3-venv and build-essential and nothing else.
# usage: bare_root.sh [--arch ARCH] [--folder DIR] [--pip-cache DIR] [STEP ...]
#   STEP        demo (make demo), test (make test), fast (the suite's part without compiling or running); demo and test
#               where none is named
#   --arch      another architecture than this machine's, such as arm64, under qemu-user-static
#   --folder    where the root stays for next time, and each architecture's plan of the demo is kept: plans of several
#               must be equal byte for byte (default: a temporary folder that is removed)
#   --pip-cache a folder in which pip keeps its downloads, in the root too
# Needs root, debootstrap, git and, for another architecture, qemu-user-static.  Packages come from where this machine's
# apt and pip get theirs.
set -eu
checkout=$(cd "$(dirname "$0")/../.." && pwd)
native=$(dpkg --print-architecture) arch=$(dpkg --print-architecture) folder="" cache="" steps=""
while [ $# -gt 0 ]; do
  case $1 in
    --arch) arch=$2; shift ;;
    --folder) folder=$2; shift ;;
    --pip-cache) cache=$2; shift ;;
    demo | test | fast) steps="$steps $1" ;;
    *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done
steps=${steps:-demo test}

fail() { echo "error: $1" >&2; exit 3; }
[ "$(id -u)" = 0 ] || fail "making a root takes root"
for program in debootstrap git unshare; do
  command -v "$program" >/dev/null || fail "$program is missing: apt-get install $program"
done

kept=$folder handler=""
[ -n "$folder" ] || folder=$(mktemp -d)
mkdir -p "$folder" && folder=$(cd "$folder" && pwd)
root=$folder/$arch
# mounts are made in a namespace of their own and end with it: only the root is removed here
clean() {
  [ -z "$handler" ] || echo -1 >"$handler"
  [ -n "$kept" ] || rm -rf "$folder"
}
trap clean EXIT
trap 'exit 130' INT TERM

if [ "$arch" != "$native" ]; then
  [ "$arch" = arm64 ] || fail "no emulator is known for $arch"
  qemu=$(command -v qemu-aarch64-static) || fail "the emulator is missing: apt-get install qemu-user-static"
  misc=/proc/sys/fs/binfmt_misc
  [ -e $misc/register ] || mount -t binfmt_misc binfmt_misc $misc || fail "this kernel cannot run foreign programs"
  if ! grep -qs "^magic 7f454c460201010000000000000000000200b7" $misc/*; then
    # ELF, 64 bits, little-endian, an executable or library (EM_AARCH64 = 183); F: the emulator works in any root
    handler=$misc/socsched-aarch64
    head='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    echo ":socsched-aarch64:M::$head:$mask:$qemu:F" >$misc/register
  fi
fi

began=$(date +%s)
took() { echo "$(($(date +%s) - began)) s: $arch: $1"; began=$(date +%s); }

if [ ! -e "$root/made" ]; then
  # shellcheck disable=SC1091
  release=$(. /etc/os-release && echo "$VERSION_CODENAME")
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(SITE)' 'Created-By: Packages' |
    awk -v release="$release" '$1 == "Debian" && $2 == release { print $3; exit }')
  [ -n "$mirror" ] || fail "apt knows no source of Debian $release: apt-get update"
  rm -rf "$root"
  debootstrap --variant=minbase --arch="$arch" --include=python3,python3-venv,build-essential "$release" "$root" \
    "$mirror" >"$folder/debootstrap.log" 2>&1 || { tail -5 "$folder/debootstrap.log" >&2; fail "debootstrap"; }
  touch "$root/made"
  took "Debian $release with python3, python3-venv and build-essential"
fi

rm -rf "$root/srv" && mkdir -p "$root/srv" "$root/root/.cache/pip"
git clone --quiet --no-hardlinks "$checkout" "$root/srv/socsched"
for file in /etc/resolv.conf /etc/hosts; do cp "$file" "$root/etc/"; done
# The way to the package index: pip's settings, proxies, and the certificates that these name.
set -- HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
for name in $(env | sed -n 's/^\(PIP_[A-Z_]*\|[A-Za-z]*_[pP][rR][oO][xX][yY]\|[A-Z_]*CA_BUNDLE\|SSL_CERT_[A-Z]*\)=.*/\1/p'); do
  value=$(printenv "$name")
  set -- "$@" "$name=$value"
  if [ -f "$value" ]; then mkdir -p "$root$(dirname "$value")" && cp -L "$value" "$root$value"; fi
done

inside() { # command, variables of its environment: run it in the clone, in the root
  command=$1
  shift
  # shellcheck disable=SC2016
  CACHE=$cache unshare --mount --pid --fork sh -c '
    root=$1 command=$2
    shift 2
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount -t tmpfs tmpfs "$root/tmp"
    if [ -n "$CACHE" ]; then mount --bind "$CACHE" "$root/root/.cache/pip"; fi
    exec chroot "$root" env -i "$@" sh -c "cd /srv/socsched && $command"' inside "$root" "$command" "$@" </dev/null
}

began=$(date +%s)
for step in $steps; do
  log=$folder/$step.$arch.log
  case $step in
    demo) command="make demo" ;;
    test) command="make test" ;;
    fast) command="make .venv/.dev && .venv/bin/python -m pytest -q -n 3 -m 'not slow' \
      tests/descriptor tests/graph tests/trace tests/planning/test_theory.py tests/test_units.py tests/test_imports.py" ;;
  esac
  code=0
  inside "$command" "$@" >"$log" 2>&1 || code=$?
  if [ "$code" != 0 ]; then
    tail -40 "$log" >&2
    took "$step ended with exit code $code"
    exit 1
  fi
  took "$step: $(grep -E '^[0-9]+ passed|wheels,' "$log" | sed 's/^ *//' | tr '\n' ';') .venv $(du -sm "$root/srv/socsched/.venv" | cut -f1) MB"
  if [ "$step" = demo ]; then cp "$root/srv/socsched/demo-out/simulated/plan.json" "$folder/plan.$arch.json"; fi
done

for plan in "$folder"/plan.*.json; do
  if [ -e "$plan" ] && [ "$plan" != "$folder/plan.$arch.json" ] && [ -e "$folder/plan.$arch.json" ]; then
    cmp "$folder/plan.$arch.json" "$plan" || exit 1
    echo "the plan of the demo equals that of $(basename "$plan" .json | cut -d. -f2) byte for byte"
  fi
done
