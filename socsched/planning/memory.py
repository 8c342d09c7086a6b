"""Main memory that a deployment needs: weights, activations by liveness, and buffers between stages.

Everything stays allocated while the plan runs, as runtimes of accelerators allocate a network's memory when they load
it: the weights of every network, the activations that are alive at once in it, and a buffer for every frame that may be
on its way between two stages.  Code, the runtimes' own memory and stages known by their time only are not counted; what
firmware and the operating system take is the platform's `dram.reserved`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from socsched.errors import CompileError
from socsched.graph.operators import DTYPE_BYTES

if TYPE_CHECKING:
    from socsched.cost.cost import Cost
    from socsched.cost.model import CostModel
    from socsched.descriptor.pipeline import Stage
    from socsched.descriptor.platform import Platform
    from socsched.graph.operators import StageWork
    from socsched.planning.deployment import Deployment
    from socsched.planning.workload import Workload

CAPACITY = "DRAM capacity"
"""Name of the requirement."""
WEIGHTS = "weights of "
"""Start of the names of terms that are weights."""


def capacity(platform: Platform) -> int:
    """Return the bytes of main memory that a plan may use."""
    dram = platform.dram
    return max(round(dram.size.value - (dram.reserved.value if dram.reserved else 0)), 0)


def footprint(deployment: Deployment) -> tuple[tuple[str, int], ...]:
    """Return the terms (name, bytes) of a deployment's memory; what takes none is left out."""
    workload = deployment.workload
    terms = []
    for name, cost in deployment.mapping.items():
        weights, activations = stage_bytes(workload, cost)
        terms += [(WEIGHTS + name, weights), (f"activations of {name}", activations)]
    frames: dict[str, int] = {}
    for task in deployment.tasks:
        for producer in task.after:  # the frames that wait, and the one read
            frames[producer] = max(frames.get(producer, 1), task.queue + 1)
        for producer in task.reads:  # the latest, which may be read while the next one is written
            frames.setdefault(producer, 1)
    for task in deployment.tasks:
        size = (
            workload.output_bytes(deployment.mapping[task.name]) if task.name in deployment.mapping else task.bytes // 2
        )
        terms.append((f"output of {task.name}", size * (1 + frames.get(task.name, 1))))
    for sensor in workload.sensors():
        terms.append((f"frames of {sensor.name}", sensor.bytes_per_frame * (1 + frames.get(sensor.name, 1))))
    return tuple(term for term in terms if term[1])


def stage_bytes(workload: Workload, cost: Cost) -> tuple[int, int]:
    """Return the bytes of a stage's weights, and of its activations at their peak."""
    if workload.model.platform.engine(cost.engine).link is not None:
        return 0, 0  # in the engine's own memory
    known = workload.sizes
    key = (cost.stage, cost.precision)
    if key not in known:
        work = workload.model.work_of(workload.graph.stage(cost.stage), cost.precision)
        known[key] = (weights_of(work), _activations(work)) if work else (0, 0)
    return known[key]


def least_weights(model: CostModel, stage: Stage) -> int:
    """Return the bytes of a stage's weights in the accepted data type that needs least, whole or cut.

    None are needed in main memory where an engine with memory of its own may take the stage.
    """
    if any(engine.link is not None for engine in model.platform.engines):
        return 0
    found = []
    for precision in stage.precisions:
        try:
            work = model.work_of(stage, precision)
        except CompileError:  # a limit of this machine says nothing about the stage
            return 0
        found.append(weights_of(work) if work else 0)
    return min(found, default=0)


def weights_of(work: StageWork) -> int:
    """Return the bytes of a stage's weights."""
    return sum(operator.weight_bytes for operator in work.operators)


def _activations(work: StageWork) -> int:
    """Return the most bytes alive at once: by pass where these are known, else of the largest operator."""
    if work.passes:
        return max(one.live for one in work.passes) * DTYPE_BYTES[work.precision]
    return max((operator.read_bytes + operator.write_bytes for operator in work.operators), default=0)
