#!/bin/sh
# Prints the tests whose subject changed since a commit: for .ci/run, which runs their long ones.
# usage: subjects.sh COMMIT
set -eu
cd "$(dirname "$0")/../.."
git diff --name-only "$1" -- | while IFS= read -r path; do
  case $path in
    socsched_literature/mapping/*) echo tests/literature/mapping; echo tests/literature/planners ;;
    socsched_literature/*/*) echo "tests/literature/$(echo "$path" | cut -d/ -f2)" ;;
    socsched/planning/* | socsched/schedulability/*) echo tests/planning; echo tests/literature/mapping; echo tests/literature/planners ;;
    socsched/sim/*) echo tests/sim; echo tests/literature/policies ;;
    socsched/*/*) echo "tests/$(echo "$path" | cut -d/ -f2)" ;;
    tests/*/test_*.py | tests/test_*.py) echo "$path" ;;
    platforms/*) echo tests/planning; echo tests/literature/planners; echo tests/oracle ;;
    pipelines/*) echo tests/planning; echo tests/literature/planners; echo tests/models ;;
    README.md | docs/*.md) echo tests/test_docs.py; echo tests/cli/test_readme.py ;;
  esac
done | sort -u | while IFS= read -r test; do
  if [ -e "$test" ]; then echo "$test"; fi
done
