"""End-to-end bounds of an independent tool, ten methods a case, to the digit."""

from __future__ import annotations

from dataclasses import replace

from datafiles import read

from socsched.descriptor.taskset import taskset_from_mapping
from socsched.schedulability.published.choose import Analysis, analyse

METHODS = {
    "davare07": ("chain: Davare", "reaction_time"),
    "duerr19_mrt": ("chain: Dürr", "reaction_time"),
    "duerr19_mrda": ("chain: Dürr", "reduced_data_age"),
    "kloda18": ("chain: Kloda", "reaction_time"),
    "becker17_RESPONSE_TIMES": ("chain: Becker, response times", "reduced_data_age"),
    "guenzel23_local_mrt": ("chain: Günzel, local", "reaction_time"),
    "guenzel23_local_mda": ("chain: Günzel, local", "data_age"),
    "guenzel23_local_mrda": ("chain: Günzel, local", "reduced_data_age"),
    "hamann17": ("chain: LET, any phase", "reaction_time"),
    "becker17_LET": ("chain: LET, known phases", "reduced_data_age"),
}


def bound(analysis: Analysis, test: str, measure: str) -> int:
    (outcome,) = [o for o in analysis.outcomes if o.test.name == test]
    assert outcome.answer is not None, outcome.reason
    return outcome.answer.chain[measure].value


def test_all_methods_on_all_cases() -> None:
    cases = read("chains/e2e_oracle.json")["cases"]
    compared = 0
    for case in cases:
        assert set(case["bounds"]) == set(METHODS)
        taskset = taskset_from_mapping(case, "e2e_oracle.json")
        implicit, logical = analyse(taskset), analyse(replace(taskset, communication="let"))
        responses = [best.bound.value for best in implicit.tasks.values() if best.bound]
        assert responses == case["wcrt"]
        for method, expected in case["bounds"].items():
            test, measure = METHODS[method]
            by = logical if "LET" in test else implicit
            assert bound(by, test, measure) == expected, (case["id"], method)
            compared += 1
    assert compared == 10 * len(cases) >= 300


def test_the_tightest_is_chosen() -> None:
    cases = read("chains/e2e_oracle.json")["cases"]
    for case in cases:
        best = analyse(taskset_from_mapping(case, "e2e_oracle.json")).chain
        for measure, suffix in (("reaction_time", "mrt"), ("data_age", "mda"), ("reduced_data_age", "mrda")):
            assert best[measure].bound is not None
            assert best[measure].bound.value == case["bounds"][f"guenzel23_local_{suffix}"]
