"""Whether a network computes on this machine, or in a bundle, what ONNX Runtime computes from the same file.

The reference is ONNX Runtime without any optimisation: what the file says, node by node.  Times are those of a session
as users make it, with as many threads as the stage has.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from platform import machine
from tempfile import TemporaryDirectory
from typing import Any

from socsched.api.loading import load_plan, load_platform
from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.compiler.store import read_json
from socsched.descriptor.pipeline import Pipeline, Sensor, Stage
from socsched.descriptor.pipeline_file import onnx_pipeline
from socsched.descriptor.platform import OWN
from socsched.errors import InputError, MachineError, UsageError, extra
from socsched.executor.run_native import execute
from socsched.executor.settings import PLAN, SETTINGS
from socsched.models.onnx_file import OnnxFile, is_taken_as_it_is, with_outputs
from socsched.models.onnx_import import digest, kernel_results
from socsched.models.registry import get_model
from socsched.models.samples import draw
from socsched.models.sizes import sized
from socsched.planning.plan import Plan, Task
from socsched.runtime.backends import plain
from socsched.runtime.input_files import of_files
from socsched.runtime.inputs import Nothing
from socsched.runtime.options import Inputs, Options
from socsched.trace.columns import DONE

HOST = "host"
EXACT = "DISABLE_ALL"
_PERIOD_MS = 100_000
"""Period of the frames while a network is verified: no deadline matters."""
_MOST_OUTPUTS = 64
"""Outputs that a stage of the native executor may have: how many inner values are compared in one build."""
_LEAST_FRAMES, _MOST_FRAMES, _SECONDS = 5, 50, 3.0
"""Runs that are timed: as many as fit this time, within bounds."""
_SPREAD = 4.0
"""How far a value may be from ONNX Runtime's, over what ONNX Runtime differs by from itself: of one kind, not size."""

Arrays = Mapping[str, Any]
Sizes = tuple[tuple[str, ...], tuple[str, ...]]
"""Shapes and dimensions as asked for (`models.sizes`)."""
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Compared:
    """A value as computed here against ONNX Runtime's: `error` is the largest difference over the largest value.

    Of whole numbers and truth values it is the share that differs.  `node` and `op` made the value, "" if unknown.
    `spread`: by how much ONNX Runtime differs from itself, optimised or with inputs one last place away, as in the
    order of equal scores; asked where the error exceeds the tolerance.
    """

    name: str
    shape: tuple[int, ...]
    error: float
    tolerance: float
    node: str = ""
    op: str = ""
    spread: float = 0.0

    @property
    def near(self) -> bool:
        """Return whether the difference is within the tolerance of the precision."""
        return self.error <= self.tolerance

    @property
    def equal(self) -> bool:
        """Return whether it is within the tolerance, or as near as ONNX Runtime is to itself."""
        return self.error <= max(self.tolerance, _SPREAD * self.spread)


@dataclass(frozen=True, slots=True)
class Verified:
    """A network's outputs against ONNX Runtime's, the first inner value that differs, and median times.

    `checked`: inner values compared, with `first` None where all were equal.  `predicted_ns`: the planned time.
    """

    network: str
    place: str
    precision: str
    why: str
    runtime: str
    threads: int
    outputs: tuple[Compared, ...]
    ours_ns: int
    theirs_ns: int
    predicted_ns: int
    first: Compared | None = None
    checked: int = 0

    @property
    def equal(self) -> bool:
        """Return whether every output is equal, and no inner value before them differs."""
        return all(output.equal for output in self.outputs) and self.first is None

    def document(self) -> dict[str, Any]:
        """Return the result as plain data."""
        outputs = [{**asdict(output), "equal": output.equal} for output in self.outputs]
        return {**asdict(self), "outputs": outputs, "equal": self.equal}


def verify(
    network: str | Path,
    place: str | Path = HOST,
    *,
    inputs: Path | None = None,
    precision: str = "auto",
    runtimes: Sequence[str] = (),
    shapes: Sequence[str] = (),
    dims: Sequence[str] = (),
    note: Note = lambda _: None,
) -> Verified:
    """Compare the outputs of an ONNX file, planned and run on this machine or in a bundle, with ONNX Runtime's.

    `place`: "host", or the folder of a bundle for a machine like this one.  `inputs`: an .npz with an array for each
    input, of which the first frame is taken; without it seeded inputs in the range that the first layers expect.  Where
    outputs differ by more than the precision allows, inner values are compared in order, and with what ONNX Runtime
    differs by from itself.  `runtimes`: as of a plan, by
    default socsched's own kernels; `shapes` and `dims` as of a plan: inputs may stay below a bound, and outputs are cut
    to ONNX Runtime's sizes.  Raises InputError for an unusable file, UsageError for a network that has no engine here
    or is not in the bundle, MachineError without ONNX Runtime or a C++ compiler.
    """
    path, sizes = Path(network), (tuple(shapes), tuple(dims))
    _require_reference()
    pipeline = _pipeline(path, sizes)
    with TemporaryDirectory(prefix="socsched-verify-") as scratch:
        folder = Path(scratch)
        feed = _feed(pipeline.stages[0], inputs, folder)
        reference = _Reference(path, sizes, filled=str(place) != HOST)
        expected = reference.outputs(feed)
        own = _Own(precision, tuple(runtimes), folder, sizes)
        if str(place) == HOST:
            verified = own.verified(path, pipeline, feed, expected)
        else:
            verified = _in_bundle(path, Path(place), pipeline.stages[0], feed, expected, own)
            own = replace(own, precision=verified.precision)
        if verified.equal:
            return verified
        note("the outputs differ: comparing inner values")
        outputs = _with_spread(verified.outputs, reference, feed, expected)
        first, checked = _first_difference(path, pipeline.stages[0], feed, own, note)
        return replace(verified, outputs=outputs, first=first, checked=checked)


def _pipeline(file: Path, sizes: Sizes) -> Pipeline:
    return sized(onnx_pipeline(file, _PERIOD_MS), *sizes)


def _require_reference() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise MachineError(f"verify needs the package {error.name}", extra("verify")) from None


def _feed(stage: Stage, inputs: Path | None, folder: Path) -> Path:
    """Return the file of a network's inputs: the given one, checked, or one of seeded inputs."""
    import numpy as np

    if inputs is None:
        inputs = folder / "inputs.npz"
        arrays: dict[str, Any] = draw(get_model(stage.model or "", stage.params), np.random.default_rng(0))
        np.savez(inputs, **arrays)
    elif inputs.suffix != ".npz":
        raise UsageError(
            f"{inputs}: expected an .npz file with an array for each input", "numpy.savez(FILE, NAME=array)"
        )
    return inputs


def arrays_of(stage: Stage, feed: Path, filled: bool = True) -> dict[str, Any]:
    """Return the first frame of a file of arrays for the inputs of a stage, by port, `filled` up to their bounds."""
    model = get_model(stage.model or "", stage.params)
    ports = {port.name: port.type for port in model.inputs}
    least = {port.name: port.least for port in model.inputs if port.least}
    files = of_files([feed], ports, Nothing(), Sensor("frames", "frames", 10**8), least=least)
    if files is None:
        raise InputError(f"{feed}: no array has the name of an input", f"inputs: {', '.join(ports)}")
    files.filled = filled
    return dict(files.frame(0).outputs)


class _Reference:
    """ONNX Runtime on this machine's processor."""

    def __init__(self, file: Path, sizes: Sizes, filled: bool = False) -> None:
        self.file, self.sizes, self.filled = file, sizes, filled

    def session(self, level: str = "ENABLE_ALL", threads: int = 0) -> Any:
        """Return a session: DISABLE_ALL optimisation, ENABLE_EXTENDED, or all of it, as users have it."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
        if level == EXACT:
            # sums of byte products saturate on x86-64 processors without VNNI otherwise
            options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            plain = is_taken_as_it_is(self.file)
            model = str(self.file) if plain else OnnxFile(self.file).model.SerializeToString()
            return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"], enable_fallback=0)
        except Exception as error:  # its errors have no common class
            raise MachineError(f"ONNX Runtime does not take {self.file.name}: {_line(error)}") from None

    def outputs(self, feed: Path) -> dict[str, Any]:
        """Return the outputs by name for the inputs in a file."""
        session = self.session(EXACT)
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, _run(session, self.arrays(feed)), strict=True))

    def spread(self, feed: Path, expected: Arrays) -> dict[str, float]:
        """Return by how much outputs differ, by name, in an optimised session and with inputs one last place away.

        Some files ONNX Runtime does not take optimised, where inner values leave them.
        """
        import numpy as np

        arrays = self.arrays(feed)
        nudged = {n: np.nextafter(a, a.dtype.type(np.inf)) if a.dtype.kind == "f" else a for n, a in arrays.items()}
        others = [dict(zip(expected, _run(self.session(EXACT), nudged), strict=True))]
        for level in ("ENABLE_EXTENDED", "ENABLE_ALL"):
            with suppress(MachineError):
                others.append(dict(zip(expected, _run(self.session(level), arrays), strict=True)))

        def apart(name: str, value: Any) -> float:
            return max(_error(one[name], value) if one[name].shape == value.shape else np.inf for one in others)

        return {name: apart(name, value) for name, value in expected.items()}

    def arrays(self, feed: Path) -> dict[str, Any]:
        """Return the inputs as ONNX Runtime takes them."""
        return arrays_of(_pipeline(self.file, self.sizes).stages[0], feed, self.filled)

    def median_ns(self, feed: Path, threads: int, expected_ns: int) -> int:
        """Return the median time of a run."""
        session, arrays = self.session(threads=threads), self.arrays(feed)
        times = []
        for _ in range(_count(expected_ns) + 1):  # the first one allocates
            begun = time.perf_counter_ns()
            _run(session, arrays)
            times.append(time.perf_counter_ns() - begun)
        return _median(times[1:])


def _run(session: Any, arrays: Arrays) -> Any:
    try:
        return session.run(None, dict(arrays))
    except Exception as error:  # its errors have no common class
        raise MachineError(f"ONNX Runtime cannot run the network: {_line(error)}") from None


def _line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()[:300]


@dataclass(frozen=True, slots=True)
class _Own:
    """The network planned, compiled and run on this machine."""

    precision: str
    runtimes: tuple[str, ...]
    folder: Path
    sizes: Sizes

    def plan(self, pipeline: Pipeline) -> Plan:
        """Return the plan of a network on this machine; UsageError with the reasons where it has no engine."""
        choice = any(engine.runtimes for engine in load_platform(HOST).engines)
        runtimes = self.runtimes or ((OWN,) if choice else ())
        options = PlanOptions(precisions=(self.precision,), runtimes=runtimes, cuts=False, explain=False, refine=False)
        plan = plan_with(pipeline, HOST, None, options)
        if not plan.tasks and not self.runtimes:  # an operator that our kernels do not compute
            plan = plan_with(pipeline, HOST, None, replace(options, runtimes=()))
        if not plan.tasks:
            reasons = "; ".join(violation.requirement for violation in plan.violations)
            raise UsageError(f"{pipeline.name}: nothing to verify: {reasons}", "see `socsched plan`")
        return plan

    def outputs(self, pipeline: Pipeline, plan: Plan, feed: Path) -> dict[str, Any]:
        """Return the outputs of a network for the inputs in a file."""
        found: dict[str, Any] = {}

        def see(stage: str, frame: int, outputs: Mapping[str, Any]) -> None:
            if frame == 0:
                found.update({port: plain(value) for port, value in outputs.items()})

        execute(plan, pipeline, Inputs([feed], frames=1), Options(pace="asap", alone=True, observe=see))
        if not found:
            raise MachineError(f"{pipeline.name}: the run gave no outputs", "see `socsched run`")
        return found

    def median_ns(self, pipeline: Pipeline, plan: Plan, feed: Path) -> int:
        """Return the median time of a job."""
        frames = _count(plan.tasks[0].cost_ns) + 1
        trace = execute(plan, pipeline, Inputs([feed], frames=frames), Options(pace="asap", alone=True))
        jobs = trace.columns.jobs
        done = jobs.status == DONE
        return _median((jobs.finish_ns - jobs.start_ns)[done].tolist()[1:])

    def verified(self, path: Path, pipeline: Pipeline, feed: Path, wanted: Arrays) -> Verified:
        """Return the network's outputs against those wanted, and times."""
        plan = self.plan(pipeline)
        outputs = self.outputs(pipeline, plan, feed)
        task = plan.tasks[0]
        ours = self.median_ns(pipeline, plan, feed)
        theirs = _Reference(path, self.sizes).median_ns(feed, len(task.lanes), ours)
        stage = pipeline.stages[0]
        compared = _compared(outputs, wanted, _tolerance(stage, task.precision), _steps(stage, wanted))
        return _verified(path, HOST, task, compared, (ours, theirs))


def _verified(path: Path, place: str, task: Task, outputs: tuple[Compared, ...], times: tuple[int, int]) -> Verified:
    how = (task.precision, task.why, task.runtime, len(task.lanes))
    return Verified(str(path), place, *how, outputs, *times, task.cost_ns)


def _tolerance(stage: Stage, precision: str) -> float:
    """Return the tolerance of a precision; that of int8 for a network that rounds to bytes at run time."""
    from socsched.executor.references import tolerance_of

    return tolerance_of("int8" if get_model("onnx", stage.params).rounds else precision)


def _steps(stage: Stage, wanted: Arrays) -> dict[str, float]:
    """Return the step of each output that the file quantises, over the output's largest value: it may differ by one."""
    import numpy as np

    model = get_model("onnx", stage.params)
    if model.network is None or model.quantised is None:
        return {}
    scales, layers = model.quantised().values, model.network().outputs
    steps = {port.name: scales[layer][0] for port, layer in zip(model.outputs, layers, strict=True) if layer in scales}
    return {name: step / (float(np.abs(wanted[name]).max(initial=0)) or 1.0) for name, step in steps.items()}


def _compared(
    outputs: Arrays, expected: Arrays, tolerance: float, steps: Mapping[str, float] | None = None
) -> tuple[Compared, ...]:
    return tuple(
        Compared(
            name, tuple(array.shape), _error(outputs[name], array), max(tolerance, 1.01 * (steps or {}).get(name, 0.0))
        )
        for name, array in expected.items()
    )


def _with_spread(
    outputs: tuple[Compared, ...], reference: _Reference, feed: Path, expected: Arrays
) -> tuple[Compared, ...]:
    """Return compared values with what ONNX Runtime differs by from itself, where one exceeds the tolerance."""
    if all(one.near for one in outputs):
        return outputs
    spread = reference.spread(feed, expected)
    return tuple(replace(one, spread=spread[one.name]) for one in outputs)


def _error(output: Any, expected: Any) -> float:
    """Return the largest difference over the largest value, of whole numbers the share that differs."""
    import numpy as np

    output = np.asarray(output)
    if output.ndim == expected.ndim:  # a result whose size depends on values is filled up to its largest size
        output = output[tuple(slice(size) for size in expected.shape)]
    output = output.reshape(expected.shape)
    if not expected.size:
        return 0.0
    if expected.dtype.kind != "f":
        return float(np.mean(output.astype(np.int64) != expected.astype(np.int64)))
    ours, theirs = output.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True) or not np.isfinite(ours[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    largest = float(np.abs(theirs[finite]).max())
    return float(np.abs(ours - theirs)[finite].max()) / (largest or 1.0)


def _first_difference(path: Path, stage: Stage, feed: Path, own: _Own, note: Note) -> tuple[Compared | None, int]:
    """Return the first inner value that differs, None if none does once they all leave, and the number compared.

    Both sides compute the same file with more outputs; intervals are narrowed until neighbours are found.
    """
    made = {name for node in OnnxFile(path, values=False, plugins=True).model.graph.node for name in node.output}
    inner = [item for item in kernel_results(stage.params) if item.name in made]  # none of a branch or a turn
    outputs = {item.name for item in inner} & {port.name for port in get_model("onnx", stage.params).outputs}
    equal, differs, first, checked = -1, len(inner), None, set[str]()
    at_once = max(_MOST_OUTPUTS - len(outputs), 1)
    while differs - equal > 1:
        step = -(-(differs - equal - 1) // at_once)
        places = list(range(equal + step, differs, step))
        note(f"comparing {len(places)} of {len(inner)} values")
        more = [inner[place].name for place in places if inner[place].name not in outputs]
        file = with_outputs(path, more, own.folder / f"cut-{len(checked)}" / path.name)
        pipeline = _pipeline(file, own.sizes)
        plan = own.plan(pipeline)
        ours, reference = own.outputs(pipeline, plan, feed), _Reference(file, own.sizes, filled=True)
        theirs = reference.outputs(feed)
        values = _compared(ours, theirs, _tolerance(stage, plan.tasks[0].precision))
        compared = {one.name: one for one in _with_spread(values, reference, feed, theirs)}
        checked |= compared.keys()
        apart = next((place for place in places if not compared[inner[place].name].equal), None)
        if apart is None:
            equal = places[-1]
        else:
            first = replace(compared[inner[apart].name], node=inner[apart].node, op=inner[apart].op)
            differs, equal = apart, max((place for place in places if place < apart), default=equal)
    return first, len(checked)


def _in_bundle(path: Path, folder: Path, own: Stage, feed: Path, wanted: Arrays, how: _Own) -> Verified:
    """Return the outputs that the program of a bundle computes against those wanted."""
    from socsched.executor.application import program_of
    from socsched.executor.references import write_expected

    plan = load_plan(folder / PLAN)
    sha256 = digest(path)
    tasks = [task for task in plan.tasks if task.params.get("sha256") == sha256]
    if not tasks:
        networks = [f"{task.name} ({task.params['file']})" for task in plan.tasks if "sha256" in task.params]
        raise UsageError(
            f"{folder}: no stage of the bundle is the network {path.name} (by its sha256)",
            f"its networks: {', '.join(networks) or 'none'}",
        )
    if len(tasks) > 1 or "part" in tasks[0].params:
        raise UsageError(f"{folder}: the bundle has {path.name} in parts", "plan it with --no-cuts")
    task, program = tasks[0], program_of(folder, machine())
    settings = read_json(folder / SETTINGS)
    sensors = {name: len(frames["ports"]) for name, frames in settings["inputs"].items()}
    inputs = list(arrays_of(own, feed).values())
    file = write_expected(task.name, settings["stages"], sensors, inputs, list(wanted.values()), how.folder)
    command = [str(program), str(folder / SETTINGS), "--selftest", str(file)]
    command += ["--repeat", str(_count(task.cost_ns))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    said = re.search(rf"^{re.escape(task.name)}: (.*?)[,(] ?([\d.]+) ms\)?$", ended.stdout, re.MULTILINE)
    if said is None:
        raise MachineError(f"{folder}: its program does not run here: {(ended.stderr or ended.stdout).strip()[:300]}")
    ours = round(float(said[2]) * 1e6)
    theirs = _Reference(path, how.sizes).median_ns(feed, len(task.lanes), ours)
    outputs = _said(said[1], wanted, _tolerance(own, task.precision))
    return _verified(path, str(folder), task, outputs, (ours, theirs))


def _said(text: str, wanted: Arrays, tolerance: float) -> tuple[Compared, ...]:
    """Return the outputs as the self-test of a bundle, which tolerates nothing, describes their differences."""
    told = {int(port): what for port, what in re.findall(r"output (\d+) ([^;]*)", text)}
    compared = []
    for port, (name, array) in enumerate(wanted.items()):
        by = re.search(r"differs by up to (\S+), where values reach (\S+)", told.get(port, ""))
        error = float(by[1]) / (float(by[2]) or 1.0) if by else float("inf") if port in told else 0.0
        compared.append(Compared(name, tuple(array.shape), error, tolerance))
    return tuple(compared)


def _count(expected_ns: int) -> int:
    return int(min(max(_SECONDS * 1e9 / max(expected_ns, 1), _LEAST_FRAMES), _MOST_FRAMES))


def _median(times: Sequence[int]) -> int:
    return sorted(times)[len(times) // 2] if times else 0
