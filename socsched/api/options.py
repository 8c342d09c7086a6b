"""Options of planning, simulating and running, declared once: a field says what the command line shows of it.

`option` and `argument` make such fields of frozen dataclasses; `socsched.cli.verbs` makes the parameters of verbs from
them.  Nothing here depends on the command line, so that people who call socsched from Python load none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.errors import UsageError
from socsched.planning.clock import EVALUATIONS, LEAST

if TYPE_CHECKING:
    from socsched.cost.profile import Profile


class Whole:
    """Kind of an option: a whole number of at least `least`, and at most `most`."""

    def __init__(self, least: int, most: int | None = None) -> None:
        self.least, self.most = least, most


class Real:
    """Kind of an option: a number of at least `least`."""

    def __init__(self, least: float) -> None:
        self.least = least


Kind = str | tuple[str, ...] | Whole | Real
"""Kind of an option: the choices, a range, or the name of what is expected ("duration", "file", "engine", ...)."""


@dataclass(eq=False, repr=False)
class Option:
    """What the command line shows of a field; without flags it is an argument.

    `default`: what is taken where nothing is given, None for the field's own default, which then is not shown.
    `name`: the parameter, which also names its environment variable (SOCSCHED_VERB_NAME); "" for the field's name.
    `convert` makes the field's value from the given one.  `act`: a flag that does this at once and ends the command.
    """

    flags: tuple[str, ...] = ()
    kind: Kind | None = None
    help: str | None = None
    name: str = ""
    default: Any = None
    shown: bool | str = False
    multiple: bool = False
    required: bool = False
    metavar: str | None = None
    envvar: str | None = None
    convert: Callable[[Any], Any] | None = None
    act: Callable[[Any], None] | None = None


def option(*flags: str, default: Any = None, shown: bool | str = False, own: Any = MISSING, **how: Any) -> Any:
    """Return the field of an option; `default` is the command line's and the field's, unless that has its `own`."""
    if own is MISSING:
        own = default if default is not None else False if how.get("kind") == "flag" else None
        own = () if own is None and how.get("multiple") else own
    return field(default=own, metadata={"option": Option(flags, default=default, shown=shown, **how)})


def argument(kind: Kind | None = None, *, required: bool = True, **how: Any) -> Any:
    """Return the field of an argument."""
    return field(default=None, metadata={"option": Option((), kind, required=required, **how)})


def shared(request: type, name: str) -> Any:
    """Return a field of another request again."""
    own = next(each for each in fields(request) if each.name == name)
    return field(default=own.default, metadata=own.metadata)


def requested(request: type) -> Any:
    """Return the field that holds another request, whose options take its place."""
    return field(default=None, metadata={"request": request})


def settings_of(texts: Sequence[str]) -> dict[str, str]:
    """Return OPTION=VALUE texts as a mapping; UsageError for anything else."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"-O {text}: expected OPTION=VALUE")
        settings[name] = value
    return settings


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of planning, in addition to the pipeline, the platform and the mode.

    `evaluations`: None for no limit but the searches' own; the first of several takes a third at most.  A plan that
    `time_limit` (s) cut off says so (`solver.cut_off`), since it depends on the speed of the machine.  `explain`: add
    conflicts, levers and uncertainties.  Caps on mean power (mW) and DRAM traffic (bytes/s) apply in addition to those
    of the mode.
    """

    objective: str = option(
        "--objective", kind="objectives", default="latency", shown=True,
        help="Objectives among mappings that meet the deadlines; the first is the most important.",
    )  # fmt: skip
    policy: str = option(
        "--policy", kind=("auto", "edf", "fp"), default="auto", shown=True,
        help="Scheduling policy of preemptive engines; auto: EDF, and fixed priorities if no plan is found.",
    )  # fmt: skip
    profile: Path | Profile | None = option(
        "--profile", name="profile_file", kind="file", help="Measured stage costs from `socsched profile`."
    )
    solver: str = option(
        "--solver", kind=("portfolio", "auto", "heft", "restarts", "cpsat"), default="portfolio", shown=True,
        help="heft: list schedule and local search; restarts: local searches from many mappings; cpsat: OR-Tools, for "
        "a proof or a better mapping; auto: cpsat if installed; portfolio: heft, then the others until a plan is "
        "feasible.",
    )  # fmt: skip
    planner: str = option(
        "--planner", metavar="NAME", own="",
        help="Planner of the literature or of an installed package, instead of the built-in search; best: the planner "
        "whose plan simulates best, the built-in search included.",
    )  # fmt: skip
    settings: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "option": Option(
                ("-O",), multiple=True, metavar="OPTION=VALUE", help="Option of the --planner.", convert=settings_of
            )
        },
    )
    pins: tuple[str, ...] = option(
        "--pin", kind="pin", multiple=True, metavar="STAGE=ENGINE",
        help="Run a stage on this engine (or kind) only, without cutting it.",
    )  # fmt: skip
    prefers: tuple[str, ...] = option(
        "--prefer", kind="pin", multiple=True, metavar="STAGE=ENGINE[,ENGINE]",
        help="Run the layers of a stage on this engine as far as it supports them, the others elsewhere.",
    )  # fmt: skip
    deadlines: tuple[str, ...] = option(
        "--deadline", kind="pin", multiple=True, metavar="CHAIN=TIME",
        help="Another deadline for a chain, such as lidar-to-command=150ms.",
    )  # fmt: skip
    runtimes: tuple[str, ...] = option(
        "--runtime", multiple=True, metavar="[ENGINE=]NAME",
        help="Program that computes networks where an engine has several, such as tvm for this project's kernels.  "
        "[default: the fastest]",
    )  # fmt: skip
    precisions: tuple[str, ...] = option(
        "--precision", multiple=True, metavar="[STAGE=]auto|int8|fp16|fp32",
        help="Data type of all networks, or of one; auto: among a stage's `precisions`, or as its file's integers.  "
        "[default: the pipeline's precision, or auto]",
    )  # fmt: skip
    shapes: tuple[str, ...] = option(
        "--shape", multiple=True, metavar="INPUT=1x3x640x640", help="Sizes of an input that an ONNX file leaves open."
    )
    dims: tuple[str, ...] = option(
        "--dim", multiple=True, metavar="NAME=[LEAST..]MOST",
        help="Size of a dimension that an ONNX file leaves open, by its name; planned and compiled at its bound.",
    )  # fmt: skip
    robust: bool = option(
        "--robust", kind="flag",
        help="Plan for the upper ends of all costs' intervals: a feasible plan holds for every cost within them.",
    )  # fmt: skip
    cuts: bool = option(
        "--cuts/--no-cuts", default=True, shown=True, help="Cut networks between engines where this improves the plan."
    )
    shares: tuple[str, ...] = option(
        "--shares", multiple=True, metavar="auto|ENGINE=GROUPS",
        help="Divide engines that declare it: the most urgent stages there have so many groups of units (SMs, cores), "
        "all others the rest; auto: the best of a few shares, or whole engines.",
    )  # fmt: skip
    memory: tuple[str, ...] = option(
        "--memory", multiple=True, metavar="ENGINE=SIZE",
        help="Keep at most so much of networks on an engine, such as gpu=128MiB: the others are loaded before their "
        "jobs, by its copy engine.",
    )  # fmt: skip
    steady: bool = option(
        "--steady", kind="flag",
        help="Pin the clock of each engine at the point that spends least while every bound holds, instead of racing "
        "to idle at the mode's.",
    )  # fmt: skip
    refine: bool = option(
        "--refine/--no-refine", default=True, shown=True,
        help="Simulate the plan and plan again with the simulated times, until nothing changes.",
    )  # fmt: skip
    power_cap: int | None = option(
        "--power-cap", kind="power", help="Limit on mean power, such as 20W, in addition to the mode's cap."
    )
    bandwidth_cap: int | None = option(
        "--bandwidth-cap", kind="bandwidth", help="Limit on DRAM traffic, such as 50GB/s."
    )
    evaluations: int | None = option(
        "--evaluations", kind=Whole(LEAST), default=EVALUATIONS, shown=True,
        help="Budget of all searches, in mappings analysed: the same plan on every machine.",
    )  # fmt: skip
    time_limit: float | None = option(
        "--time-limit", kind=Real(0.1),
        help="Guard rail in seconds: a plan whose search it cut off says so, since another run may give another.  "
        "[default: none]",
    )  # fmt: skip
    explain: bool = True


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimulateOptions:
    """Options of the simulation of a plan, in addition to its length."""

    seed: int = option(
        "--seed", kind=Whole(0), default=0, shown=True, envvar="SOCSCHED_SEED", help="Seed of all random numbers."
    )
    faults: Path | None = option(
        "--faults", name="faults_file", kind="file",
        help="YAML file with sensor faults, slow, stalled or dead engines, overruns, foreign traffic.",
    )  # fmt: skip
    governor: str = option(
        "--governor", kind=("static", "ccedf", "load"), default="static", shown=True,
        help="Clock governor: none, cycle-conserving EDF up to the planned clock, or load, which follows the busy "
        "share of time as an engine's `governor` states.",
    )  # fmt: skip


INPUTS = "File with frames, or a folder of them: scans (.bin), images, .npz with arrays by port name, .mcap."
EXECUTORS = ("auto", "event-chained", "native", "sequential", "stream-per-frame", "shared-queue")
BOARDS = ("local", "jetson")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunOptions:
    """How a plan runs: for how long, with which inputs, executor, real time, faults, overload, spare plans, board.

    `frames`: of the LiDAR, or of the first sensor if there is none; alternatively a `duration` (ns); without either,
    all files of `inputs`.  `pace` False releases frames as fast as they complete.
    """

    frames: int | None = option(
        "--frames", kind=Whole(1), help="Number of frames of the first sensor; default: all files of --input."
    )
    duration: int | None = option(
        "--duration", kind="duration", help="Run for this duration instead of a number of frames."
    )
    inputs: Path | Sequence[Path] | None = option("--input", name="input_path", kind="path", help=INPUTS)
    topics: tuple[tuple[str, str], ...] = option(
        "--topic", kind="pair", multiple=True, metavar="SENSOR=TOPIC",
        help="Topic that feeds a sensor from an .mcap file of --input, if several could.",
    )  # fmt: skip
    weights: Path | None = option(
        "--weights", kind="path", envvar="SOCSCHED_WEIGHTS",
        help=".npz file with weights; default: seeded random weights.",
    )  # fmt: skip
    scales: Path | None = option(
        "--scales", kind="path", help="JSON file with int8 scales, as `socsched calibrate` writes it."
    )
    pace: bool = option(
        "--pace/--no-pace", default=True, shown=True,
        help="Release frames at the sensor's rate, or as fast as possible.",
    )  # fmt: skip
    loop: bool = option("--loop", kind="flag", help="With --duration: repeat the files of --input.")
    stats: bool = option("--stats", kind="flag", help="Record tensor statistics of every stage (slower).")
    executor: str = option(
        "--executor", kind=EXECUTORS, default=EXECUTORS[0], shown=True,
        help="Execute as planned (auto, event-chained and native are the same), or with a simpler executor for "
        "comparison.",
    )  # fmt: skip
    in_flight: int = option(
        "--in-flight", kind=Whole(1, 64), default=1, shown=True, help="With --no-pace: frames in flight at once."
    )
    steal: bool = option(
        "--steal", kind="flag", help="Idle engine slots take jobs of equal slots (not covered by the bounds)."
    )
    shield: bool = option(
        "--shield", kind="flag", help="Hold back less critical jobs while more critical ones are active."
    )
    awake: int | None = option(
        "--awake", kind="duration",
        help="How long workers stay awake for an expected job; default: 300us under real-time scheduling, else 0.",
    )  # fmt: skip
    realtime: str = option(
        "--realtime", kind=("off", "auto", "fifo", "deadline"), default="off", shown=True,
        help="Scheduling class of the workers; also locks memory. auto: fifo if a core is left for other programs.",
    )  # fmt: skip
    faults: Path | None = option("--faults", name="faults_file", kind="file", help="YAML file with faults to inject.")
    overload: Path | None = option(
        "--overload", name="overload_file", kind="file", help="YAML file with overload policies per stage."
    )
    limp_home: tuple[str, ...] = option(
        "--limp-home", multiple=True, metavar="PLAN.json|BOOK|auto",
        help="Plan that takes over when an engine fails, or the folder of a book with such plans; auto: make them "
        "before the run.",
    )  # fmt: skip
    hang_after: int | None = option(
        "--hang-after", kind="duration", help="A job that runs longer than this counts as hung."
    )
    board: str = option("--board", kind=BOARDS, default=BOARDS[0], shown=True, help="Kind of this machine.")
    apply_mode: bool = option("--apply-mode", kind="flag", help="Set a Jetson to the plan's power mode.")
    seed: int = shared(SimulateOptions, "seed")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CompileOptions:
    """Which stages are compiled, and with which weights and scales."""

    stage: str | None = option("--stage", kind="stage", help="Compile only this stage.")
    engine: str | None = option("--engine", kind="engine", help="Compile only for this engine.")
    part: str | None = option(
        "--part", help="With --stage: compile only the layers between two cuts, BEGIN:END (layer names joined by +)."
    )
    weights: Path | None = option("--weights", kind="path", envvar="SOCSCHED_WEIGHTS", help=".npz file with weights.")
    scales: Path | None = option(
        "--scales", kind="path", help="JSON file with INT8 scales, as `socsched calibrate` writes it."
    )
    qdq: bool = option(
        "--qdq", kind="flag", help="Also write int8 stages as ONNX files with Q/DQ and the same integers."
    )
    check: bool = option("--check", kind="flag", help="Instead: check the bundle in this folder; nothing is compiled.")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FitOptions:
    """What a platform's cost model is fitted to: measured times with the networks, profiles, and single anchors."""

    measurements: tuple[Path, ...] = option(
        "--measurements", kind="path", multiple=True, metavar="PAIRS.csv", help="Measured times; may be repeated."
    )
    networks: Path | None = option(
        "--networks", kind="path", metavar="DIR", help="Folder with NAME.onnx or NAME.onnx.xz."
    )
    profiles: tuple[Path, ...] = option(
        "--profile", kind="path", multiple=True, help="Times of `socsched profile`; with --pipeline."
    )
    pipeline: str | None = option("--pipeline", kind="pipeline", help="Pipeline whose stages the profiles time.")
    engine: str | None = option("--engine", metavar="ID", help="Fit this engine only.")
    precision: str | None = option("--precision", help="Fit this precision only.")
    mode: str | None = option("--mode", help="Power mode of the anchors; default: the platform's.")
    anchors: tuple[str, ...] = option(
        "--anchor", multiple=True, metavar="NETWORK=TIME", help="One measured time; may be repeated."
    )
    family: str | None = option(
        "--family", metavar="NAME", help="Engine family, where the descriptor does not tell it."
    )
    exclude: tuple[str, ...] = option(
        "--exclude", multiple=True, metavar="PATTERN", help="Leave out rows, e.g. 'engine=gpu,source=a/*|b/*'."
    )
    hosts: tuple[str, ...] = option(
        "--host", multiple=True, metavar="PATTERN=LAUNCH+SUBMIT", help="Rows under a known host program."
    )
    joined: tuple[str, ...] = option(
        "--joined", multiple=True, metavar="PATTERN", help="Rows that used all clusters of the same core."
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProfileOptions:
    """How stages are measured; with `until`, as often as their medians need to reach that relative interval."""

    repeat: int = option("--repeat", kind=Whole(1), default=10, own=5, shown=True, help="Measurements per stage.")
    until: float | None = option(
        "--until", kind="percent", help="Repeat until every median is known to this precision, e.g. 2%."
    )
    contention: bool = option("--contention", kind="flag", help="Also measure the slowdown of co-running stages.")
    vendor_model: bool = option(
        "--vendor-model", kind="flag", help="No run: take the cycles that the vendor's compiler expects."
    )
    conversions: bool = option("--conversions", kind="flag", help="Also measure conversions of the stages' tensors.")
    inputs: Path | Sequence[Path] | None = shared(RunOptions, "inputs")
    weights: Path | None = option("--weights", kind="path", envvar="SOCSCHED_WEIGHTS", help=".npz file with weights.")
    seed: int = shared(SimulateOptions, "seed")
    shapes: tuple[str, ...] = shared(PlanOptions, "shapes")
    dims: tuple[str, ...] = shared(PlanOptions, "dims")
