"""CUDA source run on a CPU: what TVM made of a kernel as C++, with tensor-core instructions replaced by calls.

It shows that fragments, swizzle, pipeline and epilogue fit together, where no GPU is; how, says cuda_emulator.h.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
HEADER = Path(__file__).with_name("cuda_emulator.h")
_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\) \{.*?\n\}', re.S)
_WAIT = "tvm_builtin_ptx_cp_async_wait_group_async_wait_group_"
LAUNCH = """
extern "C" int launch_{name}(int x, int y, int z, int width, int height, void **operands) {{
  return !emulated::launch<{name}>({name}, {{x, y, z}}, width, height, operands);
}}
"""


class Emulated:
    """The kernels of a CUDA source, compiled into `folder`."""

    def __init__(self, source: str, folder: Path) -> None:
        found = {match[1]: match for match in _KERNEL.finditer(source)}
        self.parameters = {name: [p.split()[-1] for p in match[2].split(",")] for name, match in found.items()}
        waits = sorted(set(re.findall(_WAIT + r"(\d+)", source)))
        parts = [HEADER.read_text()]
        parts += [f"static void {_WAIT}{n}() {{ emulated::wait({n}); }}" for n in waits]
        for name, match in found.items():
            parts += [_called(match[0]), LAUNCH.format(name=name)]
        path = folder / "kernels.cc"
        path.write_text("\n".join(parts))
        command = ["g++", "-O1", "-w", "-std=c++17", "-shared", "-fPIC", "-fno-strict-aliasing", "-fwrapv"]
        subprocess.run([*command, "-o", str(path.with_suffix(".so")), str(path)], check=True)
        self.code = ctypes.CDLL(str(path.with_suffix(".so")))

    def __call__(
        self, name: str, grid: tuple[int, int, int], block: tuple[int, int], operands: Mapping[str, Array]
    ) -> None:
        """Run a kernel on a grid of blocks of threads; `operands` are its buffers by their names in the source."""
        given = (ctypes.c_void_p * len(operands))(*(operands[p].ctypes.data for p in self.parameters[name]))
        if self.code[f"launch_{name}"](*grid, *block, given):
            raise AssertionError(f"{name}: threads wait for each other")


def _called(text: str) -> str:
    """A kernel with its assembly replaced by calls."""
    text = text.replace("unsigned int addr = __cvta_generic_to_shared(", "void *addr = (void *)(")
    while (start := text.find("__asm__ __volatile__(")) >= 0:
        end = _closing(text, text.index("(", start))
        block = text[start:end]
        outputs, inputs = _operands(block, '"=r"'), _operands(block, '"r"')
        targets = [f"&({value})" for value in outputs]
        if "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in block:
            call = ", ".join([*inputs, *targets])
            text = f"{text[:start]}ldmatrix({call}){text[end + 1 :]}"
            continue
        match = re.search(r"mma\.sync\.aligned\.m16n8k32\.row\.col\.s32\.([us])8\.s8\.s32", block)
        assert match and len(outputs) == 4 and len(inputs) == 10, block
        call = ", ".join([str(match[1] == "s").lower(), *targets, *(f"(uint)({value})" for value in inputs)])
        text = f"{text[:start]}mma({call}){text[end + 1 :]}"
    return text


def _operands(block: str, constraint: str) -> list[str]:
    """The parenthesised expression after each `constraint`."""
    found = []
    for match in re.finditer(re.escape(constraint) + r"\(", block):
        found.append(block[match.end() : _closing(block, match.end() - 1)])
    return found


def _closing(text: str, start: int) -> int:
    """Index of the parenthesis that closes the one at `start`; those in strings do not count."""
    depth, quoted = 0, False
    for index in range(start, len(text)):
        character = text[index]
        quoted ^= character == '"'
        if not quoted:
            depth += (character == "(") - (character == ")")
            if not depth:
                return index
    raise AssertionError("unbalanced")
