"""socsched: map the stages of a driving pipeline to a heterogeneous SoC and check that every deadline holds.

``import socsched as ss``: `plan`, `book`, `simulate`, `run`, `analyze`, `compile`, `profile` and `report`; for many
task sets at once `analyze_many` and `simulate_many`; their inputs (`load_platform`, `load_pipeline`, `load_plan`,
`load_taskset`) and the types they return; docs/api.md has examples.
Submodules are imported on first use.  Packages are named by nouns (`planning`, `runtime`, `compiler`): importing a
package `socsched.plan` would replace the function of that name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from socsched.api.analysis import Analysis, analyze
    from socsched.api.batches import analyze_many, simulate_many
    from socsched.api.books import book
    from socsched.api.deployment import compile
    from socsched.api.execution import Run, run
    from socsched.api.folders import report
    from socsched.api.loading import load_pipeline, load_plan, load_platform, load_taskset
    from socsched.api.planning import plan
    from socsched.api.profiling import profile
    from socsched.api.results import ChainFigures, Duration, Result
    from socsched.api.simulation import Simulation, TaskSetSimulation, simulate
    from socsched.descriptor.limits import Verdict
    from socsched.modebook.book import Book, load_book
    from socsched.planning.plan import Plan
    from socsched.sim.policies import Policy

_HOMES = {
    "socsched.api.analysis": ("Analysis", "analyze"),
    "socsched.api.batches": ("analyze_many", "simulate_many"),
    "socsched.api.deployment": ("compile",),
    "socsched.api.execution": ("Run", "run"),
    "socsched.api.folders": ("report",),
    "socsched.api.loading": ("load_pipeline", "load_plan", "load_platform", "load_taskset"),
    "socsched.api.planning": ("plan",),
    "socsched.api.profiling": ("profile",),
    "socsched.api.results": ("ChainFigures", "Duration", "Result"),
    "socsched.api.simulation": ("Simulation", "TaskSetSimulation", "simulate"),
    "socsched.descriptor.limits": ("Verdict",),
    "socsched.modebook.book": ("Book", "load_book"),
    "socsched.api.books": ("book",),
    "socsched.planning.plan": ("Plan",),
    "socsched.sim.policies": ("Policy",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "Analysis", "Book", "ChainFigures", "Duration", "Plan", "Policy", "Result", "Run", "Simulation",
    "TaskSetSimulation", "Verdict", "analyze", "analyze_many", "book", "compile", "load_book", "load_pipeline",
    "load_plan", "load_platform", "load_taskset", "plan", "profile", "report", "run", "simulate", "simulate_many",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'socsched' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
