"""A machine with a GPU that is none: the stand-in driver, and kernels compiled for the processor."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from socsched.compiler.artifact import Artifact
from socsched.executor.programs import PROGRAM, stored_program
from tests.compiler.cuda_emulator import Emulated

DRIVER = Path(__file__).parent / "standins" / "cuda.cpp"


def build_driver(folder: Path) -> Path:
    """Return a folder with the stand-in as libcuda.so.1."""
    made = folder / "driver"
    made.mkdir()
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w", "-I/usr/local/cuda/include"]
    subprocess.run([*command, str(DRIVER), "-o", str(made / "libcuda.so.1")], check=True)
    return made


def emulated_program(artifacts: Sequence[Artifact], arch: str, room: int, folder: Path) -> Path:
    """Return the program of artefacts with their kernels compiled for the processor."""
    document = json.loads((stored := stored_program(artifacts, arch, room)).read_text())
    counts = {(launch["code"], launch["kernel"]): len(launch["arguments"]) for launch in document["launches"]}
    for number, artifact in enumerate(artifacts):
        home = folder / f"{artifact.stage}-{number}"
        home.mkdir()
        source = (artifact.folder / "stage.cu").read_text()
        source = re.sub(
            r"(?<!extern )__shared__ (alignas\(\d+\) )?", r"\1static ", source
        )  # blocks run one after the other
        Emulated(source, home)
        lines = [f"{kernel} {count}" for (code, kernel), count in counts.items() if code == number]
        document["code"][number] = str(home / "kernels.txt")
        (home / "kernels.txt").write_text("\n".join([str(home / "kernels.so"), *lines, ""]))
    document["weights"] = str(stored.parent / document["weights"])
    file = folder / f"{'-'.join(artifact.stage for artifact in artifacts)}-{PROGRAM}"
    file.write_text(json.dumps(document))
    return file


def noted(log: Path) -> list[str]:
    """Return the calls that the driver noted."""
    return log.read_text().splitlines()


def kernels_of(source: str) -> dict[str, list[str]]:
    """Return the types of the parameters of every kernel of a CUDA source: "pointer" or "value"."""
    found: dict[str, list[str]] = {}
    for match in re.finditer(r"__global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(([^)]*)\)", source):
        found[match[1]] = ["pointer" if "*" in parameter else "value" for parameter in match[2].split(",")]
    return found
