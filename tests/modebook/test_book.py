"""Books: cells, shared placements, reasons, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import socsched as ss
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Figure
from socsched.errors import DescriptorError, InputError, UsageError
from socsched.modebook.book import Book, cell_of, load_book, plain
from socsched.modebook.cells import Cell, axes_of

ORIN = "jetson-agx-orin-64gb"


def test_every_cell_is_there_once(small: Book) -> None:
    cells = [cell_of(entry) for entry in small.document.cells]
    assert len(cells) == len(set(cells)) == 3 * 3 * 4 * 3


def test_feasible_cells_meet_their_own_deadlines(small: Book) -> None:
    for entry in small.document.cells:
        if entry.verdict == "feasible":
            wanted = 140_000_000 if entry.condition == "town" else 120_000_000
            assert [chain.deadline_ns for chain in entry.chains] == [wanted]
            assert all(chain.bound_ns is not None and chain.bound_ns <= wanted for chain in entry.chains)
            assert entry.loss not in {task.engine for task in small.plan(cell_of(entry)).tasks}


def test_cells_without_an_engine_for_a_stage_name_it(small: Book) -> None:
    lost = [entry for entry in small.document.cells if entry.loss == "cpu0"]
    assert len(lost) == 27
    for entry in lost:
        assert entry.verdict == "infeasible"
        assert entry.why[0] == "cpu0 is lost"
        assert any(line.startswith("no engine for stage control") for line in entry.why)
        with pytest.raises(UsageError, match="has no plan"):
            small.plan(cell_of(entry))


def test_few_cells_are_searched_and_the_first_has_the_plan_of_plan(small: Book, pipeline: Pipeline) -> None:
    made = [entry.made for entry in small.document.cells if entry.loss != "cpu0"]
    assert made.count("searched") <= 9 < made.count("shared")
    first = Cell("MAXN", "cool", "none", "base")
    assert small.entry(first).made == "searched"
    assert small.plan(first) == ss.plan(pipeline, ORIN, "MAXN", evaluations=768)


def test_a_book_does_not_depend_on_the_number_of_processes(pipeline: Pipeline) -> None:
    axes: dict[str, Any] = {"modes": ["MAXN", "30W"], "losses": ["gpu", "dla0"], "conditions": ["base"]}
    alone, shared = (
        ss.book(pipeline, "jetson-agx-orin-64gb", **axes, workers=workers, evaluations=None) for workers in (1, 3)
    )
    assert {entry.made for entry in alone.document.cells} >= {"searched", "shared"}
    assert plain(alone.document) == plain(shared.document) and alone.plans == shared.plans


def test_a_shared_placement_is_one_artefact_per_stage(small: Book) -> None:
    document = small.document
    for artefact in document.artefacts:
        for name in artefact.placements:
            stages = next(one for one in document.placements if one.id == name).stages
            assert stages[artefact.stage].startswith(f"{artefact.engine} {artefact.precision}")
    assert sum(len(one.placements) for one in document.artefacts) == 3 * len(document.placements)
    assert len(document.artefacts) < 3 * len(document.placements)


def test_slower_states_have_longer_times(small: Book) -> None:
    costs = {
        state: {task.name: task.cost_ns for task in small.plan(Cell("MAXN", state, "none", "base")).tasks}
        for state in ("cool", "warm", "hot")
    }
    assert costs["cool"]["control"] < costs["warm"]["control"] < costs["hot"]["control"]


def test_a_condition_changes_loads_and_rates(small: Book) -> None:
    def of(condition: str) -> dict[str, tuple[int, int]]:
        tasks = small.plan(Cell("MAXN", "cool", "none", condition)).tasks
        return {task.name: (task.cost_ns, task.period_ns) for task in tasks}

    base, night, town = of("base"), of("night"), of("town")
    assert town["track"][0] == 5 * base["track"][0] // 2
    assert town["control"] == base["control"] == night["control"]
    assert night["detect"] == (base["detect"][0], 2 * base["detect"][1])


def test_a_book_is_read_back_as_it_was_written(small: Book, tmp_path: Path) -> None:
    small.save(tmp_path)
    again = load_book(tmp_path)
    assert plain(again.document) == plain(small.document)
    assert again.plans == small.plans
    assert (tmp_path / "book.svg").read_text().startswith("<svg")
    assert "Switches" in (tmp_path / "book.html").read_text()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("cells", 0, "mode"), "MODE_1W", "expected one of MAXN, MODE_50W, MODE_30W, got 'MODE_1W'"),
        (("cells", 0, "placement"), "P99", "expected the id of a placement"),
        (("cells", 0, "plan"), "", "expected the file of a feasible cell's plan"),
        (("cells", 0, "plan"), "../../etc/passwd", "expected a name of letters"),
        (("switches", 0, "target"), 10_000, "expected the number of a cell"),
        (("cells", 0, "power_mw"), "much", "expected a whole number"),
    ],
)
def test_faults_of_a_book_have_a_position(
    small: Book, tmp_path: Path, path: tuple[str | int, ...], value: object, message: str
) -> None:
    small.save(tmp_path)
    file = tmp_path / "book.json"
    document = json.loads(file.read_text())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file.write_text(json.dumps(document, indent=1))
    with pytest.raises(DescriptorError) as caught:
        load_book(tmp_path)
    assert message in str(caught.value)
    assert "book.json:" in str(caught.value)


def test_a_plan_of_another_pipeline_is_refused(small: Book, tmp_path: Path) -> None:
    small.save(tmp_path)
    file = tmp_path / "plans" / small.document.cells[0].plan
    document = json.loads(file.read_text())
    document["pipeline"] = "other"
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match="a plan for other on"):
        load_book(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modes": ["1W"]}, "has no mode '1W'"),
        ({"thermal": ["boiling"]}, "unknown thermal state 'boiling'"),
        ({"losses": ["npu"]}, "unknown engine 'npu'"),
        ({"conditions": ["fog"]}, "unknown operating condition 'fog'"),
    ],
)
def test_unknown_names_are_refused(pipeline: Pipeline, options: dict[str, list[str]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        axes_of(pipeline, ss.load_platform(ORIN), **options)  # type: ignore[arg-type]


def test_spares_are_the_plans_for_lost_engines_of_the_same_cell(small: Book) -> None:
    cell = Cell("MAXN", "cool", "none", "base")
    plan = small.plan(cell)
    spares = small.spares(plan)
    assert len(spares) == 2  # no plan without cpu0
    assert all({engine.id for engine in one.engines} == {engine.id for engine in plan.engines} for one in spares)
    assert "gpu" not in {task.engine for task in spares[0].tasks}
    with pytest.raises(UsageError, match="none of the book's"):
        small.spares(ss.plan("camera-detection", ORIN, "MAXN", explain=False, refine=False))


def test_plans_that_do_not_fit_together_have_no_switch() -> None:
    board = ss.load_platform(ORIN)
    axes: dict[str, Any] = {"modes": ["MAXN", "50W"], "thermal": ["cool"], "losses": ["gpu"], "evaluations": 768}
    roomy = ss.book("camera-detection", board, **axes).document
    largest = max(one.weights_bytes for one in roomy.placements)
    assert len(roomy.placements) > 1
    assert largest < roomy.resident_bytes < roomy.capacity_bytes == 64 * 2**30 - 4976 * 2**20
    size = Figure(roomy.resident_bytes - 1, "assumed", note="a test")
    tight = ss.book("camera-detection", replace(board, dram=replace(board.dram, size=size, reserved=None)), **axes)
    cells, refused = tight.document.cells, 0
    for switch in tight.document.switches:
        both = cells[switch.source], cells[switch.target]
        if all(one.verdict == "feasible" for one in both) and both[0].placement != both[1].placement:
            assert switch.why == "the artefacts of both plans are not in memory together"
            refused += 1
    assert refused
