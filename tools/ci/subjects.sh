#!/bin/sh
# Prints the tests whose subject changed since a commit: for .ci/run, which runs their long ones.
# usage: subjects.sh COMMIT
set -eu
cd "$(dirname "$0")/../.."
git diff --name-only "$1" -- | while IFS= read -r path; do
  case $path in
    socsched/literature/sharing/*) echo tests/sharing ;;
    socsched/literature/policies/*) echo tests/sim/test_published_policies.py ;;
    socsched/literature/studies/* | socsched/literature/cli/*) echo tests/study ;;
    socsched/literature/*) echo tests/planning/planners; echo tests/planning/test_mapping_search.py ;;
    socsched/*/*) echo "tests/$(echo "$path" | cut -d/ -f2)" ;;
    tests/*/test_*.py | tests/test_*.py) echo "$path" ;;
    platforms/*) echo tests/planning; echo tests/oracle ;;
    pipelines/*) echo tests/planning; echo tests/models ;;
    README.md | docs/*.md) echo tests/test_docs.py; echo tests/cli/test_readme.py ;;
  esac
done | sort -u | while IFS= read -r test; do
  if [ -e "$test" ]; then echo "$test"; fi
done
