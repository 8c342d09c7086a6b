"""Convolutions tuned for the cores they will run on: per-layer choices from a table of measurements.

Dhakal, Cho, Kulkarni, Ramakrishnan, Sharma, "Spatial Sharing of GPU for Autotuning DNN models", arXiv 2008.03602:
kernels have to be tuned on the share of the processor they will get, because the best kernel for the whole processor
need not be the best for a part.  The choices here are the method of a convolution (direct, or Winograd's F(2x2) or
F(4x4)), its register tile, and the number and order of its tasks.  Without a table, rules decide (`vector.tile`,
`winograd.best`), which ignore the number of cores.  `tools/bench/share_tuning.py` measures tables; outputs agree up to
rounding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from socsched.compiler.targets.llvm.shapes import Window
from socsched.compiler.targets.llvm.vector import Tile, Vector, tile
from socsched.errors import InputError
from socsched.files import write_file


@dataclass(frozen=True, slots=True)
class Choice:
    """Choices for one layer: `winograd` is 4, 2 or 0 (direct); the tile of a direct convolution; the `parts` of the
    pixel row of a pointwise one, 0 to follow the rules; `rows_first` as in `shapes.Order`, None to follow the rules;
    `together`: tiles that a Winograd task transforms, as a multiple of those held in registers.
    """

    winograd: int = 0
    pixels: int = 0
    blocks: int = 0
    parts: int = 0
    rows_first: bool | None = None
    together: int = 0

    def tile(self) -> Tile | None:
        """Return the register tile, None where the rules choose."""
        return Tile(self.pixels, self.blocks) if self.pixels else None


@dataclass(frozen=True, slots=True)
class Layer:
    """The parameters a choice depends on: input and output channels, the result's rows and columns, the window."""

    inputs: int
    outputs: int
    rows: int
    columns: int
    window: Window

    @property
    def key(self) -> str:
        """Return the name of the layer in a table."""
        (kh, kw), (sh, sw) = self.window.kernel, self.window.stride
        return f"{self.inputs}-{self.outputs} {self.rows}x{self.columns} k{kh}x{kw} s{sh}x{sw}"

    @property
    def pointwise(self) -> bool:
        """Return whether its pixels may be treated as one long row."""
        return self.window.kernel == self.window.stride == (1, 1)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Choices by layer (`Layer.key`) for code that runs on `share` cores; layers not named follow the rules."""

    share: int
    choices: Mapping[str, Choice] = field(default_factory=dict)

    def of(self, layer: Layer) -> Choice | None:
        """Return the choice for a layer, None where the rules decide."""
        return self.choices.get(layer.key)

    def content(self) -> list[object]:
        """Return the identifying content, share included, as plain data: part of the key of compiled code."""
        return [self.share, {key: asdict(choice) for key, choice in sorted(self.choices.items())}]


def candidates(layer: Layer, vector: Vector, in_block: int, most: int = 3) -> Iterator[Choice]:
    """Yield choices worth measuring for a layer: the `most` best tiles by the rules' criterion, and variations."""
    blocks = -(-layer.outputs // vector.block)
    # A pointwise layer whose image has a border is computed row by row, so tiles have to fit both cases.
    for chosen in tiles_near(vector, blocks, layer.columns, most):
        tiles = -(-layer.rows * layer.columns // chosen.pixels)
        for rows_first in (False, True):
            for parts in (0, 8, 32, 128) if layer.pointwise else (0,):
                if parts <= tiles:
                    yield Choice(0, chosen.pixels, chosen.blocks, parts, rows_first)
    plain = layer.window == Window((3, 3), (1, 1), (1, 1))
    if plain and in_block == vector.block and layer.rows >= 4 and layer.columns >= 4:
        for m in (2, 4):
            for together in (0, 2, 4):
                yield Choice(m, together=together)


def tiles_near(vector: Vector, blocks: int, width: int, most: int) -> list[Tile]:
    """Return the tile the rules choose and others that fill the registers about as well, `most` in all."""
    first = tile(vector, blocks, width)
    found = [first]
    for count in (first.blocks, 2, 1, 4):
        for pixels in (first.pixels, 7, 6, 8, 5, 4, 12, 14):
            other = Tile(pixels, count)
            room = (pixels * count + count) * vector.per_block <= vector.registers - 3
            if blocks % count == 0 and pixels <= width and room and pixels * count >= 6 and other not in found:
                found.append(other)
    return found[:most]


def save(tuning: Tuning, file: str | Path) -> None:
    """Write a table as JSON."""
    data = {"share": tuning.share, "choices": {key: asdict(choice) for key, choice in tuning.choices.items()}}
    write_file(file, json.dumps(data, indent=1) + "\n")


def load(file: str | Path) -> Tuning:
    """Return the table in a file; InputError if it is not a valid table."""
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
        return Tuning(int(data["share"]), {key: Choice(**entry) for key, entry in data["choices"].items()})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{file}: no table of tuned tiles: {error}", "tools/bench/share_tuning.py writes them"
        ) from None
