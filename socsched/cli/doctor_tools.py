"""Optional tools of socsched: the single list shared by `doctor`, `make help` and docs/optional.md."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib import metadata

from socsched.errors import extra


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: `status` ok | missing (not installed) | broken (installed but not working).

    `remedy`: the command that fixes it, "" if none is needed.  `main`: required for the main workflow.
    """

    name: str
    status: str
    found: str
    enables: str
    remedy: str = ""
    main: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """An optional tool: its purpose, its installation command, and a remark.

    It is present if one of `programs` is on PATH or the Python package `package` is installed; a tool with neither
    has a custom check.
    """

    name: str
    enables: str
    install: str
    remark: str = ""
    programs: tuple[str, ...] = ()
    package: str = ""

    @property
    def remedy(self) -> str:
        return f"{self.install} ({self.remark})" if self.remark else self.install

    def ok(self, found: str) -> Check:
        """Return the finding that the tool is present."""
        return Check(self.name, "ok", found, self.enables)

    def missing(self, found: str) -> Check:
        """Return the finding that the tool is missing."""
        return Check(self.name, "missing", found, self.enables, self.remedy)

    def broken(self, found: str, remedy: str = "") -> Check:
        """Return the finding that the tool does not work; `remedy` replaces the installation command."""
        return Check(self.name, "broken", found, self.enables, remedy or self.remedy)

    def look(self) -> Check:
        """Return whether the tool's program or package is present."""
        if self.package:
            try:
                return self.ok(metadata.version(self.package))
            except metadata.PackageNotFoundError:
                return self.missing("not installed")
        path = next((found for name in self.programs if (found := shutil.which(name))), None)
        return self.ok(path) if path else self.missing("none on PATH")


LIMITS = "/etc/security/limits.d/socsched.conf"
LLVM_MCA = ("llvm-mca-22", "llvm-mca-19", "llvm-mca-18", "llvm-mca-17", "llvm-mca-16", "llvm-mca")

OPTIONAL: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("OR-Tools", "plan --solver cpsat", extra("solver"), package="ortools"),
        Tool("ONNX", "reading and writing ONNX files", extra("onnx"), package="onnx"),
        Tool("Parquet", "sweep, fleet", extra("sweep"), package="pyarrow"),
        Tool("Ray", "sweeps over several hosts", extra("cluster"), package="ray"),
        Tool("tornado", "the RPC tracker that allocates boards", extra("tracker"), package="tornado"),
        Tool("MCAP", "recordings as input, results for Foxglove", extra("mcap"), package="mcap"),
        Tool("rosbags", "rates of topics in bags of ROS 1", extra("ros1"), package="rosbags"),
        Tool("ROS 2", "the node socsched-ros", extra("ros2"), package="ros-rclpy"),
        Tool("pygls", "lint --lsp, for editors", extra("lsp"), package="pygls"),
        Tool("PyTorch", "training networks, and its tests", "pip install torch", package="torch"),
        Tool(
            "aarch64 compiler",
            "linking for Arm boards",
            "sudo apt-get install -y g++-aarch64-linux-gnu",
            "without it, objects for the board are built but not linked",
            ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc", "aarch64-none-linux-gnu-g++"),
        ),
        Tool(
            "Zig",
            "executors for boards with glibc 2.31",
            extra("boards"),
            "without it, they need the glibc of the aarch64 compiler",
            package="ziglang",
        ),
        Tool(
            "aarch64 emulator",
            "running Arm code in tests",
            "sudo apt-get install -y qemu-user",
            "without it, code for Arm boards is built but not run",
            ("qemu-aarch64",),
        ),
        Tool(
            "llvm-mca",
            "predicting the speed of Arm code in tests",
            "sudo apt-get install -y llvm-19",
            "16 or newer",
            LLVM_MCA,
        ),
        Tool(
            "nvcc",
            "CUDA code for NVIDIA boards",
            "install the CUDA toolkit",
            "12.x for JetPack 6, 13.x for JetPack 7; planning and simulating need no toolkit",
            ("nvcc", "/usr/local/cuda/bin/nvcc"),
        ),
        Tool("GPU", "running stages on a GPU", "sudo apt-get install -y nvidia-driver"),
        Tool(
            "libcudart",
            "TVM on a GPU",
            "sudo apt-get install -y cuda-cudart-13-0",
            "JetPack 7 has it; on JetPack 6 use TensorRT for the GPU",
        ),
        Tool("TensorRT", "stages on a DLA", "sudo apt-get install -y python3-libnvinfer"),
        Tool(
            "OpenCL",
            "running OpenCL kernels here",
            "sudo apt-get install -y pocl-opencl-icd",
            "PoCL runs on the CPU; a GPU driver has its own runtime; building kernels needs neither",
        ),
        Tool("Hexagon", "objects for Hexagon DSPs", "install the pinned TVM wheel"),
        Tool(
            "HTP compiler",
            "compile and simulate --vendor-sim for Qualcomm's NPUs",
            extra("qualcomm") + " && socsched doctor --install qualcomm",
            "600 MB, under Qualcomm's licence; without it, stages are handed over with build scripts",
        ),
        Tool(
            "RKNN compiler",
            "compile and simulate --vendor-sim for RK3588's NPU",
            extra("rockchip") + " && socsched doctor --install rockchip",
            "700 MB, under Rockchip's terms; without it, stages are handed over with build scripts",
        ),
        Tool(
            "real time",
            "run --realtime",
            f"printf '%s - rtprio 99\\n%s - memlock unlimited\\n' $USER $USER | sudo tee {LIMITS}",
            "then log in again",
        ),
        Tool(
            "power sensors",
            "power in results",
            "nothing to install",
            "without sensors, results state that power was not observed",
        ),
        Tool(
            "Chromium",
            "tests of the report in a browser",
            "sudo apt-get install -y chromium",
            programs=("chromium", "chromium-browser", "google-chrome"),
        ),
    )
}
"""Tools by name, in the order of `doctor`'s rows."""
