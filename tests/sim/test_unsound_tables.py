"""Hostile plans: rejected before the kernel starts, or simulated alike by all kernels without out-of-bounds access."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from builders import engine, plan, sensor, task
from extreme_plans import case
from rich_plan import rich_plan
from twins import compiled, equal_outcomes

from socsched.cost.cost import Segment
from socsched.errors import SocschedError, UsageError
from socsched.faults.model import Burst, Faults, Hog, Overrun, Slowdown
from socsched.limits import HORIZON_NS, LONGEST_NS, MOST_LANES, MOST_QUEUE
from socsched.planning.checks import out_of_range
from socsched.planning.plan import Level, Plan, Throttle
from socsched.sim.invariants import check_tables
from socsched.sim.lower import lower
from socsched.sim.simulate import run

HERE = Path(__file__).parent


def visitor(policy: str) -> Plan:
    """A task whose second segment runs on an engine with a policy that its own does not have."""
    parts = (Segment("a", 10, 0, 0), Segment("b", 20, 0, 0, "x", (0,)))
    others = [task(f"o{i}", 30, period_ns=100, engine="x") for i in range(3)]
    return plan([task("a", segments=parts, period_ns=100), *others], [engine(), engine("x", policy=policy)])


@pytest.mark.parametrize("policy", ["prema", "token"])
@pytest.mark.needs("Python headers")
def test_tokens_are_kept_for_tasks_that_come_from_another_engine(policy: str) -> None:
    """Their waits were read behind the end of the table, and sorted there."""
    lowered = lower(visitor(policy), 0)
    tables = lowered.tables
    tokens = [tables["u_tokens"][unit] for unit in tables["g_unit"]]
    ends = [first + 2 * count for first, count in zip(tables["g_waits0"], tokens, strict=True)]
    assert max(tokens) > 0 and max(ends) <= len(tables["waits"])
    # where both engines have the policy, levels are those of the one table there was before
    both = replace(visitor(policy), engines=tuple(replace(e, policy=policy) for e in visitor(policy).engines))
    assert run(both, 5000, implementation="python").outcome.ints("done").sum() > 50
    equal_outcomes(*(run(visitor(policy), 5000, implementation=i) for i in (compiled(), "python")))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (plan([]), "the plan has no tasks"),
        (plan([task("a", 10, queue=-1)]), "tasks[0].queue (task 'a')"),
        (plan([task("a", 10, queue=MOST_QUEUE + 1)]), "tasks[0].queue"),
        (plan([task("a", -10)]), "tasks[0]"),
        (plan([task("a", 10, offset_ns=-1)]), "tasks[0].offset_ns"),
        (plan([task("a", 10, deadline_ns=LONGEST_NS + 1)]), "tasks[0].deadline_ns"),
        (plan([task("a", LONGEST_NS + 1)]), "tasks[0]"),
        (plan([task("a", 10, width=2)]), "expected a width from 0 to 1, the number of lanes, got 2"),
        (plan([task("a", 10, lanes=(0, 0), width=2)]), "expected a width from 0 to 1, the number of lanes, got 2"),
        (plan([task("a", 10)], [engine(quantum_ns=-1, policy="rr")]), "engines[0].quantum_ns (engine 'cpu')"),
        (plan([task("a", 10)], [engine(lanes=MOST_LANES + 1)]), "engines[0].lanes"),
        (plan([task("a", 10)], [engine(levels=(Level(0, 1),))]), "engines[0].levels[0].clock_hz"),
        (plan([task("a", 10)], [engine(levels=(Level(2, 1), Level(1, 1)))]), "slowest first"),
        (plan([task("a", 10)], [engine(), engine()]), "engine 'cpu' appears twice"),
        (plan([task("a", 10), task("a", 10)]), "'a' appears twice"),
        (plan([task("a", 10, after=("s",))], sensors=(sensor("s", 100, jitter_ns=-1),)), "sensors[0].jitter_ns"),
        (plan([task("a", 10, after=("s",))], sensors=(sensor("s", 100, gap_ns=-1),)), "sensors[0].gap_ns"),
        (plan([task("a", 10, after=("s",))], sensors=(sensor("s", 0),)), "sensors[0].period_ns"),
        (plan([task("a", 10)], dram_picojoule_per_byte=float("nan")), "dram_picojoule_per_byte"),
        (plan([task("a", 10)], throttle=Throttle(100, recover=2.0)), "throttle.recover"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(made: Plan, said: str) -> None:
    with pytest.raises(UsageError) as error:
        run(made, 1000, implementation="python")
    assert said in str(error.value)
    if "expected from" in str(error.value):
        named = [
            "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
            for path, _ in out_of_range(made)
        ]
        assert any(said.split(" ")[0] in path for path in named)


def test_what_takes_too_long_together_is_refused() -> None:
    """Alone an hour is allowed; a hundred times that cannot be counted in parts of a nanosecond."""
    long = task("a", LONGEST_NS, period_ns=LONGEST_NS)
    assert run(plan([long]), LONGEST_NS + 1, implementation="python").outcome.ints("done")[0] == 1
    slow = Faults(slowdowns=(Slowdown("cpu", 0, 10, Fraction(100)),))
    late = Faults(overruns=(Overrun("a", Fraction(1), Fraction(3)),))
    narrow = [engine(levels=(Level(1, 1), Level(100, 1)))]
    with pytest.raises(UsageError, match="takes up to"):
        run(plan([long]), 1000, faults=slow)
    with pytest.raises(UsageError, match="takes up to"):
        run(plan([long]), 1000, faults=late)
    with pytest.raises(UsageError, match="takes up to"):
        run(plan([long], narrow), 1000)
    starved = plan([task("a", 10, bytes=10**6, period_ns=100)], dram_bandwidth=50)
    with pytest.raises(UsageError, match="its share of the DRAM"):
        run(starved, 1000, implementation="python")


@pytest.mark.parametrize(
    "harm",
    [
        Faults(bursts=(Burst("s", 0, 10**9),)),
        Faults(hogs=(Hog("cpu", -5, 10, 1),)),
        Faults(hogs=(Hog("cpu", 0, HORIZON_NS + 1, 1),)),
        Faults(slowdowns=(Slowdown("cpu", 0, 10, Fraction(0)),)),
    ],
)
def test_faults_out_of_range_are_refused(harm: Faults) -> None:
    made = plan([task("a", 10, after=("s",))], sensors=(sensor("s", 100),))
    with pytest.raises(UsageError, match="faults: "):
        run(made, 1000, faults=harm)


@pytest.mark.parametrize("duration", [-1, HORIZON_NS + 2])
def test_simulations_have_a_longest_duration(duration: int) -> None:
    with pytest.raises(UsageError, match="100 days"):
        run(plan([task("a", 10)]), duration)


@pytest.mark.slow
@pytest.mark.needs("Python headers")
def test_a_hundred_days_on_all_lanes_are_counted_exactly() -> None:
    """Busy time of 1,024 lanes for the longest time there is: just below 2**63 ns."""
    whole = task("a", LONGEST_NS, period_ns=LONGEST_NS, lanes=tuple(range(MOST_LANES)))
    for implementation in (compiled(), "python"):
        found = run(plan([whole], [engine(lanes=MOST_LANES)]), HORIZON_NS, implementation=implementation).outcome
        assert found.ints("busy_time")[0] == MOST_LANES * HORIZON_NS
        assert found.ints_of("execs", 1)[0] == HORIZON_NS


@pytest.mark.slow
def test_many_jobs_that_would_be_late_are_skipped_without_growing_a_stack() -> None:
    """Each skipped job used to call for the next one."""
    hog = task("hog", 10**6, period_ns=10**9, priority=0)
    made = plan([hog, task("a", 5, period_ns=10, on_late="skip", priority=1)], [engine(policy="fp")])
    for implementation in (compiled(), "python"):
        found = run(made, 1_100_000, implementation=implementation, record=False).outcome
        assert found.ints("dropped")[1] > 90_000


@pytest.mark.parametrize(
    "column", ["g_unit", "successors", "u_engine", "t_first", "o_row", "g_waits0", "n_top", "reads"]
)
@pytest.mark.parametrize("value", [-2, 1 << 40])
def test_tables_that_lead_elsewhere_are_refused(column: str, value: int) -> None:
    lowered = lower(rich_plan(), 0)
    check_tables(lowered.tables, lowered.plan)
    lowered.tables[column][-1] = value
    with pytest.raises(UsageError, match=f"plan: {column}"):
        check_tables(lowered.tables, lowered.plan)


def test_every_column_the_kernel_reads_is_checked() -> None:
    """A column that is added has to be added to what must hold."""
    lowered = lower(rich_plan(), 0)
    unnamed = {"control_weights", "numbers", "g_mask", "u_mask"}
    free = {"g_name"}
    for column in lowered.tables.keys() - unnamed - free:
        values = lowered.tables[column]
        if isinstance(values, int) or not len(values):
            continue
        kept, values[0] = values[0], -(1 << 61)
        if column != "t_priority":
            with pytest.raises(UsageError):
                check_tables(lowered.tables, lowered.plan)
        values[0] = kept


@pytest.mark.needs("Python headers")
def test_a_governor_and_a_board_that_throttles_share_an_engine() -> None:
    """The board took the last step back that the governor had taken already, and left the table."""
    levels = (Level(250, 500), Level(500, 4000), Level(1000, 9000))
    gpu = engine("gpu", dynamic_mw=9000, levels=levels, governor="ccedf")
    jobs = [task(f"t{i}", 300 - 90 * i, engine="gpu", period_ns=1000 + 700 * i) for i in range(3)]
    for cap in range(500, 9000, 700):
        made = plan(jobs, [gpu], throttle=Throttle(150, cap_mw=cap))
        ours, theirs = (run(made, 60_000, implementation=i) for i in (compiled(), "python"))
        equal_outcomes(ours, theirs)


# -- mutations: refused or simulated, never out of bounds

_NUMBERS = (-(2**63), -1, 0, 1, 2, 31, 32, 62, 63, 64, 2**31, 2**43, 2**62, 2**63 - 1, 2**70)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _paths(getattr(value, field.name), (*path, field.name))
    elif isinstance(value, tuple):
        for index, member in enumerate(value):
            yield from _paths(member, (*path, index))
    if isinstance(value, (int, str, float, tuple)):
        yield path


def _put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(path[0], str):
        return replace(value, **{path[0]: _put(getattr(value, path[0]), path[1:], new)})
    return (*value[: path[0]], _put(value[path[0]], path[1:], new), *value[path[0] + 1 :])


def _get(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = getattr(value, part) if isinstance(part, str) else value[part]
    return value


def mutated(seed: int) -> Plan:
    """Return a rich or random plan with one to three of its fields changed."""
    rng = Random(seed)
    made = rich_plan() if seed % 2 else case(seed).plan
    paths = [path for path in _paths(made) if path]
    names = [t.name for t in made.tasks] + [e.id for e in made.engines] + ["s", "missing", ""]
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(paths)
        try:
            old = _get(made, path)
        except (IndexError, AttributeError):
            continue
        if isinstance(old, bool):
            new: Any = not old
        elif isinstance(old, int):
            new = rng.choice((*_NUMBERS, old + 1, old - 1, -old, 1000 * old))
        elif isinstance(old, float):
            new = rng.choice((-1.0, 0.0, float("nan"), float("inf"), 1e300))
        elif isinstance(old, str):
            new = rng.choice((*names, "prema", "token", "restart", "segment", "abort", "skip"))
        else:
            new = rng.choice((old[:1], old[1:], old + old[:1], ()))
        made = _put(made, path, new)
    return made


def mutate_and_run(seeds: range, implementation: str) -> tuple[int, int]:
    """Simulate mutated plans for a moment each; return how many were simulated and how many refused."""
    simulated = refused = 0
    for seed in seeds:
        made = mutated(seed)
        try:
            found = run(made, 20_000, seed % 5, implementation=implementation)
        except SocschedError:
            refused += 1
            continue
        simulated += 1
        for name in ("done", "late", "dropped", "released", "busy_time", "overdue"):
            assert int(found.outcome.ints(name).min(initial=0)) >= 0, (seed, name)
        assert int(found.outcome.ints_of("responses", 2).max(initial=0)) <= 20_000, seed
    return simulated, refused


def test_mutated_plans_are_refused_or_simulated() -> None:
    simulated, refused = mutate_and_run(range(40), "python")
    assert simulated > 6 and refused > 6


def checked(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the kernel that checks every access and every sum; skip where it cannot be built."""
    compiler = shutil.which("gcc")
    library = (
        compiler
        and subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    )
    if not library or not Path(library).is_file():
        pytest.skip("no gcc with an address sanitizer")
    environment = {
        **os.environ, "LD_PRELOAD": library, "PYTHONMALLOC": "malloc", "SOCSCHED_KERNEL": "checked",
        "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
    }  # fmt: skip
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_the_checked_kernel_sees_an_index_out_of_bounds() -> None:
    """The build is good for something: without the check of tables it ends at the first wrong access."""
    script = (
        "from rich_plan import rich_plan; import socsched.sim.invariants as sound;"
        "sound.check_tables = lambda tables, plan: tables['successors'].__setitem__(0, 1 << 22);"
        "from socsched.sim.simulate import run; run(rich_plan(), 100_000, implementation='checked')"
    )
    done = checked(script)
    assert done.returncode != 0 and "AddressSanitizer" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_checked_kernel_finds_nothing_in_mutated_plans(part: int) -> None:
    seeds = f"range({1000 * part}, {1000 * part + 1000})"
    done = checked(f"from test_unsound_tables import mutate_and_run; print(mutate_and_run({seeds}, 'checked'))")
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_the_checked_kernel_finds_nothing_up_to_the_limits() -> None:
    script = (
        "from extreme_plans import case\nfrom socsched.errors import UsageError\n"
        "from socsched.sim.simulate import run\n"
        "for seed in range(400):\n"
        "    drawn = case(seed)\n"
        "    try:\n"
        "        run(drawn.plan, drawn.duration_ns, seed, None, drawn.faults, implementation='checked')\n"
        "    except UsageError:\n"
        "        pass\n"
    )
    done = checked(script)
    assert done.returncode == 0, done.stderr[-3000:]
