"""Give the native executor mutated settings, plans, launch lists, references and tensors under ASan and UBSan.

Usage: python -m tools.verify.fuzz.native [--cases 100000] [--seed 1] [--workers 1] [--keep DIR]

A case is a folder of files, of which one to three values are changed; it is checked (--selftest), run on the virtual
clock or run for 2 ms.  One process takes thousands of cases, as only a finding ends it.  A finding is a report of a
sanitizer, a crash, more than 30 s, or more than 3 GiB, most of which sanitizers take; exit code 1 when there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import json
import os
import platform
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from socsched.compiler.native import host_stages
from socsched.compiler.native.host_stages import SOURCES as STAGES
from socsched.executor.build import _STAGE_FLAGS, SOURCES, cxx_compiler
from socsched.executor.settings import RunSettings, document_of
from socsched.planning.io import to_document
from tools.verify.fuzz import mutate

HERE = Path(__file__).parent
SECONDS = 30.0
"""Processor time of a case; sanitizers take three times that of the program itself, and more."""
MS = 1_000_000
_SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:hard_rss_limit_mb=3000:allocator_may_return_null=1:quarantine_size_mb=16",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
"""A sanitizer's own memory comes on top of the GiB that a case may take."""

Files = dict[str, Any]
"""File name -> its content: a JSON document, or bytes."""


def build(folder: Path) -> Path:
    """Build the executor with sanitizers into `folder`; return the driver, beside which are the kernels."""
    compiler = cxx_compiler() or "c++"
    code = [source for source in sorted((*SOURCES.iterdir(), *STAGES)) if source.suffix in (".c", ".cpp")]

    def compiled(source: Path) -> str:
        language = ["-x", "c", *_STAGE_FLAGS] if source.suffix == ".c" else ["-std=c++17", f"-I{STAGES[0].parent}"]
        renamed = ["-Dmain=executor_main"] if source.name == "main.cpp" else []
        target = folder / f"{source.name}.o"
        call = [compiler, *language, *_SANITIZED, "-pthread", *renamed, "-c", source, "-o", target]
        subprocess.run(call, check=True, capture_output=True)
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, [*code, HERE / "native_driver.cpp"]))
    driver = folder / "driver"
    subprocess.run([compiler, *_SANITIZED, "-rdynamic", *objects, "-o", driver, "-pthread", "-ldl"], check=True)
    kernels = [compiler, "-x", "c", *_SANITIZED, "-fPIC", "-shared", HERE / "native_kernels.c"]
    subprocess.run([*kernels, "-o", folder / "kernels.so"], check=True)
    return driver


def tensor(dtype: str, *shape: int, layout: str = "") -> dict[str, Any]:
    """Return a tensor's type as settings have it."""
    return {"dtype": dtype, "layout": layout, "shape": list(shape)}


def source(name: str, port: int, dtype: str, *shape: int, layout: str = "") -> dict[str, Any]:
    """Return an input of a stage."""
    return {"from": name, "port": port, **tensor(dtype, *shape, layout=layout)}


@cache
def seeds() -> tuple[Files, ...]:
    """Return sound cases: plans of loads with faults, and stages of every kind that computes."""
    return (*_loads(), _stages())


def _loads() -> Iterator[Files]:
    from tests.executor.random_runs import eventful_preemptive_run, eventful_run, levels_run, plain_run

    for made in (plain_run(3), eventful_run(5), eventful_preemptive_run(2), levels_run(1)):
        plans = (made.plan, *made.limp_home)
        names = ["plan.json", *(f"limp-home-{number}.json" for number in range(1, len(plans)))]
        documents = {name: json.loads(json.dumps(to_document(plan))) for name, plan in zip(names, plans, strict=True)}
        yield {"run.json": json.loads(json.dumps(document_of(made, names))), **documents}


def _stages() -> Files:
    """Return a pipeline of voxels, a network, an image, another network in blocked layouts, and boxes."""
    from tests.runtime.run_plans import plan, task

    made = plan(
        task("vox", "lidar"), task("pfn", "vox"), task("form", "pfn"), task("image", "camera"),
        task("net", "image"), task("boxes", "net"), sensors={"lidar": MS, "camera": MS},
    )  # fmt: skip
    bound = {"vox": {"lidar"}, "pfn": {"vox"}, "form": {"pfn"}, "image": {"camera"}, "net": {"image"}, "boxes": {"net"}}
    vox = host_stages.PARAMS["voxelise"]((0, -2, -3), (1, 1, 4), (4, 4, 1), 8, 4, 0)
    anchors = host_stages.PARAMS["anchors"](
        score=0.1, iou=0.5, least_logit=-3, rows=2, columns=2, candidates=9, max_boxes=5
    )
    camera = host_stages.PARAMS["preprocess"](2, 8, 8, 4, 4, 0, 0, 4, 4, 0, 0, gain=(1, 1, 1))
    maps = [tensor("fp32", 1, channels, 2, 2) for channels in (18, 42, 12)]
    stages: dict[str, dict[str, Any]] = {
        "vox": {"kind": "host", "function": "voxelise", "params": bytes(vox).hex(),
                "inputs": [source("lidar", 0, "fp32", -1, 4)],
                "outputs": [tensor("fp32", 8, 4, 4), tensor("int32", 8), tensor("int32", 8, 2)]},
        "pfn": {"kind": "network", "program": "pfn.json", "threads": 2,
                "inputs": [source("vox", 0, "fp32", -1, 4, 4), source("vox", 1, "int32", -1)],
                "outputs": [tensor("fp32", -1, 8)]},
        "form": {"kind": "convert", "inputs": [source("pfn", 0, "fp16", -1, 8)]},
        "image": {"kind": "host", "function": "preprocess", "params": bytes(camera).hex(),
                  "inputs": [source("camera", 0, "uint8", 1, 3, 8, 8)], "outputs": [tensor("fp32", 1, 3, 4, 4)]},
        "net": {"kind": "network", "program": "net.json", "threads": 1,
                "inputs": [source("image", 0, "fp32", 1, 3, 4, 4)], "outputs": maps,
                "code_inputs": [tensor("fp32", 1, 3, 4, 4, layout="NCHW4c+1")],
                "code_outputs": [tensor("fp32", 1, 18, 2, 2, layout="NCHW4c"), *maps[1:]]},
        "boxes": {"kind": "host", "function": "decode_anchors", "params": bytes(anchors).hex(), "records": True,
                  "inputs": [{"from": "net", "port": port, **one} for port, one in enumerate(maps)],
                  "outputs": [tensor("fp32", 5, 7), tensor("fp32", 5), tensor("int32", 5)]},
    }  # fmt: skip
    points = {
        "file": "lidar.bin",
        "ports": [tensor("fp32", -1, 4)],
        "frames": [{"shapes": [[5, 4]]}, {"problem": "lost"}, {"shapes": [[7, 4]]}],
        "warm": {"shapes": [[5, 4]]},
    }
    pixels = {"file": "camera.bin", "ports": [tensor("uint8", 1, 3, 8, 8)], "frames": [{"shapes": [[1, 3, 8, 8]]}] * 2,
              "warm": {"shapes": [[1, 3, 8, 8]]}}  # fmt: skip
    settings = RunSettings(made, 4 * MS, needs=bound, stages=stages, inputs={"lidar": points, "camera": pixels})

    def place(space: str, offset: int, shape: list[int], dtype: str = "float32", number: int = 0) -> dict[str, Any]:
        return {"in": space, "input": number, "offset": offset, "dtype": dtype, "shape": shape}

    touched = [{"kernel": "touch", "arguments": [0, 1, 2]}, {"kernel": "touch", "arguments": [2, 3, 4]}]
    common = {"format": "socsched-calls", "version": 1, "code": "kernels.so", "weights": "weights.bin", "constants": 64}
    given = [place("inputs", 0, [-1, 4, 4]), place("inputs", 0, [-1], "int32", 1)]
    result = place("results", 0, [-1, 8])
    pfn = {**common, "memory": 4096, "results": 256, "symbols": [{"input": 0, "axis": 0, "most": 8}], "inputs": given,
           "outputs": [result], "tensors": [*given, place("memory", 64, [-1, 16]), place("constants", 0, [16]), result],
           "launches": touched}  # fmt: skip
    padded = place("inputs", 0, [1, 1, 6, 6, 4])
    outputs = [
        place("results", 0, [1, 5, 2, 2, 4]),
        place("results", 320, [1, 42, 2, 2]),
        place("results", 1024, [1, 12, 2, 2]),
    ]
    net = {**common, "memory": 64, "results": 1216, "symbols": [], "inputs": [padded], "outputs": outputs,
           "tensors": [padded, *outputs], "launches": [{"kernel": "touch", "arguments": [0, 1, 2, 3]}]}  # fmt: skip
    stored = {"lidar": points, "camera": pixels}
    for name, ports, shapes in (
        ("vox", stages["vox"]["outputs"], [[5, 4, 4], [5], [5, 2]]), ("pfn", [tensor("fp32", -1, 8)], [[5, 8]]),
        ("image", stages["image"]["outputs"], [[1, 3, 4, 4]]), ("net", maps, [one["shape"] for one in maps]),
        ("form", [tensor("fp16", -1, 8)], [[5, 8]]), ("boxes", stages["boxes"]["outputs"], [[0, 7], [0], [0]]),
    ):  # fmt: skip
        stored[name] = {
            "file": "stored.bin",
            "ports": ports,
            "frames": [{"shapes": shapes}],
            "warm": {"shapes": shapes},
        }
    references = {"format": "socsched-references", "version": 1, "tolerance_ppm": 1000, "data": stored}
    return {
        "run.json": json.loads(json.dumps(document_of(settings, ["plan.json"]))),
        "plan.json": json.loads(json.dumps(to_document(made))),
        "references.json": references, "pfn.json": pfn, "net.json": net, "weights.bin": bytes(64),
        "lidar.bin": b"".join(bytes([0, 0, 0x80, 0x3F] * 4) for _ in range(17)), "camera.bin": bytes(range(192)) * 3,
        "stored.bin": bytes(4096),
    }  # fmt: skip


SIZES = (-1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 2**15, 2**16, 2**21, 2**29, 2**30, 2**31 - 1, 2**31, 2**32, -2, -(2**31))
LAYOUTS = (
    "",
    "NCHW",
    "NHWC",
    "NCHW4c",
    "NCHW16c",
    "NCHW4c+1",
    "NHWC+2",
    "NCHW9999c+9999",
    "NCHW+9999",
    "NCHW0c",
    "NHW",
)
DTYPES = ("fp32", "fp16", "int8", "uint8", "int32", "int64", "bool")


def changed(files: Files, random: Random) -> Files:
    """Return a case with one to three changes."""
    made = copy.deepcopy(files)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        name = random.choice([*made, *("run.json", "references.json") * 2])
        content = made.get(name)
        if isinstance(content, bytes):
            made[name] = (
                mutate.raw(content, random) if random.random() < 0.5 else content[: random.randrange(len(content) + 1)]
            )
        elif content is not None:
            with contextlib.suppress(RecursionError):  # what an earlier change nested too deep to be copied stays
                made[name] = _form(content, random) if random.random() < 0.6 else mutate.structure(content, random)
    return made


def _form(data: Any, random: Random) -> Any:
    """Return a document with a shape, layout, type, offset, place or parameter changed."""
    known = [path for path in mutate.places(data) if path and _is_form(path)]
    if not known:
        return mutate.structure(data, random)
    path = random.choice(known)
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    key, old = path[-1], holder[path[-1]]
    if key in ("layout", "dtype"):
        holder[key] = random.choice(LAYOUTS if key == "layout" else DTYPES)
    elif key == "params" and isinstance(old, str) and old:
        words = bytearray.fromhex(old)
        at = random.randrange(max(len(words) // 4, 1)) * 4
        words[at : at + 4] = random.choice(SIZES).to_bytes(8, "little", signed=True)[:4]
        holder[key] = words.hex()
    elif isinstance(old, list):
        sizes = [random.choice(SIZES) if random.random() < 0.4 else size for size in old]
        holder[key] = random.choice(
            (sizes, sizes[1:], [*sizes, random.choice(SIZES)], [random.choice(SIZES)] * random.randrange(8))
        )
    elif isinstance(old, int):
        holder[key] = random.choice((*SIZES, old + 1, old - 1, old * 2, 2**36, 2**62))
    return data


def _is_form(path: tuple[Any, ...]) -> bool:
    keys = (
        "shape",
        "shapes",
        "layout",
        "dtype",
        "params",
        "offset",
        "input",
        "axis",
        "most",
        "memory",
        "results",
        "constants",
    )
    return path[-1] in (*keys, "port", "arguments") or (len(path) > 1 and path[-2] == "shapes")


def calm(files: Files) -> Files:
    """Return a case in which loads take no longer than a millisecond, for a run in real time."""

    def shorten(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: shorten(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [shorten(inner, key) for inner in value]
        timed = key in ("time_ns", "cheap_time_ns", "cost_ns", "offset_ns") and isinstance(value, int)
        return min(value, MS) if timed else value

    made = {name: shorten(content) if isinstance(content, dict) else content for name, content in files.items()}
    if isinstance(made.get("run.json"), dict):
        made["run.json"] |= {"failures": [], "prolongings": [], "hang_ns": 0}
    return made


@dataclass
class Tally:
    """Counts of cases by exit code, and the numbers of those that are findings, by kind."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, int] = field(default_factory=dict)


class Driver:
    """A process that runs cases until one ends it."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.log = (folder / "log").open("w+b")
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=os.environ | _ENVIRONMENT
        )
        self.resting = 0

    def run(self, arguments: str) -> str:
        """Return the exit code of a case, or what is wrong with it."""
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(arguments.encode() + b"\n")
            self.process.stdin.flush()
        begun, spent = time.monotonic(), self._seconds()
        text = b""
        while not re.search(rb"^=\d+\n\Z", text, re.MULTILINE):
            if select.select([self.process.stdout], [], [], 1)[0]:
                part = os.read(self.process.stdout.fileno(), 65536)
                if not part:
                    return self._end()
                text += part
            elif self._seconds() - spent > SECONDS or time.monotonic() - begun > 20 * SECONDS:
                return "hang"
        return text.rsplit(b"=", 1)[1].strip().decode()

    def _end(self) -> str:
        """Return how the process ended: regularly after a hung stage, or with a report."""
        code = self.process.wait()
        self.log.seek(0)
        report = self.log.read().decode("utf-8", "replace")
        found = re.search(r"(ERROR: AddressSanitizer: \S+|runtime error: [^\n]{0,80}|terminate called[^\n]*)", report)
        place = re.findall(r"([a-z_]+\.(?:cpp|hpp|c)):(\d+)", report[found.start() :] if found else report[-3000:])
        where = next((f"{file}:{line}" for file, line in place if not file.startswith("native_")), "?")
        return "3" if code in (0, 3) and not found else f"{found[1] if found else f'ended with {code}'} {where}"

    def _seconds(self) -> float:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


def case(seed: int, number: int) -> tuple[Files, str]:
    """Return the files of a case and the arguments that follow its settings."""
    random = Random(f"{seed}/{number}")
    kind = random.choice(("stages", "stages", "stages", "loads"))
    files = changed(seeds()[-1] if kind == "stages" else random.choice(seeds()[:-1]), random)
    how = random.choice(("selftest", "selftest", "selftest", "virtual", "real"))
    if how == "selftest" and "references.json" in files:
        return files, "--selftest references.json"
    if how == "virtual":
        return files, f"-o out --virtual --horizon-ns {2 * MS}"
    return calm(files), f"-o out --horizon-ns {2 * MS}"


def write(files: Files, folder: Path) -> None:
    """Write a case over the previous one."""
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else json.dumps(content).encode("utf-8", "surrogatepass")
        (folder / name).write_bytes(raw)


def run(program: Path, seed: int, numbers: range, keep: Path | None = None) -> Tally:
    """Run cases in one process, restarted after a finding."""
    tally = Tally()
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shared) as name:
        folder = Path(name)
        (folder / "out").mkdir()
        shutil.copy(program.with_name("kernels.so"), folder)
        driver = Driver(program, folder)
        try:
            for number in numbers:
                files, arguments = case(seed, number)
                write(files, folder)
                arguments = arguments.replace("references.json", f"{folder}/references.json").replace(
                    "-o out", f"-o {folder}/out"
                )
                outcome = driver.run(f"{folder}/run.json {arguments}")
                fine = outcome in ("0", "2", "3")
                tally.counts[outcome if fine else "finding"] += 1
                if driver.process.poll() is not None or not fine:
                    driver.close()
                    driver = Driver(program, folder)
                if not fine and outcome not in tally.findings:
                    tally.findings[outcome] = number
                    if keep is not None:
                        target = keep / hashlib.sha256(outcome.encode()).hexdigest()[:8]
                        target.mkdir(parents=True, exist_ok=True)
                        write(files, target)
                        shutil.copy(folder / "kernels.so", target)
                        (target / "case").write_text(f"{outcome}\n{number}: {arguments}\n")
        finally:
            driver.close()
    return tally


def main() -> int:
    """Run the cases, print what came of them, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the files of findings")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.workers) as pool:
        program = build(Path(folder))
        share = -(-asked.cases // asked.workers)
        parts = [
            range(asked.first + n * share, asked.first + min((n + 1) * share, asked.cases))
            for n in range(asked.workers)
        ]
        tallies = list(pool.map(lambda numbers: run(program, asked.seed, numbers, asked.keep), parts))
    counts = sum((tally.counts for tally in tallies), Counter[str]())
    print(
        f"{sum(counts.values())} cases on {platform.machine()}: exit codes and findings {dict(sorted(counts.items()))}"
    )
    for tally in tallies:
        for outcome, number in sorted(tally.findings.items()):
            print(f"  {outcome}: --seed {asked.seed}, number {number}")
    return int(counts["finding"] > 0)


if __name__ == "__main__":
    sys.exit(main())
