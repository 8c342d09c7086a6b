"""Device code for a GPU that this machine may lack."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from socsched.compiler.builder import compile_stage
from socsched.compiler.loading.stages import load
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import MachineError

needs_nvcc = pytest.mark.needs("nvcc")
ORIN_GPU = {
    "kind": "cuda",
    "arch": "sm_87",
    "max_threads_per_block": 1024,
    "thread_warp_size": 32,
    "host": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a78ae"},
}
EM_CUDA = 190


@needs_nvcc
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", ["pfn", "scatter", "head", pytest.param("backbone", marks=pytest.mark.slow)])
@pytest.mark.sampled(20)
def test_nvcc_accepts_every_stage(name: str, precision: str, make_engine: Callable[..., Engine]) -> None:
    stage = Stage(name, name, f"pointpillars.{name}")
    artifact = compile_stage(stage, make_engine(ORIN_GPU, ("fp32", "fp16"), id="gpu"), precision)
    source, binary = (artifact.folder / name for name in ("stage.cu", "stage.cubin"))
    assert source.read_text().count("__global__") >= 1
    header = binary.read_bytes()[:64]
    assert header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") == EM_CUDA
    assert artifact.inputs[0].dtype == artifact.outputs[0].dtype == precision
    assert not artifact.loadable
    with pytest.raises(MachineError, match="native executor only"):
        load(artifact)


def test_without_nvcc_it_is_named(
    fresh_cache: object, make_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_index(*_: object) -> None:
        raise MachineError("the compiler of CUDA code cannot be fetched", "install the CUDA toolkit")

    monkeypatch.setattr("socsched.compiler.targets.cuda.toolkits.toolkits", lambda: ())
    monkeypatch.setattr("socsched.compiler.targets.cuda.toolkits.fetch", no_index)
    with pytest.raises(MachineError, match="cannot be fetched") as caught:
        compile_stage(Stage("pfn", "pfn", "pointpillars.pfn"), make_engine(ORIN_GPU, id="gpu"))
    assert "CUDA toolkit" in caught.value.hint
