"""Passes of the networks in a folder: NAME.onnx or NAME.onnx.xz, each read once, without its weights."""

from __future__ import annotations

from pathlib import Path

from socsched.errors import InputError, SocschedError, of_machine
from socsched.graph.expand import fuse_network
from socsched.graph.operators import Pass
from socsched.graph.passes import passes
from socsched.models.onnx_import import model
from socsched.models.onnx_skim import PACKED


class Networks:
    """Networks of a folder by name; `passes` raises InputError for one that is missing or cannot be read."""

    def __init__(self, folder: Path | None, known: dict[str, tuple[Pass, ...]] | None = None) -> None:
        self.folder = folder
        self.known: dict[str, tuple[Pass, ...] | str] = dict(known or {})

    def passes(self, name: str) -> tuple[Pass, ...]:
        """Return a network's passes in the order of execution."""
        if name not in self.known:
            self.known[name] = self._read(name)
        found = self.known[name]
        if isinstance(found, str):
            raise InputError(found, "see --networks")
        return found

    def _read(self, name: str) -> tuple[Pass, ...] | str:
        """Return the passes, or why there are none."""
        if self.folder is None:
            return f"{name}: no folder of networks is given"
        files = [self.folder / f"{name}.onnx{ending}" for ending in ("", PACKED)]
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            return f"{name}: neither {files[0].name} nor {files[1].name} is in {self.folder}"
        try:
            network = model({"file": str(file)}).network
            assert network is not None
            return passes(fuse_network(network()))
        except SocschedError as error:
            if of_machine(error):
                raise
            return str(error)
