"""Tiles of a network as separate stages: the stage's model with one more param, `tile`, as parts have `part`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from socsched.descriptor.pipeline import Chain, Pipeline, Stage
from socsched.errors import UsageError
from socsched.graph.tiles import Grid, gather_network, tile_network, tile_types
from socsched.models.model import Model, Port

TILE = "tile"
"""Name of the param."""


@dataclass(frozen=True, slots=True)
class TileOf:
    """A tile of a stage, or the continuation that joins the tiles (`row` -1)."""

    stage: str
    grid: Grid
    row: int = -1
    column: int = -1

    @property
    def name(self) -> str:
        """Return the stage name; the continuation keeps the whole stage's."""
        return self.stage if self.row < 0 else f"{self.stage}.tile{self.row}_{self.column}"

    def param(self) -> dict[str, Any]:
        """Return the tile in the form of its stage's param, plain data."""
        grid = self.grid
        place = {"row": self.row, "column": self.column}
        return {"stage": self.stage, "depth": grid.depth, "rows": grid.rows, "columns": grid.columns, **place}


def tile_of(params: Mapping[str, Any]) -> TileOf | None:
    """Return the tile these params describe, None if they describe none; UsageError if the param is invalid."""
    entry = params.get(TILE)
    if entry is None:
        return None
    try:
        grid = Grid(int(entry["depth"]), int(entry["rows"]), int(entry["columns"]))
        return TileOf(str(entry["stage"]), grid, int(entry["row"]), int(entry["column"]))
    except (TypeError, KeyError, ValueError) as error:
        raise UsageError(f"params.{TILE} does not have the form that planners write: {error!r}") from None


def tile_model(model: Model, tile: TileOf) -> Model:
    """Return the model of a tile or the continuation: `model`'s own ports at the network's ends, one per tile
    between."""
    if model.network is None:
        raise UsageError(f"{model.name!r} is not a network: it has no tiles")
    whole = model.network()
    ports = tuple(Port(f"{tile.stage}:{name}", found) for name, found in tile_types(whole, tile.grid).items())
    if tile.row < 0:
        network, inputs, outputs = gather_network(whole, tile.grid), ports, model.outputs
        classes = model.classes
    else:
        network, inputs, classes = tile_network(whole, tile.grid, tile.row, tile.column), model.inputs, ()
        outputs = (ports[tile.row * tile.grid.columns + tile.column],)
    return Model(
        name=f"{model.name}[{network.name.rpartition('[')[2]}",
        inputs=inputs,
        outputs=outputs,
        network=lambda: network,
        classes=classes,
        weights=model.weights,
        whole=model.network,
    )


def split_into_tiles(pipeline: Pipeline, grids: Mapping[str, Grid]) -> Pipeline:
    """Return the pipeline with the first layers of some stages split into tiles, which the rest of the stage waits for.

    Chains go through the last tile.
    """
    stages: list[Stage] = []
    for stage in pipeline.stages:
        if stage.name not in grids:
            stages.append(stage)
            continue
        grid = grids[stage.name]
        tiles = [TileOf(stage.name, grid, row, column) for row, column in grid.places()]
        stages += [
            replace(
                stage,
                name=tile.name,
                title=f"{stage.title}, tile {tile.row},{tile.column}",
                params={**stage.params, TILE: tile.param()},
            )
            for tile in tiles
        ]
        goes_on = replace(
            stage,
            params={**stage.params, TILE: TileOf(stage.name, grid).param()},
            after=tuple(tile.name for tile in tiles),
            reads=(),
            period_ns=None,
            offset_ns=0,
            jitter_ns=0,
            queue=stage.queue + 1,
        )
        stages.append(goes_on)
    return replace(pipeline, stages=tuple(stages), chains=tuple(_through(chain, grids) for chain in pipeline.chains))


def _through(chain: Chain, grids: Mapping[str, Grid]) -> Chain:
    path: list[str] = []
    for name in chain.path:
        if name in grids:
            row, column = grids[name].places()[-1]
            path.append(TileOf(name, grids[name], row, column).name)
        path.append(name)
    return replace(chain, path=tuple(path))
