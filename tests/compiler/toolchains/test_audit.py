"""Operator rules against recorded answers of the vendors' compilers; asked anew where a compiler is installed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from optional import VENDORS

from socsched.cli import main
from socsched.cli.platforms import ruled_engine
from socsched.compiler.toolchains import audit
from socsched.compiler.toolchains.audit import Probe, probes
from socsched.compiler.toolchains.hand_over import vendor_compiler
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.platform import Engine

ANSWERS = Path(__file__).parents[2] / "data" / "vendor_answers"
CHIPS = {"rk3588": "npu0", "qcs8550": "npu", "sa8295p": "npu", "qcs6490": "npu"}
KNOWN = {("qcs6490", kind, "fp16") for kind in ("reshape", "transpose", "reciprocal", "cast")}
"""Contradictions that stay: moving fp16 data needs no arithmetic in fp16, which the chip lacks."""


def recording(chip: str) -> tuple[list[audit.Answer], Engine]:
    document = json.loads((ANSWERS / f"{chip}.json").read_text())
    runtime = get_platform(chip).engine(CHIPS[chip]).operators.runtime
    rows = document["answers"]
    answers = [
        audit.Answer(Probe(row["kind"], row["dtype"], row["attrs"]), row["accepted"], row.get("message", ""))
        for row in rows
    ]
    return answers, ruled_engine(get_platform(chip), CHIPS[chip], document["versions"][runtime])


@pytest.mark.parametrize("chip", CHIPS)
def test_rules_agree_with_the_recorded_answers(chip: str) -> None:
    answers, engine = recording(chip)
    rows = audit.compare(answers, engine)
    found = {(chip, row.kind, row.dtype) for row in rows if row.outcome == audit.CONTRADICT}
    assert found == {known for known in KNOWN if known[0] == chip}
    counts = Counter(row.outcome for row in rows)
    assert counts[audit.AGREE] > 8 * counts[audit.UNKNOWN] and len(rows) > 140


@pytest.mark.parametrize("chip", CHIPS)
def test_the_recording_answers_the_questions_that_are_asked(chip: str) -> None:
    answers, _ = recording(chip)
    engine = get_platform(chip).engine(CHIPS[chip])
    assert [answer.probe for answer in answers] == list(probes(engine.operators, audit.DTYPES))


def test_a_wrong_rule_is_a_contradiction() -> None:
    answers, engine = recording("rk3588")
    assert engine.operators.allowed is not None
    fewer = {name: cases for name, cases in engine.operators.allowed.items() if name != "relu"}
    rows = audit.compare(answers, replace(engine, operators=replace(engine.operators, allowed=fewer)))
    wrong = {(row.kind, row.runs, row.accepted) for row in rows if row.outcome == audit.CONTRADICT}
    assert wrong == {("relu", False, True)}


def test_engines_without_a_compiler_and_misused_options(capsys: pytest.CaptureFixture[str]) -> None:
    for line, code, said in (
        (["qrb5165", "--against-vendor"], 2, "SNPE has no compiler that runs here"),
        (["rk3588", "--against-vendor"], 3, "socsched doctor --install rockchip"),
        (["rk3588", "relu", "--against-vendor"], 2, "asks about every operator"),
        (["rk3588", "--record", "x.json"], 2, "add --against-vendor"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["platforms", "rules", *line])
        assert ended.value.code == code and said in capsys.readouterr().err


def anew(chip: str, kinds: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOCSCHED_VENDORS", str(VENDORS))
    answers, _ = recording(chip)
    engine = get_platform(chip).engine(CHIPS[chip])
    assert engine.operators.allowed is not None
    few = {name: cases for name, cases in engine.operators.allowed.items() if name in kinds}
    compiler = vendor_compiler(engine)
    assert compiler is not None
    asked, _ = audit.ask(compiler, replace(engine, operators=replace(engine.operators, allowed=few, refused={})))
    known = {json.dumps([a.probe.kind, a.probe.dtype, dict(a.probe.attrs)]): a.accepted for a in answers}
    assert {json.dumps([a.probe.kind, a.probe.dtype, dict(a.probe.attrs)]): a.accepted for a in asked}.items() <= (
        known.items()
    )
    assert len(asked) > 10


@pytest.mark.needs("RKNN compiler")
def test_rockchip_answers_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    anew("rk3588", {"conv2d_transpose", "relu", "sqrt", "softmax"}, monkeypatch)


@pytest.mark.needs("HTP compiler")
@pytest.mark.parametrize("chip", ["qcs8550", "qcs6490"])
def test_qualcomm_answers_the_same(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    anew(chip, {"max_pool", "relu", "batch_norm"}, monkeypatch)
