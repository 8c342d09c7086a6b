"""Sends compiled stages to another machine over TVM's RPC, runs them and times them there.

    python -m socsched.compiler.loading.rpc [--host ADDRESS] [--port PORT] [--tracker HOST:PORT --key KEY]

serves on the board, by default on the loopback address, since any client that reaches the port can run code.  TVM's own
command for this needs a package that TVM's wheel does not include; the underlying loop does not.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.layouts import NUMPY_DTYPES
from socsched.compiler.loading.tvm_runtime import VirtualMachine, tvm
from socsched.errors import MachineError

LOOPBACK = "127.0.0.1"
Array = np.ndarray[Any, Any]


def serve(host: str = LOOPBACK, port: int = 0, tracker: tuple[str, int] | None = None, key: str = "") -> None:
    """Print the port and serve clients forever; port 0 selects a free one, `tracker` registers it under `key`."""
    from tvm.rpc import server

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen(1)
    print(listening.getsockname()[1], flush=True)
    # the address given to clients: a tracker on this machine would report the loopback address
    address = host if tracker and host not in ("", "0.0.0.0") else None
    server._listen_loop(listening, listening.getsockname()[1], key, tracker, None, address)


class Remote:
    """A serving machine, used for at most `timeout_s`; MachineError if it does not answer."""

    def __init__(self, port: int, host: str = LOOPBACK, timeout_s: int = 600) -> None:
        from tvm import rpc

        try:
            self._session = rpc.connect(host, port, session_timeout=timeout_s)
        except (OSError, RuntimeError) as error:
            raise MachineError(
                f"{host}:{port} does not answer: {error}",
                "start `python -m socsched.compiler.loading.rpc` on the board",
            ) from error

    @classmethod
    def of(cls, session: Any) -> Remote:
        """Return the machine of an already open session."""
        remote = cls.__new__(cls)
        remote._session = session
        return remote

    def load(self, artifact: Artifact) -> RemoteStage:
        """Send a stage and load it there; MachineError if that fails."""
        try:
            self._session.upload(str(artifact.path), f"{artifact.stage}.so")
            module = self._session.load_module(f"{artifact.stage}.so")
            device = self._session.cpu(0)
            return RemoteStage(artifact, VirtualMachine(module, device), device)
        except (OSError, RuntimeError) as error:
            raise MachineError(
                f"{artifact.stage} cannot be loaded there: {error}", "compile it for that board"
            ) from error

    def timed(self, code: str, arrays: Sequence[Array], repeat: int) -> list[int]:
        """Send a shared object, run it on `arrays` as its code takes them; return `repeat` execution times, in ns."""
        name = code.rpartition("/")[2]
        self._session.upload(code, name)
        device = self._session.cpu(0)
        machine = VirtualMachine(self._session.load_module(name), device)
        return _times(machine, device, arrays, repeat)


class RemoteStage:
    """A stage on the other machine: call it like a local one, or measure it there with `times`."""

    def __init__(self, artifact: Artifact, machine: Any, device: Any) -> None:
        self.artifact, self.inputs, self.outputs = artifact, artifact.inputs, artifact.outputs
        self._machine, self._device = machine, device

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the outputs for `arrays`; inputs and outputs are transferred."""
        self._set(arrays)
        self._machine.invoke_stateful("main")
        found = self._machine.get_outputs("main")
        found = found if isinstance(found, (list, tuple)) else (found,)
        return tuple(
            tensor.numpy().astype(NUMPY_DTYPES[kind.dtype], copy=False)
            for tensor, kind in zip(found, self.outputs, strict=True)
        )

    def times(self, arrays: Sequence[Array], repeat: int = 10) -> list[int]:
        """Return the duration of each of `repeat` runs there, in ns, without transfers."""
        return _times(self._machine, self._device, self._inside(arrays), repeat)

    def _set(self, arrays: Sequence[Array]) -> None:
        _put(self._machine, self._device, self._inside(arrays))

    def _inside(self, arrays: Sequence[Array]) -> list[Array]:
        return [array.astype(np.float32) if array.dtype == np.float16 else array for array in arrays]


def _put(machine: Any, device: Any, arrays: Sequence[Array]) -> None:
    machine.set_input("main", *(tvm.runtime.tensor(np.ascontiguousarray(array), device) for array in arrays))


def _times(machine: Any, device: Any, arrays: Sequence[Array], repeat: int) -> list[int]:
    _put(machine, device, arrays)
    machine.invoke_stateful("main")
    timer = machine.time_evaluator("invoke_stateful", device, number=1, repeat=repeat)
    return [round(seconds * 1e9) for seconds in timer("main").results]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tracker", help="HOST:PORT of a tracker to register at")
    parser.add_argument("--key", default="", help="kind of this board, the key at the tracker")
    chosen = parser.parse_args()
    where, _, number = (chosen.tracker or "").rpartition(":")
    serve(chosen.host, chosen.port, (where, int(number)) if where else None, chosen.key)
