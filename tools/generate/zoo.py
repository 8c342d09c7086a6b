"""The table docs/zoo.md, of published networks and what takes them: python -m tools.generate.zoo FOLDER...

The folders hold ONNX files (`.onnx` or `.onnx.xz`), some made by `tools.bench.network_zoo --page`; their weights are
not read.  An engine's column says yes where its
rules take every operator in its first precision out of fp16, fp32 and int8, else the share that they take.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import SocschedError
from socsched.graph.rules import decide
from socsched.models.registry import get_model
from socsched.models.work import stage_work

PAGE = Path(__file__).resolve().parents[2] / "docs" / "zoo.md"
ENGINES = {
    "CPU": ("jetson-agx-orin-64gb", "cpu0"), "CUDA": ("jetson-agx-orin-64gb", "gpu"), "OpenCL": ("rk3588", "gpu"),
    "DLA": ("jetson-agx-orin-64gb", "dla0"), "HTP": ("qcs8550", "npu"), "RKNN": ("rk3588", "npu"),
}  # fmt: skip
PRECISIONS = ("fp16", "fp32", "int8")
NETWORKS = {
    "ResNet-50": "resnet50", "ResNeXt-50": "resnext50_32x4d", "RegNetY-400MF": "regnet_y_400mf",
    "DenseNet-169": "densenet169", "VGG-19": "vgg19", "GoogLeNet": "googlenet", "Inception-v4": "inception_v4_299",
    "SqueezeNet 1.0": "squeezenet1_0", "MNASNet 0.75": "mnasnet0_75", "MobileNetV1": "mbv1_1.0_224",
    "MobileNetV2": "mobilenet_v2", "MobileNetV3-L": "mobilenet_v3_large",
    "MobileNetV3-S minimal": "tf_mobilenetv3_small_minimal_100", "EfficientNet-Lite4": "efficientnet_lite4",
    "EfficientNet-B4": "efficientnet_b4_380", "EfficientNetV2-S": "efficientnet_v2_s_384",
    "ConvNeXt-B": "convnext_base", "BERT-B": "bert_base_384", "SSD-ResNet34": "ssd_resnet34_1200",
    "FCN-ResNet18": "fcn_resnet18_512x256", "FCN-ResNet50": "fcn_resnet50_224", "U-Net": "unet_640x1280",
    "YOLOv5s": "yolov5s", "YOLOv5nu": "yolov5nu", "YOLOv8n": "yolov8n",
    "YOLOv8n with decoding": "yolov8n_full", "YOLOv8s": "yolov8s", "YOLOv9t": "yolov9t",
    "YOLO11m": "yolo11m", "YOLO11x": "yolo11x",
    "MobileNetV4-S": "mobilenetv4_conv_small", "ViT-B/16": "vit_b_16", "Swin-T": "swin_t", "RT-DETR-R50": "rt_detr_r50",
    "SegFormer-B0": "segformer_b0",
}  # fmt: skip
TAKEN = "Read, plannable and taken whole by every column's engine: "
BUILT_IN = {"CenterPoint backbone": "centerpoint.backbone", "PointPillars backbone": "pointpillars.backbone"}


def row(title: str, stage: Stage) -> str:
    """Return a network's row; a network that is not read has the reason in place of the engines."""
    try:
        get_model(stage.model, dict(stage.params))
    except SocschedError as error:
        return f"| {title} | no: {str(error).partition(': ')[2]} | no |" + " - |" * len(ENGINES)
    cells = [_cell(stage, _engine(*place)) for place in ENGINES.values()]
    return f"| {title} | yes | {'yes' if cells[0] == 'yes' else 'no'} | {' | '.join(cells)} |"


def _engine(platform: str, name: str) -> Engine:
    engines = get_platform(platform).engines
    return next(engine for engine in engines if name in (engine.id, engine.kind) or engine.id.startswith(name))


def _cell(stage: Stage, engine: Engine) -> str:
    precision = next(name for name in PRECISIONS if name in engine.precisions)
    operators = stage_work(stage, precision, None).operators
    refused = [operator for operator in operators if not decide(operator, engine).runs]
    if not refused:
        return "yes"
    kinds = ", ".join(dict.fromkeys(decide(operator, engine).rule for operator in refused))
    return f"{len(operators) - len(refused)}/{len(operators)}: not {kinds}"


def file_of(name: str, folders: Sequence[Path]) -> Path | None:
    """Return a network's file in one of the folders, None if none has it."""
    places = (folder / f"{name}.{end}" for folder in folders for end in ("onnx", "onnx.xz"))
    return next((file for file in places if file.is_file()), None)


def table(*folders: Path) -> str:
    """Return the page for the files of some folders; a file that is not there is listed as missing."""
    stages = {title: Stage("net", "net", name, precisions=PRECISIONS) for title, name in BUILT_IN.items()}
    files = {title: file_of(name, folders) for title, name in NETWORKS.items()}
    for title, file in files.items():
        if file is not None:
            stages[title] = Stage("net", "net", "onnx", params={"file": str(file)}, precisions=PRECISIONS)
    rows = {title: row(title, stages[title]) for title in sorted(stages, key=[*NETWORKS, *BUILT_IN].index)}
    whole = [title for title, line in rows.items() if line == f"| {title} |" + " yes |" * (2 + len(ENGINES))]
    lines = [f"{TAKEN}{', '.join(whole)}.", ""] if whole else []
    lines += [f"| network | parses | plannable | {' | '.join(ENGINES)} |", "|" + "---|" * (3 + len(ENGINES))]
    lines += [line for title, line in rows.items() if title not in whole]
    missing = [title for title, file in files.items() if file is None]
    absent = f"\nNo ONNX file was at hand for: {', '.join(missing)}.\n" if missing else ""
    return f"{_HEAD}\n" + "\n".join(lines) + f"\n{absent}"


_HEAD = """# Published networks

Made by `python -m tools.generate.zoo FOLDER`. *Plannable*: the operators have work and a CPU takes them all. An
accelerator's column gives the operators that its rules take and the kinds that fall back; conditions that shapes do not
show are not in it. CPU, CUDA and DLA are those of Jetson AGX Orin, HTP that of QCS8550, OpenCL and RKNN of RK3588.
CPU, CUDA and OpenCL stages are compiled by general schedules where no kernel of ours fits.

MobileNetV4, ViT, Swin, RT-DETR and SegFormer are exported from torchvision, timm and transformers by
`python -m tools.bench.network_zoo --page FOLDER`. Seconds to compile and to run: [performance.md](performance.md).
"""


if __name__ == "__main__":
    PAGE.write_text(table(*map(Path, sys.argv[1:])), encoding="utf-8")
