"""Build script for Rockchip's NPUs: RKNN Toolkit 2, from ONNX to one .rknn file.

In INT8 the model has QuantizeLinear and DequantizeLinear with our scales, so the toolkit's own calibration
(`do_quantization`) stays off; in FP16 the toolkit converts the fp32 model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from socsched.compiler.toolchains.package import MODEL, QUANTISED, Compiler, Package, Toolchain
from socsched.descriptor.platform import Engine
from socsched.errors import UsageError
from socsched.text import one_line

PLATFORMS = ("rk3562", "rk3566", "rk3568", "rk3576", "rk3588")


def chip(engine: Engine) -> Mapping[str, Any]:
    """Return the compiler's setting for an engine, from the name of its operator rules ("rknn-rk3588")."""
    found = re.fullmatch(r"rknn-(\w+)", engine.operators.name)
    if not found or found[1] not in PLATFORMS:
        known = ", ".join(f"rknn-{name}" for name in PLATFORMS)
        raise UsageError(
            f"{engine.id}: rules {engine.operators.name!r} name no chip that RKNN compiles for", f"known: {known}"
        )
    return {"platform": found[1]}


def write(package: Package) -> dict[str, str]:
    """Return file name -> text for RKNN."""
    title = one_line(f"{package.stage} for {package.engine.title}, RKNN {package.version}")
    model = QUANTISED if package.precision == "int8" else MODEL
    lines = [
        "#!/usr/bin/env python3",
        f"# {title}; runs on an x86-64 host with rknn-toolkit2.",
        "import os",
        "",
        "from rknn.api import RKNN",
        "",
        "os.chdir(os.path.dirname(os.path.abspath(__file__)))",
        'os.makedirs("build", exist_ok=True)',
        "rknn = RKNN(verbose=True)",
        f"rknn.config(target_platform={str(chip(package.engine)['platform'])!r})",
        f"assert rknn.load_onnx(model={model!r}) == 0",
        "assert rknn.build(do_quantization=False) == 0",
        'assert rknn.export_rknn("build/model.rknn") == 0',
    ]
    return {"build.py": "\n".join(lines) + "\n"}


RKNN = Toolchain(write, Compiler("rockchip", chip, unsigned=False, cycles=True))
