"""Files of other tools: seeds and readers.  Each is imported; what it becomes is written, read back and used."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from socsched.api.analysis import analyze, analyze_jobs
from socsched.api.interchange import import_pipeline, import_profile, import_results, save_recording
from socsched.api.loading import import_taskset, taskset_form
from socsched.cost.profile import load_profile, save_profile
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import SocschedError, UsageError
from socsched.planning.export import amalthea, autoware, cyberrt
from socsched.planning.export.linux import ExportRequest
from socsched.planning.io import load
from socsched.sim.simulate import simulate
from socsched.trace import btf, io
from tools import ROOT
from tools.verify.fuzz import mutate

Mutate = Callable[[bytes, Random], bytes]
_TEGRASTATS = "RAM 2/9MB CPU [1%@1190,off] EMC_FREQ 5%@2133 GR3D_FREQ 99%@1377 CPU@50C VDD_GPU_SOC 4000mW/2000mW\n"
_ENGINES = {"cpu": "a760", "QNN": "npu0", "dla": "npu0", "gpu": "gpu"}
_BAG = b"rosbag2_bagfile_information:\n  version: 9\n  relative_file_paths:\n    - part.db3\n"
_PROFILES: dict[str, tuple[str, Mutate]] = {
    "trtexec": (".json", mutate.as_json),
    "ort": (".json", mutate.as_json),
    "torch": (".json", mutate.as_json),
    "nsys": (".sqlite", mutate.database),
    "qnn": (".csv", mutate.as_text),
    "rknn": (".txt", mutate.as_text),
    "console": (".log", mutate.as_text),
    "board": (".log", mutate.as_text),
    "events": (".txt", mutate.as_text),
}
_PIPELINES: dict[str, tuple[str, Mutate]] = {
    "amalthea": (".amxmi", mutate.as_xml),
    "autoware": (".yaml", mutate.as_text),
    "cyberrt": (".dag", mutate.as_text),
    "btf": (".btf", mutate.as_text),
    "mcap": (".mcap", mutate.chunks),
}
_TASKSETS: dict[str, tuple[str, Mutate]] = {
    "simso": (".xml", mutate.as_xml),
    "partsim": (".yml", mutate.as_text),
    "rtapp": (".json", mutate.as_text),
    "jobs": (".csv", mutate.as_text),
}
_PARTS: dict[str, tuple[str, str, Mutate]] = {
    "ctfmeta": ("ros2", "metadata", mutate.as_text),
    "ctfstream": ("ros2", "stream_0", mutate.raw),
    "bagmeta": ("rosbag2", "metadata.yaml", mutate.as_text),
    "bagdb": ("rosbag2", "part.db3", mutate.database),
}
"""Format -> the form of a folder, and its file that is mutated; the others are seeds."""


def make(folder: Path) -> dict[str, bytes]:
    """Return seeds by FORMAT/NAME; `folder` is for files on the way."""
    from tests import mcap_recordings
    from tests.interchange import amalthea_writer, ctf_writer
    from tests.interchange import profile_samples as samples
    from tests.sim.builders import chain, engine, plan, task

    ms = 1_000_000
    times = {"period_ns": 20 * ms, "deadline_ns": 20 * ms, "engine": "cpu"}
    tasks = [task("a", ms, priority=0, **times), task("b", 2 * ms, after=("a",), priority=1, **times)]
    made = plan(tasks, [engine("cpu", policy="fp")], chains=(chain("c", ["a", "b"], 20 * ms),), policy="fp")
    waters = json.loads((ROOT / "tests/data/waters2019.json").read_text())
    events = lzma.decompress((ROOT / "tests/data/scheduler_events/perf_script.txt.xz").read_bytes())
    recording = mcap_recordings.write(folder / "m.mcap", {"/imu": ("sensor_msgs/msg/Imu", [b"1234"] * 5)})
    trace = ctf_writer.write(folder / "ctf", ctf_writer.chain())
    return {
        "trtexec/split": samples.trtexec(folder / "t", "38").read_bytes(),
        "ort/three": samples.ort(folder / "o").read_bytes(),
        "torch/ranges": samples.torch_trace(folder / "p").read_bytes(),
        "nsys/ranges": samples.nsys(folder / "n").read_bytes(),
        "nsys/graphs": samples.nsys(folder / "g", ranges=False, graphs=True).read_bytes(),
        "qnn/four": samples.QNN.encode(),
        "console/summary": (samples.command("--int8 --useDLACore=0") + samples.summary()).encode(),
        "console/layers": samples.table(samples.LAYER_ROWS, "8.5").encode(),
        "console/names-last": samples.table(samples.LAYER_ROWS, "8.6").encode(),
        "console/ranges": samples.PROJECTED.encode(),
        "console/kernels": samples.KERNELS.format("cuda_gpu_kern_sum").encode(),
        "rknn/old": samples.OLD_RKNN.encode(),
        "rknn/ranking": samples.RANKING.encode(),
        "rknn/cores": samples.RKNN_15.format("33.3%/33.3%/33.3%").encode(),
        "rknn/run": samples.rknn(True).encode(),
        "rknn/build": samples.rknn(False).encode(),
        "board/jtop": samples.JTOP.encode(),
        "board/tegrastats": (_TEGRASTATS * 3).encode(),
        "events/tracecmd": samples.TRACE_CMD.encode(),
        "events/perf": b"\n".join(events.split(b"\n")[:200]),
        "amalthea/export": amalthea.write(ExportRequest(made)).encode(),
        "amalthea/waters": amalthea_writer.waters(waters).encode(),
        "autoware/threads": autoware.write(ExportRequest(replace(made, policy="edf"))).encode(),
        "cyberrt/dag": cyberrt.write_dag(ExportRequest(made)).encode(),
        "btf/run": btf.text(simulate(made, 100 * ms, 1)).encode(),
        "mcap/imu": recording.read_bytes(),
        "ctfmeta/chain": (trace / "metadata").read_bytes(),
        "ctfstream/chain": (trace / "stream_0").read_bytes(),
        "bagmeta/one": _BAG,
        "bagdb/one": samples.database(folder / "b.db3").read_bytes(),
    }


def texts() -> list[tuple[str, bytes]]:
    """Return seeds that the tests of the importers hold, by format."""
    from tests.interchange import test_amalthea_dialects as dialects
    from tests.interchange import test_foreign_tasksets as tasksets
    from tests.interchange import test_thread_configurations as threads

    tree = dialects.Tree(Random(4))
    steps = dialects.process("T", tree.text + dialects.trigger("I")) + dialects.process("T", tree.text, "I")
    pulse = '<stimuli xsi:type="am:InterProcessStimulus" name="I"/>'
    more = f"<constraintsModel>{dialects.limit('T', 20)}</constraintsModel>"
    rows = tasksets.row("a", 7, 3) + tasksets.row("b", 12, 3, 'priority="3"')
    late = tasksets.row("c", 9, 1, kind="Sporadic").replace('dates=""', 'dates="3.5, 60, 68"')
    return [
        ("amalthea", dialects.model(steps + "".join(tree.runnables), dialects.TIMER + pulse, more).encode()),
        ("autoware", threads.TEMPLATE.encode()),
        ("cyberrt", threads.DAG.encode()),
        ("cyberrtconf", threads.CLASSIC.encode()),
        ("simso", tasksets.simso("EDF_mono", rows + late).encode()),
        ("simso", tasksets.simso("P_RM", rows + late, 2).encode()),
        ("partsim", tasksets.PARTSIM.encode()),
        ("rtapp", tasksets.RTAPP.encode()),
        ("rtapp", tasksets.fifo('"priority": 10, "cpus": [1],', '"priority": 90, "cpus": [0],').encode()),
        ("jobs", (tasksets.HEAD + tasksets.FIGURE_1).encode()),
    ]


def formats(seeds: dict[str, list[bytes]]) -> list[tuple[str, str, Mutate, Callable[[Path], Any]]]:
    """Return name, suffix, mutation and reader of every format."""
    rows: list[tuple[str, str, Mutate, Callable[[Path], Any]]] = []
    rows += [(name, *how, partial(_profile, name)) for name, how in _PROFILES.items()]
    rows += [(name, *how, partial(_pipeline, name)) for name, how in _PIPELINES.items()]
    rows += [(name, *how, partial(_taskset, name)) for name, how in _TASKSETS.items()]
    rows.append(("cyberrtconf", ".conf", mutate.as_text, _scheduler))
    for name, (form, place, how) in _PARTS.items():
        whole = {at: seeds[other][0] for other, (same, at, _) in _PARTS.items() if same == form}
        rows.append((name, ".part", how, partial(_part, form, place, whole)))
    return rows


def _profile(form: str, file: Path) -> None:
    files = [file]
    if form == "board":  # a log alone is no profile
        files.append(file.with_name("net.json"))
        files[1].write_text('[{"count": 4}, {"name": "a", "averageMs": 2.0}]')
    found = import_profile(files, "rk3588", precision="fp16", mode="performance", engines=_ENGINES)
    saved = file.with_name("saved.json")
    save_profile(found.profile, saved)
    load_profile(saved)
    with suppress(UsageError):  # not every profile states when jobs ran
        save_recording(found, "rk3588", file.with_name("recorded"))
        _explained(file.with_name("recorded"))


def _pipeline(form: str, file: Path) -> None:
    found = import_pipeline(form, file)
    saved = file.parent / "saved.yaml"
    pipeline = found.pipeline(str(saved))
    saved.write_text(found.text(), encoding="utf-8")
    assert load_pipeline(saved) == pipeline
    if form in ("btf", "ros2"):
        import_results(file, file.parent / "recorded", pipeline=pipeline)
        _explained(file.parent / "recorded")


def _taskset(form: str, file: Path) -> None:
    """Read, analyse and simulate a file of another tool, whatever form its content now seems to have."""
    from socsched.api.simulation import simulate_set as simulate

    if form == "jobs" or taskset_form(file) == "nptest":
        analyze_jobs(file, 2)
        return
    tasks, _ = import_taskset(file)
    analyze(tasks)
    with suppress(UsageError):  # what is analysed but not simulated
        simulate(tasks, 10 * max(task.offset_ns + task.period_ns for task in tasks.tasks))


def _scheduler(file: Path) -> None:
    from tests.interchange.test_thread_configurations import DAG

    dag = file.parent / "seed.dag"
    dag.write_text(DAG)
    import_pipeline("cyberrt", dag, conf=file, channels={"/lidar": "100ms"}).pipeline("saved.yaml")


def _explained(folder: Path) -> None:
    """Read a result folder back: what was written must be accepted."""
    try:
        load(folder / "plan.json")
        io.load(folder / "trace.bin")
    except SocschedError as error:
        raise AssertionError(f"a result folder of an import is refused: {error}") from error


def _part(form: str, place: str, whole: dict[str, bytes], file: Path) -> None:
    folder = file.parent / f"{form}-{place}"
    folder.mkdir(exist_ok=True)
    for name, content in whole.items():
        (folder / name).write_bytes(file.read_bytes() if name == place else content)
    _pipeline(form, folder)
