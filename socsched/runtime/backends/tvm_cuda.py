"""Stages on a CUDA device: compiled functions as recorded graphs, frames in slots, waiting only for the end.

Each criticality has its own streams.  Copies from and to the host are the plan's conversions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from socsched.compiler.artifact import Artifact
from socsched.descriptor.pipeline import Stage
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Call, Setting
from socsched.runtime.backends.device import Device
from socsched.runtime.backends.device_code import compiled
from socsched.runtime.backends.device_jobs import DeviceStage, Download, Reform, Upload
from socsched.runtime.backends.slots import Slots

Compile = Callable[[Task, Stage, Setting], Artifact]


class SlottedBackend:
    """The common part of device backends: per-thread streams by criticality, and slots by entry task.

    `device` replaces the first CUDA device.
    """

    real = True
    queued = True

    def __init__(self, device: Device | None = None) -> None:
        self._device = device
        self._slots: dict[str, Slots] = {}
        self._limit = 0
        self._local = threading.local()
        self._lock = threading.Lock()

    def room(self, task: str) -> bool:
        """Return whether a slot is free for another frame that enters the device with `task`."""
        return self.slots(task).room

    def limit(self, frames: int) -> None:
        """Limit the device to `frames` frames at once for each entry task."""
        self._limit = frames
        for slots in self._slots.values():
            slots.limit = frames

    def slots(self, task: str) -> Slots:
        """Return the slots of frames that enter the device with `task`."""
        with self._lock:
            if task not in self._slots:
                self._slots[task] = Slots()
                self._slots[task].limit = self._limit
            return self._slots[task]

    def device(self, arch: str) -> Device:
        """Return the device; `arch` is the architecture that its conversions are built for."""
        with self._lock:
            if self._device is None:
                from socsched.compiler.targets.cuda.device import CudaDevice

                self._device = CudaDevice(arch)
            return self._device

    def stream(self, criticality: str) -> Any:
        """Return the calling thread's stream for jobs of this criticality."""
        streams: dict[str, Any] = self._local.__dict__.setdefault("streams", {})
        if criticality not in streams:
            assert self._device is not None
            streams[criticality] = self._device.stream(criticality)
        return streams[criticality]


class TvmCudaBackend(SlottedBackend):
    """Stages and conversions on one CUDA device; one instance serves a run."""

    title = "TVM on CUDA"

    def __init__(self, device: Device | None = None, compile_: Compile | None = None) -> None:
        super().__init__(device)
        self._compile = compile_ or compiled

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return a stage or conversion for the calling thread, on its stream for the task's criticality."""
        device = self.device(str(setting.platform.engine(task.engine).target.get("arch", "")))
        stream = self.stream(task.criticality)
        if stage is not None:
            artifact = self._compile(task, stage, setting)
            bound = setting.bound[stage.name]
            inputs = {name: bound[name] for name in artifact.input_names}
            return DeviceStage(device, stream, artifact, inputs, self.slots(task.name))
        move = next(t for t in setting.plan.transitions if t.task == task.name)
        engines = {t.name: t.engine for t in setting.plan.tasks}
        supported = {e.id for e in setting.platform.engines if e.target.get("kind") in ("cuda", "tensorrt")}
        if engines[move.sink] in supported and engines.get(move.source) in supported:
            return Reform(device, stream, move, setting)
        if engines[move.sink] in supported:
            return Upload(device, stream, move, setting, self.slots(task.name))
        return Download(device, stream, move, setting)
