"""Name the tests that a run of pytest skipped, or count the tests of several runs.

Usage: python tools/skipped.py FILE.xml            one test, or file skipped as a whole, a line: arguments for pytest
       python tools/skipped.py --count FILE.xml ...   passed, failed and skipped; of a test in several runs the last

The files are those of `pytest --junitxml=FILE.xml`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree


def outcomes(path: str) -> Iterator[tuple[str, str]]:
    """Yield (file::test, or file where all of it was skipped; passed | failed | skipped)."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        module, name = case.get("classname", ""), case.get("name", "")
        test = f"{_file(module)}::{name}" if module else _file(name)
        kinds = {child.tag for child in case}
        skipped = any(child.get("type") != "pytest.xfail" for child in case.iter("skipped"))
        yield test, "failed" if kinds & {"failure", "error"} else "skipped" if skipped else "passed"


def _file(module: str) -> str:
    return module.replace(".", "/") + ".py"


def skipped(path: str) -> list[str]:
    """Return the tests that were skipped, each once, those of a file that is in the list itself left out."""
    found = dict.fromkeys(test for test, outcome in outcomes(path) if outcome == "skipped")
    return [test for test in found if test.partition("::")[0] not in found or "::" not in test]


def main(arguments: Sequence[str]) -> int:
    """Print the tests or the counts; return the exit status."""
    if arguments[:1] != ["--count"]:
        print(*skipped(arguments[0]), sep="\n", end="\n" if skipped(arguments[0]) else "")
        return 0
    last: dict[str, str] = {}
    for path in arguments[1:]:
        for test, outcome in outcomes(path):
            if "::" not in test:  # the file's own tests count where it was not skipped
                last = {known: old for known, old in last.items() if known.partition("::")[0] != test}
            last.pop(test.partition("::")[0], None)
            last[test] = outcome
    counts = Counter(last.values())
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
