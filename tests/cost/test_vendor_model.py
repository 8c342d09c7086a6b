"""Cycles of a vendor's compiler as a cost: below published, above derived, never in place of a fit or a measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from socsched.cost import profile as measured
from socsched.cost import vendor_model
from socsched.cost.profile import MeasuredCost, Profile, load_profile, save_profile
from socsched.cost.sources import Known, Request, cost_sources
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.fields import PROVENANCE

BOARD = get_platform("rk3588")
STAGE = get_pipeline("pointpillars-s").stage("backbone")
COST = MeasuredCost("backbone", "npu0", "performance", "fp16", 0, 22_000_000, 0.7, kind="vendor model")
PROFILE = Profile("rk3588", (COST,), "rknn-toolkit2 2.5.0")


def asked(profile: Profile | None, mode: int = 0, precision: str = "fp16", platform: str = "rk3588") -> Request:
    engine = BOARD.engine("npu0")
    board = replace(BOARD, name=platform)
    return Request(STAGE, board, engine, board.modes[mode], precision, 1, None, profile, lambda _: None)


def test_it_is_known_in_its_mode_and_scaled_by_the_clock_to_another() -> None:
    known = vendor_model.cost(asked(PROFILE))
    assert known == Known(22_000_000, "vendor model", "cycles expected by rknn-toolkit2 2.5.0", 0.7)
    slower = vendor_model.cost(asked(PROFILE, mode=1))
    clocks = [mode.engines["npu0"].clock_hz for mode in BOARD.modes]
    assert isinstance(slower, Known) and slower.time_ns == round(22e6 * clocks[0] / clocks[1]) and not slower.exact
    assert measured.cost(asked(PROFILE)) is None, "it was not measured"


def test_it_yields_to_a_fit_and_knows_no_other_platform_or_profile() -> None:
    both = Profile("rk3588", (COST, replace(COST, precision="int8")), "tool")
    assert vendor_model.cost(asked(both, precision="int8")) is None, "int8 has a fit"
    assert vendor_model.cost(asked(None)) is None and vendor_model.cost(asked(PROFILE, platform="other")) is None
    assert vendor_model.cost(asked(Profile("rk3588", (replace(COST, kind="measured"),), "tool"))) is None


def test_its_rank_and_kind() -> None:
    order = [source.name for source in cost_sources()]
    assert order.index("anchors") < order.index("vendor-model") < order.index("roofline")
    ranks = [PROVENANCE.index(kind) for kind in ("published", "vendor model", "derived")]
    assert ranks == sorted(ranks)


def test_files_keep_the_kind_and_measured_ones_stay_as_they_were(tmp_path: Path) -> None:
    save_profile(PROFILE, tmp_path / "expected.json")
    assert load_profile(tmp_path / "expected.json") == PROFILE
    save_profile(replace(PROFILE, costs=(replace(COST, kind="measured"),)), tmp_path / "measured.json")
    text = (tmp_path / "measured.json").read_text()
    assert '"kind"' not in text and load_profile(tmp_path / "measured.json").costs[0].kind == "measured"
    (tmp_path / "bad.json").write_text((tmp_path / "expected.json").read_text().replace("vendor model", "guessed"))
    with pytest.raises(Exception, match="kind"):
        load_profile(tmp_path / "bad.json")
