"""Operator rules compared with what the vendor's compiler answers, operator by operator.

A rule and an answer agree, contradict each other, or the answer is unknown: ONNX cannot state the operator alone, the
compiler crashed or took too long, or the operator runs under a condition that the probe does not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from socsched.compiler.vendor_compilers.environments import environment
from socsched.compiler.vendor_compilers.helper import Ended, Helper, Refused
from socsched.compiler.vendor_compilers.probes import Probe, probes
from socsched.compiler.vendor_packages.package import MODEL, Compiler
from socsched.descriptor.platform import Engine
from socsched.graph.rules import decide

AGREE, CONTRADICT, UNKNOWN = "agreement", "contradiction", "unknown"
SECONDS = 60.0
DTYPES = ("fp16", "int8")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the compiler said about a probe: `accepted` is None where it said nothing; `message` is its reason."""

    probe: Probe
    accepted: bool | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One probe with the rule's decision (`runs`) and the compiler's answer; `outcome` compares them."""

    kind: str
    dtype: str
    attrs: dict[str, float]
    runs: bool
    accepted: bool | None
    outcome: str
    reason: str


def ask(
    compiler: Compiler, engine: Engine, note: Callable[[int, int, str], None] = lambda *_: None
) -> tuple[list[Answer], dict[str, str]]:
    """Return the compiler's answers to every probe of an engine's rules, and its versions.

    Raises MachineError if the compiler is not installed and UsageError if it does not know the engine.
    """
    made_by, target = environment(compiler.environment), dict(compiler.target(engine))
    asked = list(probes(engine.operators, DTYPES))
    answers: list[Answer] = []
    helper = Helper(made_by)
    versions = helper.versions
    try:
        for number, probe in enumerate(asked):
            note(number, len(asked), probe.kind)
            model = probe.model(compiler.unsigned)
            if model is None:
                answers.append(Answer(probe, None, "cannot be asked alone"))
                continue
            (helper.folder / MODEL).write_bytes(model)
            try:
                said = helper.ask("ask", SECONDS, model=MODEL, target=target)
                answers.append(Answer(probe, *_meaning(said)))
            except Refused as error:
                answers.append(Answer(probe, None, str(error)[:200]))
            except Ended as error:
                answers.append(Answer(probe, None, f"the compiler did not survive it: {error}"[:200]))
                helper.close()
                helper = Helper(made_by)
    finally:
        helper.close()
    return answers, versions


def _meaning(said: dict[str, Any]) -> tuple[bool | None, str]:
    if said.get("accepted") and said.get("layers") == []:
        return None, "the compiler removed the operator"
    return bool(said["accepted"]), str(said.get("message", ""))[:200]


def compare(answers: Iterable[Answer], engine: Engine) -> list[Row]:
    """Return every answer next to the decision of the engine's rules."""
    rows = []
    for answer in answers:
        probe = answer.probe
        decision = decide(probe.operator(), engine)
        reason = answer.message if answer.accepted is not True else "; ".join(decision.reasons)
        if answer.accepted is None:
            outcome = UNKNOWN
        elif answer.accepted == decision.runs:
            outcome = AGREE
        elif decision.runs and decision.conditions:
            outcome, reason = UNKNOWN, f"runs if: {'; '.join(decision.conditions)}. Alone: {answer.message}"
        else:
            outcome = CONTRADICT
        rows.append(Row(probe.kind, probe.dtype, dict(probe.attrs), decision.runs, answer.accepted, outcome, reason))
    return rows


def recorded(answers: Iterable[Answer], versions: Mapping[str, str]) -> dict[str, Any]:
    """Return answers as plain data, for a file that tests replay."""
    rows = [
        {"kind": a.probe.kind, "dtype": a.probe.dtype, "attrs": dict(a.probe.attrs), "accepted": a.accepted}
        | ({"message": a.message} if a.message else {})
        for a in answers
    ]
    return {"versions": dict(versions), "answers": rows}


def replayed(document: Mapping[str, Any]) -> list[Answer]:
    """Return the answers of a `recorded` document."""
    return [
        Answer(Probe(row["kind"], row["dtype"], row["attrs"]), row["accepted"], row.get("message", ""))
        for row in document["answers"]
    ]
