"""The OpenCL 1.2 calls needed to run a stage, directly from the system's libOpenCL (no package needed)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from socsched.compiler.targets.opencl.device import first_device
from socsched.errors import MachineError

Array = np.ndarray[Any, Any]

_BUILD_LOG, _FUNCTION_NAME, _REGION, _READ_WRITE, _TRUE, _AT_HOST = 0x1183, 0x1190, 0x1220, 1, 1, 8


class Device:
    """The first OpenCL device of the machine with an in-order queue; MachineError if there is none."""

    def __init__(self) -> None:
        self._cl, self._id, self.name = first_device()
        status = ctypes.c_int()
        create = self._returns("clCreateContext")
        self._context = create(None, 1, ctypes.byref(self._id), None, None, ctypes.byref(status))
        self._check(status.value, "clCreateContext")
        self._queue = self._made("clCreateCommandQueue", self._id, ctypes.c_uint64(0))

    def build(self, source: str) -> dict[str, Any]:
        """Return the kernels of a source by name; MachineError with the compiler's message if it fails."""
        text = ctypes.c_char_p(source.encode())
        program = self._made("clCreateProgramWithSource", 1, ctypes.byref(text), None)
        if self._cl.clBuildProgram(program, 1, ctypes.byref(self._id), None, None, None):
            raise MachineError(f"{self.name} refuses the kernels: {self._log(program)[:2000]}", "update the driver")
        count = ctypes.c_uint()
        self._call("clCreateKernelsInProgram", program, 0, None, ctypes.byref(count))
        kernels = (ctypes.c_void_p * count.value)()
        self._call("clCreateKernelsInProgram", program, count, kernels, None)
        return {self._kernel_name(ctypes.c_void_p(kernel)): ctypes.c_void_p(kernel) for kernel in kernels}

    def allocate(self, size: int, at: int = 0) -> Any:
        """Return device memory of `size` bytes, to be freed with `release`; `at`: where it lies in this process."""
        flags = ctypes.c_uint64(_READ_WRITE | (_AT_HOST if at else 0))
        return self._made("clCreateBuffer", flags, ctypes.c_size_t(max(size, 1)), ctypes.c_void_p(at or None))

    def part(self, memory: Any, offset: int, size: int) -> Any:
        """Return `size` bytes from `offset` on of `memory` as a sub-buffer."""
        status, region = ctypes.c_int(), (ctypes.c_size_t * 2)(offset, size)
        create = self._returns("clCreateSubBuffer")
        region_handle = create(memory, ctypes.c_uint64(0), _REGION, region, ctypes.byref(status))
        self._check(status.value, "clCreateSubBuffer")
        return ctypes.c_void_p(region_handle)

    def release(self, memory: Any) -> None:
        """Free device memory."""
        self._call("clReleaseMemObject", memory)

    def write(self, memory: Any, array: Array) -> None:
        """Copy a contiguous array to the start of `memory` and wait."""
        self._copy("clEnqueueWriteBuffer", memory, array)

    def read(self, memory: Any, array: Array) -> None:
        """Copy the start of `memory` into a contiguous array, after all previous launches."""
        self._copy("clEnqueueReadBuffer", memory, array)

    def launch(self, kernel: Any, groups: list[int], items: list[int], arguments: list[Any]) -> None:
        """Enqueue a kernel; an argument is memory or a numpy scalar."""
        for index, argument in enumerate(arguments):
            if isinstance(argument, np.generic):
                raw = argument.tobytes()
                self._call("clSetKernelArg", kernel, index, ctypes.c_size_t(len(raw)), raw)
            else:
                size = ctypes.c_size_t(ctypes.sizeof(ctypes.c_void_p))
                self._call("clSetKernelArg", kernel, index, size, ctypes.byref(argument))
        sizes = ctypes.c_size_t * len(groups)
        total, local = sizes(*(g * i for g, i in zip(groups, items, strict=True))), sizes(*items)
        self._call("clEnqueueNDRangeKernel", self._queue, kernel, len(groups), None, total, local, 0, None, None)

    def finish(self) -> None:
        """Wait for all launches."""
        self._call("clFinish", self._queue)

    def _copy(self, name: str, memory: Any, array: Array) -> None:
        if array.size:
            where = ctypes.c_void_p(array.ctypes.data)
            offset, size = ctypes.c_size_t(0), ctypes.c_size_t(array.nbytes)
            self._call(name, self._queue, memory, _TRUE, offset, size, where, 0, None, None)

    def _made(self, name: str, *arguments: Any) -> Any:
        """Return the object created by a function of the context, whose last parameter receives the status."""
        status = ctypes.c_int()
        handle = self._returns(name)(ctypes.c_void_p(self._context), *arguments, ctypes.byref(status))
        self._check(status.value, name)
        return ctypes.c_void_p(handle)

    def _returns(self, name: str) -> Any:
        function = getattr(self._cl, name)
        function.restype = ctypes.c_void_p
        return function

    def _call(self, name: str, *arguments: Any) -> None:
        self._check(getattr(self._cl, name)(*arguments), name)

    def _check(self, status: int, name: str) -> None:
        if status:
            raise MachineError(f"{self.name}: {name} failed with OpenCL error {status}", "check the device's driver")

    def _log(self, program: Any) -> str:
        size = ctypes.c_size_t()
        self._cl.clGetProgramBuildInfo(program, self._id, _BUILD_LOG, ctypes.c_size_t(0), None, ctypes.byref(size))
        text = ctypes.create_string_buffer(max(size.value, 1))
        self._cl.clGetProgramBuildInfo(program, self._id, _BUILD_LOG, size, text, None)
        return text.value.decode(errors="replace")

    def _kernel_name(self, kernel: Any) -> str:
        text = ctypes.create_string_buffer(1024)
        self._call("clGetKernelInfo", kernel, _FUNCTION_NAME, ctypes.c_size_t(1024), text, None)
        return text.value.decode()
