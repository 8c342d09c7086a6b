"""Malformed descriptors: none causes a traceback, every answer names the faulty line, and none takes a second.

`malformed_*.txt` hold what people might write, each as a change of a valid file (`descriptor_samples`) and the finding
it must lead to: a name, lines of that file as they stand ("  "), lines removed ("- ") and added ("+ "), and after "! "
how the finding begins, without its place where a parser may notice later.  The rest is generated: a seeded mutator
breaks known lines of every shipped file.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from descriptor_samples import LOADERS, SAMPLES, replaced

from socsched.cli import root
from socsched.errors import DescriptorError

HERE, CHECKOUT = Path(__file__).parent, Path(__file__).parents[2]
SHIPPED = sorted([*CHECKOUT.glob("platforms/*.yaml"), *CHECKOUT.glob("pipelines/*.yaml")])
A_FILE = 20  # mutations of a shipped file


def corpus() -> Iterator[tuple[str, str, str, str]]:
    """Yield (kind, name, text, finding) of every malformed file."""
    for kind, sample in SAMPLES.items():
        for case in (HERE / f"malformed_{kind}s.txt").read_text().strip().split("\n\n"):
            name, *lines = case.split("\n")
            old, new = ("\n".join(line[2:] for line in lines if line[:2] in ("  ", sign)) for sign in ("- ", "+ "))
            (finding,) = (line[2:] for line in lines if line[:2] == "! ")
            yield kind, name, replaced(sample, old, new), finding


CORPUS = list(corpus())


def findings(kind: str, path: Path) -> list[tuple[int, int, str]]:
    """Load a broken file in under a second; return (line, column, message) of every finding."""
    started = time.thread_time()
    with pytest.raises(DescriptorError) as caught:
        LOADERS[kind](path)
    assert time.thread_time() - started < 10, "an answer has to come"
    assert all(f.file == str(path) and f.line >= 1 and f.column >= 1 for f in caught.value.findings)
    return [(f.line, f.column, f"{f.field}: {f.expected}") for f in caught.value.findings]


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 100
    assert len(CORPUS) + A_FILE * len(SHIPPED) >= 200


@pytest.mark.parametrize(("kind", "text", "finding"), [
    pytest.param(kind, text, finding, id=f"{kind}s/{name}") for kind, name, text, finding in CORPUS
])  # fmt: skip
def test_hand_made(kind: str, text: str, finding: str, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    found = [start for line, column, said in findings(kind, path) for start in (f"{line}:{column}: {said}", said)]
    assert any(start.startswith(finding) for start in found), found


@pytest.mark.parametrize(("kind", "text"), [
    pytest.param(kind, text, id=name) for kind, name, text, _ in CORPUS[:: max(len(CORPUS) // 24, 1)]
])  # fmt: skip
def test_the_command_line_says_so(kind: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    assert root.run([f"{kind}s", "check", str(path)]) == 2
    said = capsys.readouterr()
    assert re.search(rf"{re.escape(str(path))}:\d+:\d+: ", said.err) and "Traceback" not in said.err


KEYS = (
    *("kind", "title", "units", "unit", "shares", "clock", "bandwidth", "precisions", "layout", "preemption", "cost"),
    *("launch", "submit", "handoff", "idle", "operators", "value", "id", "base", "dram", "engines", "period"),
    *("deadline", "path", "after", "model", "time", "platform", "mode", "engine", "precision", "size", "peak"),
)
QUANTITY = re.compile(
    r"\b(value|clock|voltage|period|deadline|bytes_per_frame|output_bytes): (\d[\d.]*) ([A-Za-z/]+)(?=[,}\s]|$)"
)


OPAQUE = re.compile(r"\b(target|params|host):")  # what a compiler or a model reads; any key may stand there


MODELLED = re.compile(r"\bparameters:")  # of a contention model, which checks the units when it is built


def _inside(lines: list[str], index: int, opening: re.Pattern[str]) -> bool:
    """Return whether a line continues a mapping that a line like this opens."""
    indent = len(lines[index]) - len(lines[index].lstrip())
    for line in reversed(lines[:index]):
        depth = len(line) - len(line.lstrip())
        if line.strip() and depth < indent:
            if opening.search(line):
                return True
            indent = depth
    return False


def broken(lines: list[str], index: int, dice: random.Random) -> tuple[str, int] | None:
    """Break line `index`; return the new text of it and the line a finding must name, None where nothing fits."""
    line = lines[index]
    if line.lstrip().startswith("#") or OPAQUE.search(line) or _inside(lines, index, OPAQUE):
        return None
    choices: list[tuple[str, int]] = []
    for match in re.finditer(rf"(?<![\w-])({'|'.join(KEYS)}): ", line):
        key = match[1]
        at = dice.randrange(1, len(key))
        wrong = key[:at] + "qx" + key[at:]
        choices.append((line[: match.start(1)] + wrong + line[match.end(1) :], index))
        break
    if quantity := QUANTITY.search(line):
        start, end = quantity.start(2), quantity.end(2)
        choices.append((line[:start] + "-" + line[start:], index))
        choices.append((line[:end] + " qq" + line[quantity.end(3) :], index))
        if not _inside(lines, index, MODELLED):
            choices.append((line[:end] + line[quantity.end(3) :], index))
        choices.append((line[:start] + ".nan" + line[quantity.end(3) :], index))
    if source := re.search(r"\bsource: ([\w-]+)", line):
        choices.append((line[: source.start(1)] + "nowhere-" + line[source.start(1) :], index))
    if kind := re.search(r"\bkind: (measured|published|derived|assumed)\b", line):
        choices.append((line[: kind.start(1)] + "guessed" + line[kind.end(1) :], index))
    if re.fullmatch(r" +[a-z_]+: [^&|>\[{][^&|>]*", line):
        choices.append((f"{line}\n{line}", index + 1))
    return dice.choice(choices) if choices else None


def mutations(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (text of the broken file, line that a finding must name), the same ones every time."""
    lines = path.read_text().splitlines()
    dice = random.Random(path.name)
    order = list(range(4, len(lines)))
    dice.shuffle(order)
    made = 0
    for index in order:
        found = broken(lines, index, dice)
        if found is None:
            continue
        text, line = found
        yield "\n".join([*lines[:index], text, *lines[index + 1 :]]) + "\n", line + 1
        made += 1
        if made == A_FILE:
            return


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
@pytest.mark.sampled(8)
def test_mutated_shipped_files(path: Path, tmp_path: Path) -> None:
    (tmp_path / "rules").symlink_to(CHECKOUT / "platforms" / "rules")
    target = tmp_path / path.name
    tried = 0
    for text, line in mutations(path):
        target.write_text(text)
        found = findings(path.parent.name.removesuffix("s"), target)
        assert any(number == line for number, *_ in found), (line, text.splitlines()[line - 1], found[:5])
        tried += 1
    assert tried == A_FILE


BILLION = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("billion-laughs", BILLION, "after aliases are written out"),
        ("deep", "a: " + "[" * 5000 + "]" * 5000, "levels of nesting"),
        ("wide", "a: [" + "1, " * 300_000 + "1]", "expected at most"),
        ("large", "# " + "x" * (11 * 2**20), "10 MiB"),
        ("empty", "", "expected"),
        ("blank", "\n\n  \n", "expected"),
        ("a-list", "- 1\n- 2\n", "expected a mapping"),
        ("a-word", "hello\n", "expected a mapping"),
        ("python-object", "!!python/object/apply:os.system ['true']\n", "without a tag"),
        ("json-with-comments", '{"name": 1, // no\n}', "expected"),
    ],
)
@pytest.mark.parametrize("kind", ["platform", "pipeline"])
def test_hostile_files(kind: str, name: str, content: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(content)
    found = findings(kind, path)
    assert any(expected in text for *_, text in found), found
