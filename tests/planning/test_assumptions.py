"""The page of assumptions: every analysis has a section, and `analyze` names those that a verdict rests on."""

from __future__ import annotations

from pathlib import Path

from socsched.api.analysis import analyze
from socsched.descriptor.taskset import taskset_from_mapping
from socsched.reporting.analysis import taskset_document, taskset_view
from socsched.reporting.terminal import console
from socsched.schedulability.edf import HOLISTIC
from socsched.schedulability.explain_bounds import COMMON, SECTIONS, sections
from socsched.schedulability.plan_analysis import DEMAND, FIXED
from socsched.schedulability.published import choose

ROOT = Path(__file__).parents[2]


def test_every_built_in_analysis_has_a_section_of_the_page() -> None:
    built_in = {test.name for test in choose.tests() if test.run.__module__.startswith("socsched.")} | {
        DEMAND,
        FIXED,
        HOLISTIC,
    }
    listed = [name for names in SECTIONS.values() for name in names]
    assert built_in <= set(listed)
    assert len(listed) == len(set(listed))
    page = (ROOT / "docs/proofs.md").read_text().splitlines()
    assert [line[3:] for line in page if line.startswith("## ")] == [COMMON, *SECTIONS]


def test_an_analysis_from_elsewhere_is_cited_by_its_name() -> None:
    assert sections(["FIFO response times", "theirs"]) == [COMMON, "FIFO response times", "theirs"]
    assert sections([]) == []


def test_the_verdict_of_a_task_set_names_its_sections() -> None:
    rows = [{"period": 10, "wcet": 2, "prio": 0}, {"period": 20, "wcet": 3, "prio": 1}]
    data = {"policy": "NP-FP", "tasks": [row | {"arrivals": "sporadic"} for row in rows]}
    found = analyze(taskset_from_mapping(data, "two"))
    document = taskset_document(found)
    assert document["proofs"]["sections"] == [COMMON, "Fixed priorities, no preemption"]
    shown = console(200)
    with shown.capture() as text:
        shown.print(taskset_view(found, document))
    assert "It rests on docs/proofs.md: Common model; Fixed priorities, no preemption." in text.get()


def test_the_verdict_of_a_plan_names_its_sections() -> None:
    document = analyze(ROOT / "tests/golden/perception_stack_orin.plan.json").document
    found = document["proofs"]["sections"]
    assert {COMMON, "Execution times under shared bandwidth", "Sampled chains"} <= set(found)
    assert all(set(chain["proofs"]) <= set(found) for chain in document["chains"])
