#!/bin/sh
# Fills a folder with links to the programs that README asks for, and no others: those of the packages that every Debian
# has, of python3, python3-venv and build-essential, and of what these depend on.  As PATH it shows what needs more.
# usage: bare_path.sh FOLDER [PYTHON]     (PYTHON: the interpreter that python3 is to be)
set -eu
folder=$1 python=${2:-}
mkdir -p "$folder"
every=$(dpkg-query -W -f '${Package} ${Essential} ${Priority}\n' | awk '$2 == "yes" || $3 == "required" { print $1 }')
# shellcheck disable=SC2086
apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
  --no-enhances $every python3 python3-venv build-essential 2>/dev/null |
  grep '^[a-z0-9]' | sort -u | xargs dpkg-query -L 2>/dev/null |
  grep -E '^(/usr)?/s?bin/[^/]+$' | while read -r program; do
    if [ -x "$program" ] && [ ! -d "$program" ]; then ln -sf "$program" "$folder/"; fi
  done
# of no package: what update-alternatives links
for program in awk cc c++; do
  if found=$(command -v "$program"); then ln -sf "$found" "$folder/"; fi
done
if [ -n "$python" ]; then ln -sf "$python" "$folder/python3"; fi
