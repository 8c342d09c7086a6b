"""Run PointPillars on a GPU through the driver alone, and compare its detections with the processor's.

    python -m tools.verify.cuda_driver prepare FOLDER [--arch sm_90] [--frames 8]    with nvcc; no GPU needed
    python3 tools/verify/cuda_driver.py check FOLDER [--seconds 4] [--keep FOLDER]    with a GPU; no socsched needed

`prepare` compiles pointpillars-s in fp16 and what voxelises and decodes, writes the native executor, its settings and
scans, and what the fp32 stages of this machine's processor detect.  `check` runs the executor with no library folder
but one that holds libcuda.so.1, and fails if it has mapped any other library of CUDA.  Runs: `stages` (each stage a
graph, tensors handed over on the device), `frame` (a graph a frame), and `bounded` (graphs of four kernels, two in
flight).  All three have to find the same, bit for bit, and what the processor finds within the tolerances below; so has
`stages` with the code of CUDA 12 alone, if its packages were found (`compiler.targets.cuda.toolkits`).  `bundle` is the
native application of a plan whose stages are all on the GPU: its self-test compares every stage with this machine's
processor, and it runs two seconds.
Further runs: `full` takes 2,000 frames a second, one graph each, and counts those that end.  A hard frame every 5 ms
runs on a stream of high priority `alone`, and next to soft frames that keep a second stream always busy, queued whole
(`beside`), as bounded pieces (`pieces`), or on other SMs (`shares`, green contexts; `portion`: alone there);
`predict FOLDER --keep FOLDER` compares the run with pieces with a simulation.
Frames per second are those that the device's time for a frame allows; processor time is that of a long run less that of
a short one, per frame.  Exit code 1 for a difference or a missed bar, 3 without a GPU.
"""

from __future__ import annotations

import argparse
import ctypes.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

STAGES = ("voxelise", "pfn", "scatter", "backbone", "head", "decode")
RUNS = ("stages", "frame", "bounded")
PERIOD_NS = 4_000_000
HARD, SOFT, PIECES = ("hard", 5_000_000, 0), ("soft", 200_000, 0), ("soft", 200_000, 2)
FULL = "full"
STREAMS = {FULL: (("hard", 500_000, 0),), "alone": (HARD,), "beside": (HARD, SOFT), "pieces": (HARD, PIECES),
           "portion": (HARD,), "shares": (HARD, SOFT)}  # fmt: skip
"""Tasks on streams of their own: criticality, period, kernels in a piece (0: all of a frame)."""
GROUPS, PORTIONS = 15, {"hard": tuple(range(8)), "soft": tuple(range(8, 15))}
"""Of the runs `portion` and `shares`: the groups of a GPU's SMs (an H100 has 15 of 8), and those of each task."""
RATIO, RATE, SIMULATED = 1.15, 1500, 0.1
"""Bars: the p99 of hard frames next to soft ones in pieces, over that alone; frames a second of `full`; how far the
simulated p99 of the former may be from the measured one."""
SHARE, METRES, SCORE = 0.95, 0.25, 0.08
"""Share of boxes that have a counterpart of the same label, and how far it may be away (fp16 against fp32)."""
PROCESSOR_US = 60.0
BOUNDED_KERNELS = 4
EXECUTOR, EXPECTED, BUNDLE, OLDER = "socsched-executor", "expected.json", "bundle", "older"
_FOREIGN = ("libcudart", "libnvrtc", "libtvm", "libcublas", "libcudnn", "libnvJitLink")


def prepare(folder: Path, arch: str, frames: int) -> int:
    """Write everything that `check` needs into `folder`."""
    from socsched.api.planning import plan as make_plan
    from socsched.compiler.targets.cuda.toolkits import toolkits
    from socsched.descriptor import host
    from socsched.descriptor.catalog import get_pipeline
    from socsched.executor.application import write_application
    from socsched.executor.build import find_executor
    from socsched.executor.frames import most_rows, write_inputs
    from socsched.executor.gpu_programs import copy_programs, stored_program
    from socsched.executor.run_native import Inputs, execute
    from socsched.executor.settings import RunSettings, write_settings
    from socsched.executor.stages import describe_stages, sensor_ports
    from socsched.models.registry import bindings
    from socsched.planning.io import to_document
    from socsched.runtime.backends.base import Setting
    from socsched.runtime.backends.device_code import compiled
    from socsched.runtime.boards.local import LocalBoard
    from socsched.runtime.inputs import prepare_inputs

    executor = find_executor()
    if executor is None:
        print("no C++ compiler", file=sys.stderr)
        return 3
    pipe, here = get_pipeline("pointpillars-s"), host.detect()
    sensor = pipe.sensors[0]
    slow = make_plan(pipe, here)
    slow = replace(slow, tasks=tuple(replace(task, queue=1000, precision="fp32") for task in slow.tasks))
    slow = replace(slow, transitions=(), tasks=tuple(task for task in slow.tasks if task.kind == "stage"))
    after = {stage.name: stage.after for stage in pipe.stages}
    slow = replace(slow, tasks=tuple(replace(task, after=after[task.name]) for task in slow.tasks))
    found = execute(slow, pipe, Inputs(frames=frames), board=LocalBoard(here))
    expected = [found.details[frame]["detections"] for frame in range(frames)]

    target = {"kind": "cuda", "arch": arch, "max_threads_per_block": 1024, "thread_warp_size": 32}
    gpu = replace(here.engines[0], id="gpu", kind="gpu", units=1, target=target)
    gpu = replace(gpu, operators=replace(gpu.operators, host_code=False))
    changes: dict[str, Any] = {"period_ns": PERIOD_NS, "deadline_ns": PERIOD_NS, "precision": "fp16"}
    changes |= {"engine": "gpu", "lanes": (0,), "queue": 8, "runtime": "tvm"}
    made = replace(
        slow,
        tasks=tuple(replace(task, **changes) for task in slow.tasks),
        sensors=tuple(replace(one, period_ns=PERIOD_NS) for one in slow.sensors),
        engines=(*slow.engines, replace(slow.engines[0], id="gpu", kind="gpu", lanes=1)),
        chains=tuple(replace(chain, deadline_ns=PERIOD_NS) for chain in slow.chains),
    )
    bound = bindings(pipe)
    setting = Setting(made, pipe, replace(here, engines=(*here.engines, gpu)), bound, None)
    feeds, _ = prepare_inputs(setting, None, frames, None, True)
    folder.mkdir(parents=True, exist_ok=True)
    artifacts = [compiled(next(t for t in made.tasks if t.name == name), pipe.stage(name), setting) for name in STAGES]
    for artifact in artifacts:
        print(artifact.stage, *artifact.notes, sep="; ")
    for run in RUNS:
        place = folder / run
        place.mkdir(exist_ok=True)
        given = write_inputs(made, feeds, sensor_ports(setting), frames * PERIOD_NS, place)
        rooms = {name: most_rows(written.document) for name, written in given.items()}
        kinds = {name: written.types for name, written in given.items()}
        stages = describe_stages(setting, kinds, rooms)
        plan, needs = made, {stage: set(ports.values()) for stage, ports in bound.items()}
        if run != "stages":
            program = stored_program(artifacts, arch, rooms[sensor.name])
            last = {**stages["decode"], "programs": [str(program)], "inputs": stages["voxelise"]["inputs"]}
            stages = {"decode": {**last, "piece": BOUNDED_KERNELS if run == "bounded" else 0}}
            task = next(task for task in made.tasks if task.name == "decode")
            chains = tuple(replace(chain, path=(chain.path[0], "decode")) for chain in made.chains)
            plan = replace(made, tasks=(replace(task, after=(sensor.name,)),), chains=chains)
            needs = {"decode": {sensor.name}}
        for name, how in stages.items():
            how["programs"] = copy_programs(Path(how["programs"][0]), place, name, toolkits())
        settings = RunSettings(
            plan,
            frames * PERIOD_NS,
            needs,
            stages,
            inputs={name: written.document for name, written in given.items()},
        )
        write_settings(settings, place)
        if run == "frame":
            whole = settings
    for run, streams in STREAMS.items():
        place = folder / run
        place.mkdir(exist_ok=True)
        given = write_inputs(made, feeds, sensor_ports(setting), frames * PERIOD_NS, place)[sensor.name].document
        write_settings(_on_streams(whole, sensor.name, given, streams, place, run in ("portion", "shares")), place)
    bundle, platform = folder / BUNDLE, replace(here, engines=(*here.engines, gpu))
    shutil.rmtree(bundle, ignore_errors=True)
    bundle.mkdir()
    (bundle / "plan.json").write_text(json.dumps(to_document(made), sort_keys=True))
    write_application(made, pipe, bundle, print, platform)
    shutil.copyfile(executor, folder / EXECUTOR)
    (folder / EXPECTED).write_text(json.dumps({"frames": frames, "boxes": expected}))
    print(f"{folder}: {sum(f.stat().st_size for f in folder.rglob('*') if f.is_file()) / 2**20:.1f} MiB")
    return 0


def _on_streams(
    whole: Any, sensor: str, frames: Any, streams: tuple[tuple[str, int, int], ...], place: Path, shared: bool
) -> Any:
    """Return the settings of tasks that each take whole frames from a sensor of their own, `shared`: on own SMs."""
    task, plan, stage = whole.plan.tasks[0], whole.plan, whole.stages["decode"]
    sensors, tasks, chains = [], [], []
    stages: dict[str, Any] = {}
    for lane, (kind, period, piece) in enumerate(streams):
        source = f"{kind}-{sensor}"
        sensors.append(replace(plan.sensors[0], name=source, period_ns=period))
        changes: dict[str, Any] = {"name": kind, "after": (source,), "criticality": kind}
        changes["lanes"] = PORTIONS[kind] if shared else (lane,)
        changes |= {"period_ns": period, "deadline_ns": period, "queue": 8 if len(streams) == 1 else 1}
        tasks.append(replace(task, **changes))
        chains.append(replace(plan.chains[0], name=kind, path=(source, kind), deadline_ns=period))
        inputs = [{**one, "from": source} if one.get("from") == sensor else one for one in stage["inputs"]]
        copied = [_copied(Path(file), place, kind) for file in stage["programs"]]
        stages[kind] = {**stage, "inputs": inputs, "programs": copied, "piece": piece}
        stages[kind] |= {"groups": GROUPS} if shared else {}
    lanes = GROUPS if shared else 2
    engines = tuple(replace(engine, lanes=lanes) if engine.id == "gpu" else engine for engine in plan.engines)
    made = replace(plan, sensors=tuple(sensors), tasks=tuple(tasks), chains=tuple(chains), engines=engines)
    needs = {task.name: set(task.after) for task in tasks}
    return replace(whole, plan=made, needs=needs, stages=stages, inputs={one.name: frames for one in sensors})


def _copied(program: Path, place: Path, name: str) -> str:
    """Copy a program of the run `frame`; return its path relative to `place`."""
    source = place.parent / "frame" / program
    shutil.copytree(source.parent, place / name, dirs_exist_ok=True)
    return f"{name}/{source.name}"


def check(folder: Path, seconds: float, keep: Path | None = None) -> int:
    """Run everything in `folder` and print a line for each run; executors' results go to `keep`."""
    driver = _driver()
    if driver is None:
        print("no libcuda.so.1: install the driver", file=sys.stderr)
        return 3
    executor = _executor(folder)
    expected = json.loads((folder / EXPECTED).read_text())
    count, failed, found = expected["frames"], False, {}
    with tempfile.TemporaryDirectory() as scratch:
        libraries = Path(scratch) / "driver"
        libraries.mkdir()
        (libraries / "libcuda.so.1").symlink_to(driver)
        runs = (*RUNS, OLDER) if _older(folder / RUNS[0], folder / OLDER) else RUNS
        for run in runs:
            out = Path(scratch) / run
            short = _execute(executor, folder / run, out, 0.5, libraries)
            found[run] = _detections(out, count)
            long = _execute(executor, folder / run, out, 0.5 + seconds, libraries)
            frames = long["frames"] - short["frames"]
            spent = (long["processor_s"] - short["processor_s"]) / max(frames, 1) * 1e6
            problems = _compare(found[run], expected["boxes"])
            if found[run] != found[RUNS[0]]:
                problems.append(f"other detections than {RUNS[0]}")
            if long["lost"]:
                problems.append(f"{long['lost']} frames lost")
            problems += [f"mapped {name}" for name in long["foreign"]]
            boxes = sum(map(len, found[run]))
            line = f"{run:8} {1e3 / long['frame_ms']:7.0f} frames/s  {long['frame_ms']:6.3f} ms a frame (p50), "
            line += f"{long['worst_ms']:6.3f} (p99)  {spent:5.1f} us of a processor a frame  {boxes} boxes"
            print(f"{line}  {'; '.join(problems) or 'ok'}", flush=True)
            failed = failed or bool(problems)
        failed = not _runs_as_application(folder / BUNDLE, Path(scratch) / BUNDLE, libraries) or failed
        out = Path(scratch) / FULL
        short, long = (_execute(executor, folder / FULL, out, s, libraries) for s in (0.5, 0.5 + seconds))
        frames = long["frames"] - short["frames"]
        spent = (long["processor_s"] - short["processor_s"]) / max(frames, 1) * 1e6
        print(
            f"{FULL:8} {frames / seconds:7.0f} frames/s ended, {long['lost']} lost, {spent:5.1f} us of a processor each"
        )
        failed = failed or frames / seconds < RATE or spent > PROCESSOR_US
        worst = {}
        for run in list(STREAMS)[1:]:
            out = (keep or Path(scratch)) / run
            out.mkdir(parents=True, exist_ok=True)
            measured = _execute(executor, folder / run, out, seconds, libraries, "hard")
            worst[run] = measured["worst_ms"]
            line = f"{run:8} hard frames: {measured['frame_ms']:6.3f} ms (p50), {worst[run]:6.3f} (p99), "
            line += f"{worst[run] / worst['alone']:5.2f} of alone  "
            line += f"{worst[run] / worst['portion']:5.2f} of alone on its SMs  " if run == "shares" else ""
            line += f"{measured['others'] / seconds:7.0f} soft frames/s"
            print(line, *measured["notices"], flush=True)
            failed = failed or bool(measured["notices"])
        if worst["pieces"] > RATIO * worst["alone"]:
            print(f"p99 next to soft frames in pieces over {RATIO} of alone")
            failed = True
    return int(failed)


def _older(stages: Path, place: Path) -> bool:
    """Write the run `stages` with code of CUDA 12 alone; return whether there is any."""
    document = json.loads((stages / "run.json").read_text())
    for how in document["stages"].values():
        how["programs"] = [name for name in how["programs"] if "cuda-12" in name]
    if not all(how["programs"] for how in document["stages"].values()):
        return False
    shutil.copytree(stages, place, dirs_exist_ok=True)
    (place / "run.json").write_text(json.dumps(document))
    return True


def _runs_as_application(bundle: Path, results: Path, libraries: Path) -> bool:
    """Self-test and run the bundle with no other library folder; print what it says."""
    env = {"LD_LIBRARY_PATH": str(libraries), "PATH": "/usr/bin:/bin"}
    for arguments in (("--selftest",), ("--duration", "2", "-o", str(results))):
        command = ["sh", str(bundle / "start.sh"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        print(f"{BUNDLE} {arguments[0]}: {done.stdout.strip() or 'ended'} {done.stderr.strip()}", flush=True)
        if done.returncode:
            return False
    accounts = json.loads((results / "executed.json").read_text())["accounts"]
    ended = sum(account["completed"] for account in accounts.values())
    print(f"{BUNDLE}: {ended} frames ended", flush=True)
    return bool(ended)


def predict(folder: Path, keep: Path) -> int:
    """Compare the responses of hard frames next to soft pieces, kept by `check`, with a simulation.

    Simulated is one engine that preempts between segments, two in flight: hard frames take the times measured alone,
    soft ones the median of these, in as many equal segments as they have pieces.
    """
    from socsched.api.loading import load_plan
    from socsched.cost.cost import Segment
    from socsched.planning.task import ExecutionTimes
    from socsched.sim.simulate import simulate

    alone, measured = (_responses(keep / run, "hard") for run in ("alone", "pieces"))
    plan = load_plan(folder / "pieces" / "plan.json")
    kernels = len(json.loads(next((folder / "pieces" / "soft").glob("cuda-*.json")).read_text())["launches"])
    number, time_ns = -(-kernels // PIECES[2]), round(statistics.median(alone))
    hard, soft = plan.tasks
    pieces = tuple(Segment(soft.name, time_ns // number, 0, 0) for _ in range(number))
    tasks = (
        replace(hard, cost_ns=time_ns, wcet_ns=max(alone), times=ExecutionTimes(tuple(sorted(alone)))),
        replace(soft, cost_ns=time_ns, wcet_ns=time_ns, segments=pieces, lanes=hard.lanes, deadline_ns=10**9),
    )
    engines = tuple(
        replace(one, lanes=1, preemption="segment", in_flight=2) if one.id == hard.engine else one
        for one in plan.engines
    )
    trace = simulate(replace(plan, tasks=tasks, engines=engines), len(measured) * HARD[1])
    ended = [job for job in trace.jobs if job.task == "hard" and job.status == "done"]
    simulated = [job.finish_ns - job.activation_ns for job in ended]
    failed = False
    for title, share, bar in (("p50", 0.5, None), ("p99", 0.99, SIMULATED)):
        mine, theirs = (sorted(times)[int(len(times) * share)] / 1e6 for times in (measured, simulated))
        failed = failed or (bar is not None and abs(theirs / mine - 1) > bar)
        line = f"{title} of hard frames next to pieces: measured {mine:.3f} ms, simulated {theirs:.3f}"
        print(f"{line} ({theirs / mine - 1:+.1%})")
    return int(failed)


def _responses(out: Path, task: str) -> list[int]:
    lines = (json.loads(line).get("jobs", ()) for line in (out / "journal.jsonl").read_text().splitlines())
    return [row[6] - row[3] for rows in lines for row in rows if row[1] == task and row[9] == "done"]


def _driver() -> Path | None:
    """Return the file of libcuda.so.1."""
    name = ctypes.util.find_library("cuda")
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    places = [line.split("=> ")[1] for line in listed.splitlines() if "libcuda.so.1 " in line and "=> " in line]
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), "/usr/local/nvidia/lib64", "/usr/lib64"]
    places += [f"{folder}/libcuda.so.1" for folder in folders if folder]
    places += [f"{folder}/{name}" for folder in folders if folder and name]
    return next((Path(place).resolve() for place in places if Path(place).is_file()), None)


def _executor(folder: Path) -> Path:
    """Return the executor, built here if the one in the folder does not start."""
    carried = folder.resolve() / EXECUTOR
    carried.chmod(0o755)
    if subprocess.run([carried, "--help"], capture_output=True, check=False).returncode == 0:
        return carried
    root = Path(__file__).resolve().parents[2] / "socsched"
    stages = root / "compiler" / "native" / "stages"
    made = folder.resolve() / "built"
    made.mkdir(exist_ok=True)
    objects = []
    for source in sorted((*(root / "executor" / "native").glob("*.cpp"), *stages.glob("*.c"))):
        compiler = ["gcc", "-O2"] if source.suffix == ".c" else ["g++", "-std=c++17", "-O2", "-pthread", f"-I{stages}"]
        objects.append(str(made / f"{source.name}.o"))
        subprocess.run([*compiler, "-c", str(source), "-o", objects[-1]], check=True)
    subprocess.run(["g++", "-pthread", *objects, "-o", str(made / EXECUTOR), "-ldl", "-lm"], check=True)
    return made / EXECUTOR


def _execute(
    executor: Path, settings: Path, out: Path, seconds: float, libraries: Path, only: str = ""
) -> dict[str, Any]:
    """Run for some seconds; return frames, processor time, the device's time of a frame, and mapped libraries.

    With `only`, times are the responses of one task's jobs.
    """
    out.mkdir(exist_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(executor), str(settings / "run.json"), "-o", str(out), "--horizon-ns", str(int(seconds * 1e9))]
    foreign: set[str] = set()
    with subprocess.Popen(command, env={"LD_LIBRARY_PATH": str(libraries)}, stderr=subprocess.PIPE) as process:
        while process.poll() is None:
            try:
                mapped = Path(f"/proc/{process.pid}/maps").read_text()
                foreign |= {Path(line.split()[-1]).name for line in mapped.splitlines() if _is_foreign(line)}
            except OSError:
                pass
            time.sleep(0.1)
        assert process.stderr is not None
        problem = process.stderr.read().decode()
    if process.returncode:
        raise SystemExit(f"{settings.name}: the executor ended with {process.returncode}: {problem}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    frames: dict[int, int] = {}
    others = 0
    for line in (out / "journal.jsonl").read_text().splitlines():
        for _, task, frame, ready, _, start, finish, *_, status, _ in json.loads(line).get("jobs", ()):
            if only and task != only:
                others += status == "done"
            elif status == "done":
                frames[frame] = frames.get(frame, 0) + finish - (ready if only else start)
    times = sorted(frames.values())[: len(frames)]
    executed = json.loads((out / "executed.json").read_text())
    accounts = executed["accounts"]
    return {
        "notices": [text for text in executed.get("notices", ()) if "share" in text],
        "others": others,
        "frames": sum(account["completed"] for account in accounts.values()),
        "lost": sum(account["dropped"] + account["aborted"] for account in accounts.values()),
        "processor_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "frame_ms": statistics.median(times) / 1e6,
        "worst_ms": times[int(len(times) * 0.99)] / 1e6,
        "foreign": sorted(foreign),
    }


def _is_foreign(line: str) -> bool:
    return any(name in line for name in _FOREIGN)


def _detections(out: Path, count: int) -> list[list[Any]]:
    """Return boxes, scores and labels of the first frames."""
    found: list[list[Any]] = [[] for _ in range(count)]
    for line in (out / "detections.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["frame"] < count:
            rows = zip(entry["boxes"], entry["scores"], entry["labels"], strict=True)
            found[entry["frame"]] = [list(row) for row in rows]
    return found


def _compare(found: list[list[Any]], expected: list[list[Any]]) -> list[str]:
    """Return what differs from the processor's boxes."""
    problems = []
    for side, ours, theirs in (("missing", expected, found), ("additional", found, expected)):
        total = matched = 0
        for mine, other in zip(ours, theirs, strict=True):
            for one in map(_box, mine):
                total += one[4] > 0
                matched += one[4] > 0 and any(_near(one, another) for another in map(_box, other))
        if not total or matched < SHARE * total:
            problems.append(f"{total - matched} of {total} boxes {side}")
    return problems


def _box(entry: Any) -> tuple[float, float, float, Any, float]:
    """Return the centre, the label and the score of a detection."""
    if isinstance(entry, dict):
        return (*entry["box"][:3], entry["label"], entry["score"])
    return (*entry[0][:3], entry[2], entry[1])


def _near(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    apart = sum((a - b) ** 2 for a, b in zip(one[:3], other[:3], strict=True)) ** 0.5
    return bool(one[3] == other[3] and apart <= METRES and abs(one[4] - other[4]) <= SCORE)


def main() -> int:
    """Prepare or check, as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "check", "predict"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--keep", type=Path, help="keep the executor's files of the runs with hard frames")
    args = parser.parse_args()
    if args.step == "prepare":
        return prepare(args.folder, args.arch, args.frames)
    if args.step == "predict":
        if args.keep is None:
            parser.error("predict needs --keep, the folder that check wrote")
        return predict(args.folder, args.keep)
    return check(args.folder, args.seconds, args.keep)


if __name__ == "__main__":
    sys.exit(main())
