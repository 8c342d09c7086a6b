"""`params: shapes` of an ONNX stage: open dimensions are set, stated ones are kept."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx_files import Builder

from socsched.errors import InputError, UsageError
from socsched.models.registry import get_model


@pytest.fixture
def open_sizes(tmp_path: Path) -> Path:
    """Return a network whose image may have any size."""
    build = Builder()
    return build.save(tmp_path / "open.onnx", ["n", 3, "h", "w"], [build.conv("image", 3, 8, stride=2)])


def test_open_sizes_are_set(open_sizes: Path) -> None:
    for height, width in ((64, 32), (32, 96)):
        model = get_model("onnx", {"file": str(open_sizes), "shapes": {"image": [1, 3, height, width]}})
        assert model.inputs[0].type.shape == (1, 3, height, width)
        assert model.outputs[0].type.shape == (1, 8, height // 2, width // 2)


def test_without_them_the_message_says_how_to_set_them(open_sizes: Path) -> None:
    with pytest.raises(InputError) as caught:
        get_model("onnx", {"file": str(open_sizes)})
    assert "shapes" in caught.value.hint


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"image": [1, 4, 32, 32]}, r"image is \[\?, 3, \?, \?\], not \[1, 4, 32, 32\]"),
        ({"image": [1, 3, 32]}, "not "),
        ({"picture": [1, 3, 32, 32]}, "no input 'picture'"),
        ({"image": [1, 3, 0, 32]}, "expected a list of sizes"),
        ({"image": [1, 3, 10**9, 32]}, "expected a list of sizes"),
        ({"image": "1x3"}, "expected a list of sizes"),
        ([1, 3, 32, 32], "expected a list of sizes|shapes"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: Any, says: str, open_sizes: Path) -> None:
    with pytest.raises((InputError, UsageError), match=says):
        get_model("onnx", {"file": str(open_sizes), "shapes": shapes})


@pytest.mark.parametrize("side", [-1, 0, 2**40])
def test_a_slice_of_sides_that_cannot_be_ends_in_a_message(side: int, tmp_path: Path) -> None:
    """onnx's own shape inference of the whole file ends the process for a slice of a negative side."""
    build = Builder()
    cut = build.op("Slice", "image", build.constant(np.array([1, 1])), build.constant(np.array([9, 9])))
    file = build.save(tmp_path / "cut.onnx", [side, 3, 16, 16], [build.conv(cut, 3, 8)])
    program = f"from socsched.models.registry import get_model; get_model('onnx', {{'file': {str(file)!r}}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert re.search(r"errors\.(InputError|OpenShape): cut.onnx: ", done.stderr)
