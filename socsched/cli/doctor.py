"""`socsched doctor`, `plugins`, `completion`: what works here, what is registered, what a shell completes.

Optional dependencies are in one list, `OPTIONAL`; `make help` is tested against it.  A test that needs one of
them names it (`pytest.mark.needs`) and is skipped without it, one line per tool: ninety lines are too long to read.
"""

from __future__ import annotations

import os
import platform as system
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import click

from socsched import __version__, resources
from socsched.api.options import argument, option
from socsched.cli.options import quick, skip_probe
from socsched.cli.output import Output, echo, table
from socsched.cli.verbs import Request, verb
from socsched.errors import EXIT_MACHINE, EXIT_OK, MachineError, UsageError, extra

NEEDED_BYTES = 1_500_000_000


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: `status` ok | missing (not installed) | broken (installed but not working).

    `remedy`: the command that fixes it, "" if none is needed.  `main`: required for the main workflow.
    """

    name: str
    status: str
    found: str
    enables: str
    remedy: str = ""
    main: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """An optional tool: its purpose, its installation command, and a remark.

    It is present if one of `programs` is on PATH or the Python package `package` is installed; a tool with neither
    has a custom check.
    """

    name: str
    enables: str
    install: str
    remark: str = ""
    programs: tuple[str, ...] = ()
    package: str = ""

    @property
    def remedy(self) -> str:
        return f"{self.install} ({self.remark})" if self.remark else self.install

    def ok(self, found: str) -> Check:
        """Return the finding that the tool is present."""
        return Check(self.name, "ok", found, self.enables)

    def missing(self, found: str) -> Check:
        """Return the finding that the tool is missing."""
        return Check(self.name, "missing", found, self.enables, self.remedy)

    def broken(self, found: str, remedy: str = "") -> Check:
        """Return the finding that the tool does not work; `remedy` replaces the installation command."""
        return Check(self.name, "broken", found, self.enables, remedy or self.remedy)

    def look(self) -> Check:
        """Return whether the tool's program or package is present."""
        if self.package:
            try:
                return self.ok(metadata.version(self.package))
            except metadata.PackageNotFoundError:
                return self.missing("not installed")
        path = next((found for name in self.programs if (found := shutil.which(name))), None)
        return self.ok(path) if path else self.missing("none on PATH")


LIMITS = "/etc/security/limits.d/socsched.conf"
LLVM_MCA = ("llvm-mca-22", "llvm-mca-19", "llvm-mca-18", "llvm-mca-17", "llvm-mca-16", "llvm-mca")

OPTIONAL: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("OR-Tools", "plan --solver cpsat", extra("solver"), package="ortools"),
        Tool("ONNX", "reading and writing ONNX files", extra("onnx"), package="onnx"),
        Tool("ONNX Runtime", "verify", extra("verify"), package="onnxruntime"),
        Tool("Parquet", "sweep, fleet", extra("sweep"), package="pyarrow"),
        Tool("Ray", "sweeps over several hosts", extra("cluster"), package="ray"),
        Tool("MCAP", "recordings as input, results for Foxglove", extra("mcap"), package="mcap"),
        Tool("rosbags", "rates of topics in bags of ROS 1", extra("ros1"), package="rosbags"),
        Tool("ROS 2", "the node socsched-ros", extra("ros2"), package="ros-rclpy"),
        Tool("pygls", "lint --lsp, for editors", extra("lsp"), package="pygls"),
        Tool("PyTorch", "training networks, and its tests", "pip install torch", package="torch"),
        Tool(
            "aarch64 compiler",
            "linking for Arm boards",
            "sudo apt-get install -y g++-aarch64-linux-gnu",
            "without it, objects for the board are built but not linked",
            ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc", "aarch64-none-linux-gnu-g++"),
        ),
        Tool(
            "Zig",
            "executors for boards with glibc 2.31",
            extra("boards"),
            "without it, they need the glibc of the aarch64 compiler",
            package="ziglang",
        ),
        Tool(
            "aarch64 emulator",
            "running Arm code in tests",
            "sudo apt-get install -y qemu-user",
            "without it, code for Arm boards is built but not run",
            ("qemu-aarch64",),
        ),
        Tool(
            "llvm-mca",
            "predicting the speed of Arm code in tests",
            "sudo apt-get install -y llvm-19",
            "16 or newer",
            LLVM_MCA,
        ),
        Tool(
            "nvcc",
            "CUDA code for NVIDIA boards",
            "install the CUDA toolkit",
            "12.x for JetPack 6, 13.x for JetPack 7; planning and simulating need no toolkit",
            ("nvcc", "/usr/local/cuda/bin/nvcc"),
        ),
        Tool("GPU", "running stages on a GPU", "sudo apt-get install -y nvidia-driver"),
        Tool("TensorRT", "stages on a DLA", "sudo apt-get install -y python3-libnvinfer"),
        Tool(
            "OpenCL",
            "running OpenCL kernels here",
            "sudo apt-get install -y pocl-opencl-icd",
            "PoCL runs on the CPU; a GPU driver has its own runtime; building kernels needs neither",
        ),
        Tool(
            "HTP compiler",
            "compile and simulate --vendor-sim for Qualcomm's NPUs",
            extra("qualcomm") + " && socsched doctor --install qualcomm",
            "600 MB, under Qualcomm's licence; without it, stages are handed over with build scripts",
        ),
        Tool(
            "RKNN compiler",
            "compile and simulate --vendor-sim for RK3588's NPU",
            extra("rockchip") + " && socsched doctor --install rockchip",
            "700 MB, under Rockchip's terms; without it, stages are handed over with build scripts",
        ),
        Tool(
            "real time",
            "run --realtime",
            f"printf '%s - rtprio 99\\n%s - memlock unlimited\\n' $USER $USER | sudo tee {LIMITS}",
            "then log in again",
        ),
        Tool(
            "power sensors",
            "power in results",
            "nothing to install",
            "without sensors, results state that power was not observed",
        ),
        Tool(
            "Chromium",
            "tests of the report in a browser",
            "sudo apt-get install -y chromium",
            programs=("chromium", "chromium-browser", "google-chrome"),
        ),
    )
}
"""Tools by name, in the order of `doctor`'s rows."""


def _required(name: str, good: bool, found: str, enables: str, remedy: str, bad: str = "broken") -> Check:
    """Return the finding of something that the main workflow needs."""
    return Check(name, "ok" if good else bad, found, enables, "" if good else remedy, True)


def _python() -> Check:
    good = sys.version_info >= (3, 10)
    return _required("python", good, system.python_version(), "everything", "use Python 3.10 or newer")


def _tvm() -> Check:
    from socsched.compiler.store import PINNED

    versions: dict[str, str] = {}
    for package in PINNED:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "none"
    remedy = "pip install " + " ".join(f"{name}=={version}" for name, version in PINNED.items())
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return _required("tvm", versions == dict(PINNED), listed, "compile, run, plan", remedy)


def _compiler() -> Check:
    candidates = [os.environ.get("CXX", ""), "g++", "clang++", "c++"]
    path = next((found for name in candidates if name and (found := shutil.which(name))), None)
    remedy, needed = "sudo apt-get install -y build-essential", "linking compiled stages"
    return _required("C++ compiler", path is not None, path or "none on PATH", needed, remedy, "missing")


def _cache() -> Check:
    import tempfile

    from socsched.cache import cache_dir

    try:
        folder = cache_dir()
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except (MachineError, OSError) as error:
        remedy = "make the folder writable, or set SOCSCHED_CACHE to a writable folder"
        return _required("artefact cache", False, str(error), "compile, run", remedy)
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return _required("artefact cache", True, f"{folder} ({used / 1e6:.0f} MB)", "reuse of compiled stages", "")


def _disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    remedy, listed = "free some disk space: results and artefacts take up to 1 GB", f"{free / 1e9:.1f} GB free here"
    return _required("disk", free >= NEEDED_BYTES, listed, "results, artefacts", remedy, "missing")


def _threads() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    requested = os.environ.get("TVM_NUM_THREADS")
    state = f"{cores} cores usable" + (f", TVM_NUM_THREADS={requested}" if requested else "")
    return Check("cores", "ok", state, "run, profile")


def _probe() -> Check:
    """Return what the probe has measured of this machine, measuring it first unless plans are to do without."""
    from socsched.descriptor import host
    from socsched.executor.probe import ensure

    probe = ensure()
    if probe is None:
        why = "not asked for" if not host.probed() else "it needs a C compiler"
        return Check("this machine", "ok", f"not measured: {why}", "plan -p host within narrow intervals")
    was = probe.conditions
    kernels = ", ".join(f"{len(times.kernels)} kernels of {times.runtime}" for times in probe.kernels)
    memory = f"copies {probe.copy_one / 1e9:.0f} GB/s on one core, {probe.copy_all / 1e9:.0f} on all"
    when = f"{was.date} in {was.seconds:.0f} s at load {was.load:.1f}"
    listed = f"{kernels}, {len(probe.functions)} host functions, {memory}; {when}"
    return Check("this machine", "ok", listed, "plan -p host within narrow intervals")


def _descriptors() -> Check:
    counts = {kind: len(resources.names(kind)) for kind in resources.KINDS}
    listed = ", ".join(f"{kind}: {count}" for kind, count in counts.items())
    remedy = "pip install --force-reinstall --no-deps /path/to/socsched"
    return _required("descriptors", all(counts.values()), listed, "everything", remedy)


def _settings() -> Check:
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("SOCSCHED_"))
    return Check("settings", "ok", ", ".join(settings) or "no SOCSCHED_* variables set", "defaults")


ROOT = Path("/")
LLVM = {"arm64": "aarch64", "AMD64": "x86_64"}
"""Machine -> its name in LLVM, if different."""


def _codegen() -> Check:
    """Return the targets that TVM can build code for; this machine's processor must be among them."""
    purpose = "compile, run"
    try:
        from socsched.compiler.environment import tvm

        processors = set(tvm.target.codegen.llvm_get_targets())
        devices = [
            name for name in ("cuda", "opencl") if tvm.get_global_func(f"target.build.{name}", allow_missing=True)
        ]
    except Exception as error:  # any error that prevents TVM from loading
        return _required("TVM targets", False, f"TVM does not load: {error}", purpose, "see tvm above")
    own = LLVM.get(system.machine(), system.machine())
    names = [name for name in ("x86_64", "aarch64") if name in processors]
    listed = ", ".join([*names, *devices]) or "none"
    return _required("TVM targets", own in processors, listed, purpose, "install the pinned TVM wheel: see tvm above")


def _gpu() -> Check:
    """Return the NVIDIA GPU and its driver, on a Jetson or on a machine with the driver's library."""
    from socsched.descriptor import host_gpus
    from socsched.runtime.meters import Nvml

    tool = OPTIONAL["GPU"]
    model = _text("proc/device-tree/model")
    if "Jetson" in model:
        release = _text("etc/nv_tegra_release").split(",")[0].removeprefix("# ")
        there = any((ROOT / "dev" / name).exists() for name in ("nvhost-gpu", "nvgpu", "nvmap"))
        board = f"{model}, {release or 'L4T unknown'}"
        return tool.ok(board) if there else tool.broken(board, "sudo apt-get install -y nvidia-l4t-core, then reboot")
    driver = _text("proc/driver/nvidia/version")
    if not driver and not (ROOT / "dev/nvidia0").exists():
        return tool.missing("no NVIDIA GPU, or no driver for it")
    version = next((word for word in driver.split() if word[:1].isdigit() and "." in word), "unknown")
    if not Nvml().available:
        state = f"driver {version}, not responding"
        return tool.broken(state, "sudo modprobe nvidia (after a driver update: reboot)")
    gpus = host_gpus.find(ROOT)
    listed = "; ".join([f"driver {version}", *map(host_gpus.described, gpus)])
    if gpus and not host_gpus.has_compiler():
        wheels = "nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-cccl-cu12"
        return tool.broken(f"{listed}; no compiler, so that `-p host` does without", f"pip install {wheels}")
    return tool.ok(f"{listed}; part of `-p host`" if gpus else listed)


def _tensorrt() -> Check:
    """Return whether engines for a DLA can be built and run here."""
    from importlib import util

    from socsched.compiler.toolchains.tensorrt import dla_refusal, release

    tool = OPTIONAL["TensorRT"]
    cores = sorted(path.name for path in (ROOT / "dev").glob("nvhost-nvdla*"))
    if util.find_spec("tensorrt") is None:
        state = f"not installed; {len(cores)} DLA cores here" if cores else "not installed"
        return tool.missing(state)
    model = ROOT / "proc/device-tree/model"
    board = model.read_text(errors="replace") if model.is_file() else ""
    try:
        version = import_module("tensorrt").__version__
    except ImportError as error:
        return tool.broken(f"TensorRT is not installed: {error}", "install JetPack's python3-libnvinfer")
    if reason := dla_refusal(version, board):
        return tool.broken(reason, "DLA needs TensorRT up to 10.7, or 11.4.1 and later on a Jetson AGX Orin")
    row = release(version)
    jetpack = f" (JetPack {row.jetpack})" if row and row.jetpack else ""
    return tool.ok(f"{version}{jetpack}, {len(cores)} DLA cores")


def _realtime() -> Check:
    """Return whether stages may have real-time priorities and lock their memory."""
    from socsched.runtime import conditions

    tool = OPTIONAL["real time"]
    refused = conditions.refusal()
    return tool.missing(refused) if refused else tool.ok("SCHED_FIFO is permitted")


def _power() -> Check:
    """Return the power sensors this user may read."""
    from socsched.descriptor.host import rapl_domains
    from socsched.runtime.meters import Nvml, ina3221_rails

    tool = OPTIONAL["power sensors"]
    packages, rails = rapl_domains(ROOT), ina3221_rails(ROOT)
    sensors = [f"{len(packages)} package counters"] if packages else []
    sensors += [f"{len(rails)} rails (INA3221)"] if rails else []
    sensors += ["NVML"] if Nvml().available else []
    if sensors:
        return tool.ok(", ".join(sensors))
    if list(ROOT.glob("sys/class/powercap/*:[0-9]*/energy_uj")):
        return tool.broken("not readable by this user", "sudo chmod a+r /sys/class/powercap/*/energy_uj")
    return tool.missing("none on this machine")


def _text(name: str) -> str:
    try:
        return (ROOT / name).read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return ""


ARCHITECTURES = ("sm_62", "sm_72", "sm_80", "sm_87", "sm_90")
"""GPUs of the boards with shipped descriptors, and of data centres."""


def _cross_compiler() -> Check:
    """Return whether code for Arm boards can be linked here."""
    return _native_or_found(OPTIONAL["aarch64 compiler"])


def _emulator() -> Check:
    """Return whether aarch64 code can be run here."""
    return _native_or_found(OPTIONAL["aarch64 emulator"])


def _native_or_found(tool: Tool) -> Check:
    return tool.ok("native") if system.machine() == "aarch64" else tool.look()


def _nvcc() -> Check:
    """Return the GPUs that CUDA code can be built for here: the newest toolkits have dropped the oldest GPUs."""
    tool = OPTIONAL["nvcc"]
    check = tool.look()
    if check.status != "ok":
        return check
    path = check.found
    supported = _architectures(path)
    if supported is None:
        return tool.broken(f"{path} does not run", "reinstall the CUDA toolkit")
    buildable = [arch for arch in ARCHITECTURES if arch in supported]
    dropped = [arch for arch in ARCHITECTURES if arch not in supported]
    listed = f"{path}: {', '.join(buildable) or 'none of the boards'}"
    if not dropped:
        return tool.ok(listed)
    old = [arch for arch in dropped if arch in ("sm_62", "sm_72")]
    release = "CUDA 12" if old == dropped else "CUDA 12 or later"
    advice = f"no code for {', '.join(dropped)}: put the nvcc of {release} first on PATH for these"
    return Check(tool.name, "ok" if buildable else "missing", listed, tool.enables, advice)


def _architectures(path: str) -> set[str] | None:
    """Return the architectures ("sm_87") that this nvcc builds device code for, None if the query fails."""
    import subprocess

    try:
        done = subprocess.run([path, "--list-gpu-code"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return set(done.stdout.split()) if done.returncode == 0 else None


def _opencl() -> Check:
    """Return whether OpenCL kernels can be run here; building them needs no tool."""
    from socsched.compiler.targets.opencl.device import first_device

    tool = OPTIONAL["OpenCL"]
    try:
        return tool.ok(first_device()[2])
    except MachineError as error:
        return tool.missing(str(error))


def _htp_compiler() -> Check:
    """Return whether Qualcomm's HTP compiler is installed; it is not started."""
    return _vendor(OPTIONAL["HTP compiler"], "qualcomm")


def _rknn_compiler() -> Check:
    """Return whether Rockchip's compiler is installed; it is not started."""
    return _vendor(OPTIONAL["RKNN compiler"], "rockchip")


def _vendor(tool: Tool, name: str) -> Check:
    from socsched.compiler.toolchains.environments import ENVIRONMENTS

    chosen = ENVIRONMENTS[name]
    try:
        python = chosen.python()
    except MachineError as error:
        return tool.broken(str(error), error.hint)
    return tool.missing("not installed") if python is None else tool.ok(f"{chosen.package} {chosen.version}")


_OWN: dict[str, Callable[[], Check]] = {
    "aarch64 compiler": _cross_compiler,
    "aarch64 emulator": _emulator,
    "nvcc": _nvcc,
    "GPU": _gpu,
    "TensorRT": _tensorrt,
    "OpenCL": _opencl,
    "HTP compiler": _htp_compiler,
    "RKNN compiler": _rknn_compiler,
    "real time": _realtime,
    "power sensors": _power,
}
"""Optional tools that need more than a search for a program or package."""

CHECKS: tuple[Callable[[], Check], ...] = (
    _python, _tvm, _codegen, _compiler, _cache, _disk, _threads, _probe, _descriptors, _settings,
    *(_OWN.get(name, tool.look) for name, tool in OPTIONAL.items()),
)  # fmt: skip


class DoctorRequest(Request):
    """What is installed, if anything is; whether this machine is measured."""

    install: str | None = option("--install", metavar="NAME", help="Install a vendor's compiler: qualcomm or rockchip.")
    quick: bool = quick()


@verb("doctor", DoctorRequest, "Check this machine: what works, what does not, and how to fix it.")
def command(output: Output, request: DoctorRequest) -> int:
    """Check this machine: what works, what does not, why, and how to fix it; exit code 3 if the main job cannot work.

    The main job is to plan, simulate, compile and run on this machine; anything else that is missing is listed with
    the command that installs it, and does not affect the exit code.

    With --install make the Python environment of a vendor's compiler, from the package index that pip uses, and
    check that it starts; its licence is printed first.
    """
    if request.install is not None:
        return _install(output, request.install)
    skip_probe(request.quick)
    checks = examine()
    lacking = [check for check in checks if check.main and check.status != "ok"]
    output.result({"healthy": not lacking, "checks": [asdict(check) for check in checks]}, lambda: _tables(checks))
    return EXIT_MACHINE if lacking else EXIT_OK


def _install(output: Output, name: str) -> int:
    from socsched.compiler.toolchains.environments import Helper, environment, install

    chosen = environment(name)
    python = install(chosen, output.note)
    with Helper(chosen) as helper:
        versions = helper.versions
    listed = ", ".join(f"{package} {version}" for package, version in versions.items())
    output.result({"python": str(python), "versions": versions}, lambda: echo(f"{chosen.title} works: {listed}"))
    return EXIT_OK


def examine() -> list[Check]:
    """Return every finding; a check that raises an error counts as a finding too."""
    checks = []
    for check in CHECKS:
        try:
            checks.append(check())
        except Exception as error:  # a failing check must not hide the findings of the others
            name = check.__name__.strip("_").replace("_", " ")
            checks.append(Check(name, "broken", f"{type(error).__name__}: {error}", "", "socsched doctor -v"))
    return checks


def _tables(checks: list[Check]) -> list[Any]:
    from rich.text import Text

    marks = {"ok": "✓ ok", "missing": "– missing", "broken": "✗ BROKEN"}
    rows = [[check.name, marks[check.status], check.found, check.enables] for check in checks]
    title = f"socsched on {system.machine()}, {_os_name()}"
    shown: list[Any] = [table(title, ["check", "state", "found", "needed for"], rows, (), (3,))]
    for title, main in (("Required: how to fix it", True), ("Optional: how to install it", False)):
        remedies = [[check.name, check.remedy] for check in checks if check.remedy and check.main is main]
        if remedies:
            shown += [Text(""), table(title, ["check", "remedy"], remedies)]
    return shown


def _os_name() -> str:
    try:
        return system.freedesktop_os_release().get("PRETTY_NAME", system.system())
    except OSError:
        return system.system()


class PluginsRequest(Request):
    """The group to list, None for all."""

    group: str | None = argument(required=False, metavar="[GROUP]")


@verb("plugins", PluginsRequest, "List what is registered: policies, planners, targets, ...")
def plugins(output: Output, request: PluginsRequest) -> None:
    """List policies, planners, schedulability tests, models, compile targets and more, built in and installed.

    GROUP is the last word of an entry-point group, such as policies.  docs/extending.md shows how to add to each.
    """
    from socsched import plugins

    known = [name.partition(".")[2] for name in plugins.GROUPS]
    if request.group is not None and request.group not in known:
        raise UsageError(f"unknown group {request.group!r}", f"one of {', '.join(known)}")
    groups: dict[str, dict[str, dict[str, str]]] = {}
    for name in known if request.group is None else [request.group]:
        entries = plugins.entries(f"socsched.{name}")
        groups[name] = {}
        for one in plugins.names(f"socsched.{name}"):
            distribution = getattr(entries[one], "dist", None)
            package = (
                f"{distribution.metadata['Name']} {distribution.version}" if distribution else f"socsched {__version__}"
            )
            groups[name][entries[one].name] = {"object": entries[one].value, "package": package}

    def show() -> Any:
        from socsched.reporting.terminal import Sheet

        rows = [
            (kind, name, entry["object"], entry["package"])
            for kind, entries in groups.items()
            for name, entry in entries.items()
        ]
        return Sheet(["group", "name", "object", "package"], rows)

    output.result({"groups": groups}, show)


WHERE = {
    "bash": 'eval "$(socsched completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(socsched completion zsh)"  # in ~/.zshrc',
    "fish": "socsched completion fish | source  # in ~/.config/fish/config.fish",
}


class CompletionRequest(Request):
    """The shell."""

    shell: str = argument(tuple(WHERE))


@verb("completion", CompletionRequest, "Print the script that completes names in a shell.")
def completion(output: Output, request: CompletionRequest) -> None:
    """Print the script that lets SHELL complete verbs, options, platforms, pipelines, modes, stages and more.

    To install permanently: eval "$(socsched completion bash)" in ~/.bashrc, the same with zsh in ~/.zshrc, and in
    fish's config socsched completion fish | source.
    """
    from click.shell_completion import get_completion_class

    shell = request.shell
    completer = get_completion_class(shell)
    assert completer is not None
    root = click.get_current_context().find_root().command
    script = completer(root, {}, "socsched", "_SOCSCHED_COMPLETE").source()
    output.result({"shell": shell, "script": script, "install": WHERE[shell]}, lambda: click.echo(script))
