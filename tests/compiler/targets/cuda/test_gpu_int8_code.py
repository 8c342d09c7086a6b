"""Device code of the int8 GPU rules: run on an emulator against the function as plain loops, and compiled by nvcc."""

from __future__ import annotations

import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu_networks
import int8_networks
import numpy as np
import pytest
from cuda_emulator import Emulated
from cuda_sources import build_executable, needs_nvcc, report, source_of

from socsched.compiler.builder import compile_stage
from socsched.compiler.environment import tvm
from socsched.compiler.loading.stages import load
from socsched.compiler.quantize.epilogue import Epilogue, Stored
from socsched.compiler.quantize.scales import FILE, read_scales
from socsched.compiler.targets.cuda import gemm, int8_kernels, kernels
from socsched.compiler.targets.cuda.gemm import Bytes
from socsched.compiler.targets.cuda.int8_kernels import Operand
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.tile_table import INT8_TABLE
from socsched.compiler.targets.cuda.tiles import Convolution, Tile, candidates, int8_tile, round_up
from socsched.compiler.targets.cuda.toolkits import device_source
from socsched.compiler.targets.llvm.processor import native_target
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, MachineError
from socsched.models.weights import draw_weights

Array = np.ndarray[Any, Any]
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is not installed")
U, S = Stored("uint8", 0), Stored("int8", 0)
NUMPY = {"uint8": np.uint8, "int8": np.int8, "float32": np.float32, "float16": np.float16, "int32": np.int32}
IMMA = 0x237
"""Operation code of the integer tensor-core instruction of sm_80 to sm_90, the low twelve bits of its 16 bytes."""

CASES = {
    "3x3 stride 2": (
        Convolution(20, 24, 32, 64, 3, 3, 2, 1),
        Tile(64, 64, 32, 32, 32, 3),
        Bytes(False, Epilogue(U, 22, True)),
    ),
    "addition": (
        Convolution(9, 9, 64, 128, residual=True),
        Tile(32, 64, 32, 32, 32, 2),
        Bytes(True, Epilogue(U, 20, True, (0, 77)), "int8"),
    ),
    "split": (
        Convolution(7, 7, 64, 64, 3, 3, 1, 1),
        Tile(64, 64, 64, 32, 32, 3, splits=4),
        Bytes(True, Epilogue(U, 22, True)),
    ),
    "upsampling into a slice": (
        Convolution(6, 5, 64, 32, scale=2, first=32, total=96),
        Tile(32, 64, 32, 32, 32, 2),
        Bytes(False, Epilogue(S, 22, False)),
    ),
    "planes": (
        Convolution(8, 8, 64, 80, planes=(18, 42, 12, 8)),
        Tile(32, 80, 64, 32, 80, 1, store=2),
        Bytes(False, Epilogue(None, 22, False)),
    ),
    "7x7 of few channels": (
        Convolution(30, 30, 8, 64, 7, 7, 2, 3),
        Tile(32, 64, 64, 32, 64, 3),
        Bytes(True, Epilogue(U, 22, True)),
    ),
    "long steps": (
        Convolution(10, 13, 64, 64, 3, 3, 1, 1),
        Tile(64, 64, 128, 32, 32, 4),
        Bytes(False, Epilogue(S, 22, False)),
    ),
}


def noise(shape: Any, dtype: str) -> Array:
    """Random bits; fp16 ones are containers of two bytes."""
    generator = np.random.default_rng([*shape, len(dtype)])
    if dtype == "float32":
        return generator.normal(0, 2, shape).astype(np.float32)
    return generator.integers(0, 256, (*shape, np.dtype(NUMPY[dtype]).itemsize), np.uint8).view(NUMPY[dtype])[..., 0]


def on_cpu(function: Any, operands: list[Array]) -> None:
    """Run a function as plain loops; the last operand is its result."""
    module = tvm.IRModule({"f": function.with_attr("global_symbol", "f")})
    given = [tvm.runtime.tensor(array) for array in operands]
    tvm.compile(module, target=tvm.target.Target(dict(native_target())))["f"](*given)
    operands[-1][...] = given[-1].numpy()


def blank(like: Array) -> Array:
    return np.frombuffer(bytes([0x77]) * like.nbytes, like.dtype).reshape(like.shape).copy()


def table_of(shape: Convolution, form: Bytes) -> Array:
    generator = np.random.default_rng(3)
    table = np.zeros((form.epilogue.rows, shape.outputs), np.int32)
    table[0] = generator.integers(-1000, 1000, shape.outputs)
    if form.epilogue.stored is None:
        table[1] = generator.normal(size=shape.outputs).astype(np.float32).view(np.int32)
    else:
        table[1:] = [[-(1 << 20)], [1 << 20], [0]]
        table[3] = generator.integers(1, 1000, shape.outputs)
    return table


@needs_compiler
@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_products_equal_plain_loops(name: str, tmp_path: Path) -> None:
    shape, tile, form = CASES[name]
    assert tile.fits(shape)
    functions = {"product": schedule(gemm.convolution(shape, tile, form), tile, form.family)}
    if tile.splits > 1:
        functions["finish"] = kernels.spread(gemm.reduction(shape, tile.splits, form))
    emulated = Emulated(source_of(functions), tmp_path)
    weight = np.zeros((shape.n, round_up(shape.k, tile.depth * tile.splits)), np.float16)
    weight[:, : shape.k] = noise((shape.n, shape.k), "float16")
    pixels, table = noise((shape.height * shape.width, shape.channels), "float16"), table_of(shape, form)
    result = np.zeros((shape.pixels, shape.total or shape.outputs), NUMPY[form.epilogue.dtype])
    more = [noise(result.shape, form.added)] if form.added else []
    wanted, found = blank(result), blank(result)
    whole = replace(tile, splits=1)
    first = np.ascontiguousarray(weight[:, : round_up(shape.k, tile.depth)])
    on_cpu(gemm.convolution(shape, whole, form), [pixels, first, table, *more, wanted])
    grid = (shape.n // tile.columns, -(-shape.m // tile.rows), tile.splits)
    given = {"X_ptr": pixels, "W_ptr": weight, "S_ptr": table, "O_ptr": found}
    if tile.splits > 1:
        parts = np.zeros((tile.splits, shape.m, shape.n), np.int32)
        emulated("product_kernel", grid, (32, tile.warps), {"X_ptr": pixels, "W_ptr": weight, "P_ptr": parts})
        blocks = -(-shape.m * shape.n // 4 // 128)
        emulated("finish_kernel", (blocks, 1, 1), (128, 1), {"P_ptr": parts, "S_ptr": table, "O_ptr": found})
    else:
        given |= {"R_ptr": more[0]} if more else {}
        emulated("product_kernel", grid, (32, tile.warps), given)
    assert np.unique(wanted).size > 50
    assert np.array_equal(found, wanted)


SIMPLE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "quantise": (int8_kernels.quantise, (143, 32, 32, 12.5, S, False)),
    "quantise three channels": (int8_kernels.quantise, (143, 3, 16, 50.0, U, False)),
    "quantise planes": (int8_kernels.quantise, (143, 24, 32, 50.0, S, True)),
    "dequantise": (int8_kernels.dequantise, (143, 32, 28, 0.037, "int8", False)),
    "dequantise odd channels": (int8_kernels.dequantise, (143, 16, 9, 0.037, "uint8", False)),
    "dequantise to planes": (int8_kernels.dequantise, (143, 16, 9, 0.037, "int8", True)),
    "rescale": (int8_kernels.rescale, ((143, 32), 32, (96, 32), Operand("uint8", 40000), S, False, 16)),
    "rectify": (int8_kernels.rescale, ((143, 32), 32, (32, 0), Operand("int8", 90000), U, True, 16)),
    "add": (int8_kernels.add, (143, 32, Operand("int8", 40000), Operand("uint8", 30000), S, True, 16)),
    "pool signed": (int8_kernels.max_pool, (16, 11, 13, (3, 3, 2, 1, 6, 7), S)),
    "pool": (int8_kernels.max_pool, (32, 11, 13, (2, 2, 2, 0, 5, 6), U)),
    "narrow": (int8_kernels.narrow, (143, 16, 3, 5)),
}


@needs_compiler
@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.sampled(18)
def test_other_kernels_equal_plain_loops(name: str, tmp_path: Path) -> None:
    make, args = SIMPLE[name]
    function = make(*args)
    operands = {f"{b.name}_ptr": noise([int(n) for n in b.shape], str(b.dtype)) for b in function.params}
    wanted, found = blank(operands["O_ptr"]), blank(operands["O_ptr"])
    on_cpu(function, [*list(operands.values())[:-1], wanted])
    source = source_of({"kernel": kernels.spread(make(*args))})
    threads = 128 * -(-found.size // 128)
    Emulated(source, tmp_path)("kernel_kernel", (threads // 128, 1, 1), (128, 1), {**operands, "O_ptr": found})
    assert np.unique(wanted).size > 20
    assert np.array_equal(found, wanted)


def operation_codes(cubin: bytes) -> dict[str, Counter[int]]:
    """Operation codes of each kernel's instructions, by the cubin's ELF sections of code."""
    offset, size, count, names = struct.unpack_from("<Q10xHHH", cubin, 40)
    sections = [struct.unpack_from("<IIQQQQ", cubin, offset + i * size) for i in range(count)]
    found = {}
    for section in sections:
        start = sections[names][4] + section[0]
        name = cubin[start : cubin.index(b"\0", start)].decode()
        if name.startswith(".text."):
            code = cubin[section[4] : section[4] + section[5]]
            found[name[6:]] = Counter(word & 0xFFF for (word,) in struct.iter_unpack("<H14x", code))
    return found


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_87", "sm_90"])
@pytest.mark.slow
def test_products_use_tensor_cores_and_asynchronous_copies_and_no_stack(arch: str, tmp_path: Path) -> None:
    functions = {
        f"product{number}": schedule(gemm.convolution(shape, tile, form), tile, form.family)
        for number, (shape, tile, form) in enumerate(CASES.values())
    }
    source = source_of(functions, arch)
    bodies = re.findall(r'extern "C" __global__[^;{]*\{.*?\n\}', source, re.S)
    assert len(bodies) == len(CASES)
    for body in bodies:
        assert re.search(r"mma\.sync\.aligned\.m16n8k32\.row\.col\.s32\.[us]8\.s8\.s32", body) and "ldmatrix" in body
    assert sum("ptx_cp_async" in body for body in bodies) == len(CASES) - 1, "a single stage copies as it goes"
    assert all(form in source for form in ("s32.u8.s8", "s32.s8.s8"))
    found = report(source, tmp_path, arch)
    stacks = [int(n) for n in re.findall(r"(\d+) bytes stack frame", found)]
    assert len(stacks) == len(CASES)
    assert sum(stacks) <= (8 if arch == "sm_90" else 0), "a word outside the loop is ptxas' choice, fragments are not"
    codes = operation_codes((tmp_path / "k.cubin").read_bytes())
    assert len(codes) == len(CASES) and all(kernel[IMMA] >= 16 for kernel in codes.values())


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_87", "sm_90"])
@pytest.mark.parametrize("name", ["residual", "pyramid", "loose"])
def test_whole_networks_are_accepted(name: str, arch: str, tmp_path: Path) -> None:
    net = getattr(gpu_networks, name)()
    target = {"kind": "cuda", "arch": arch, "max_threads_per_block": 1024, "thread_warp_size": 32}
    built = build_executable(net, draw_weights(net, 0), target, "int8")
    general = [note for note in built.notes if "general schedules" in note]
    expected = ["dense", "global_avg_pool", "reshape"] if name == "residual" else []
    assert [note.rsplit(" ", 1)[1] for note in general] == expected
    assert built.scales is not None and built.inputs[0].dtype == built.outputs[0].dtype == "fp32"
    found = report(device_source(built.executable.mod), tmp_path, arch)
    assert all(line.strip().startswith("0 bytes") for line in found.splitlines() if "stack frame" in line)


@pytest.mark.parametrize("arch", ["sm_80", "sm_87", "sm_90"])
@pytest.mark.parametrize(
    "shape",
    [
        Convolution(1, 1, 8, 16),
        Convolution(3, 5, 24, 16, 3, 3, 1, 1),
        Convolution(124, 108, 64, 128, 3, 3, 1, 1),
        Convolution(33, 17, 56, 48, scale=3),
        Convolution(200, 300, 128, 512, 3, 3, 1, 1),
    ],
    ids=lambda value: getattr(value, "key", value),
)
def test_any_shape_gets_a_tile(shape: Convolution, arch: str) -> None:
    tile = int8_tile(shape, arch)
    assert tile.fits(shape)
    assert tile.shared_bytes <= 227 << 10
    assert tile in set(candidates(shape, arch)) or shape.key in INT8_TABLE.get(arch, {})


ORIN = {
    "kind": "cuda",
    "arch": "sm_87",
    "max_threads_per_block": 1024,
    "thread_warp_size": 32,
    "host": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a78ae"},
}


@needs_nvcc
@pytest.mark.slow
def test_a_stage_becomes_an_artefact(make_engine: Callable[..., Engine]) -> None:
    stage = Stage("head", "head", "pointpillars.head", precisions=("fp32", "fp16", "int8"))
    scales = read_scales(compile_stage(stage, make_engine(), "int8").folder / FILE)
    artifact = compile_stage(stage, make_engine(ORIN, ("fp16", "int8"), id="gpu"), "int8", scales=scales)
    assert "m16n8k32" in (artifact.folder / "stage.cu").read_text()
    assert any(IMMA in kernel for kernel in operation_codes((artifact.folder / "stage.cubin").read_bytes()).values())
    assert read_scales(artifact.folder / FILE).digest == scales.digest
    assert artifact.precision == "int8" and artifact.inputs[0].dtype == "fp32" and artifact.inputs[0].layout == "NHWC"
    with pytest.raises(MachineError, match="native executor only"):
        load(artifact)


@needs_nvcc
@pytest.mark.slow
def test_stages_of_coordinates_stay_fp32(make_engine: Callable[..., Engine]) -> None:
    artifact = compile_stage(Stage("pfn", "pfn", "pointpillars.pfn"), make_engine(ORIN, ("int8",), id="gpu"), "int8")
    assert any("computed in fp32" in note for note in artifact.notes)
    assert "m16n8k32" not in (artifact.folder / "stage.cu").read_text()


def test_what_cannot_be_built_is_named() -> None:
    network = int8_networks.conv(16, 16, 8, 8, 3, 1, 1, True)
    with pytest.raises(CompileError, match=r"int8 on sm_72: the rules need .* sm_80 or later"):
        build_executable(network, int8_networks.weights_of(network), {"kind": "cuda", "arch": "sm_72"}, "int8")
