"""Networks of the table docs/zoo.md that have no published ONNX file: python -m tools.generate.zoo_networks FOLDER.

Each is exported from its public definition at batch 1, with its large weights set to zero, and written to FOLDER as
NAME.onnx.xz of a few hundred kB.  Needs torch, torchvision, timm, transformers, segmentation-models-pytorch,
ultralytics and onnx (written with torch 2.13 and 2.14, torchvision 0.28, timm 1.0.31, transformers 5.23,
segmentation-models-pytorch 0.6, ultralytics 8.4); nothing is downloaded.
`python -m tools.generate.zoo_networks FOLDER NAME...` writes some.
"""

from __future__ import annotations

import io
import lzma
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

LARGE = 16384
"""Bytes from which on a weight is set to zero: shapes and indices are smaller."""
OPSET = 17


Making = tuple[Any, tuple[Any, ...], list[str]]
"""A network, its inputs and their names."""


def _of(make: Callable[[], Any], height: int, width: int, name: str = "image") -> Callable[[], Making]:
    """Return how a network of one image is made."""

    def made() -> Making:
        import torch

        return make(), (torch.zeros(1, 3, height, width),), [name]

    return made


def _from(module: str, function: str, *args: Any, **more: Any) -> Callable[[], Any]:
    """Return the call of a package's function, which is imported by then."""
    return lambda: getattr(import_module(module), function)(*args, **more)


def _torchvision(name: str) -> Callable[[], Any]:
    return _from("torchvision.models", "get_model", name, weights=None)


def _transformers(name: str, fields: tuple[str, ...], **settings: Any) -> Callable[[], Any]:
    """Return a network of transformers (its defaults but for `settings`) with these fields of its result as outputs."""

    def made() -> Any:
        import torch

        head = getattr(import_module("transformers"), name)
        net = head(head.config_class(**settings))

        class Fields(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = net

            def forward(self, image: Any) -> Any:
                result = self.net(image)
                return tuple(getattr(result, field) for field in fields)

        return Fields()

    return made


def _yolo(name: str) -> Callable[[], Any]:
    """Return a YOLO with decoding, from its description in ultralytics."""

    def made() -> Any:
        net = import_module("ultralytics.nn.tasks").DetectionModel(f"{name}.yaml", verbose=False)
        net.model[-1].export = True  # boxes and scores as one output
        return net

    return made


def _bevformer(image: str = "IMAGE") -> Callable[[], Making]:
    def made() -> Making:
        from tools.generate import zoo_bevformer

        return zoo_bevformer.bevformer_tiny(getattr(zoo_bevformer, image))

    return made


_OWN, _BEVFUSION = "tools.generate.zoo_definitions", "tools.generate.zoo_bevfusion"
Makers = dict[str, Callable[[], Making]]
NETWORKS: Makers = {
    "mobilenetv4_conv_small": _of(_from("timm", "create_model", "mobilenetv4_conv_small", pretrained=False), 224, 224),
    "vit_b_16": _of(_torchvision("vit_b_16"), 224, 224),
    "swin_t": _of(_torchvision("swin_t"), 224, 224),
    "rt_detr_r50": _of(
        _transformers("RTDetrForObjectDetection", ("logits", "pred_boxes"), anchor_image_size=[640, 640]), 640, 640
    ),
    "segformer_b0": _of(_transformers("SegformerForSemanticSegmentation", ("logits",), num_labels=19), 512, 1024),
    "deeplabv3plus_resnet50": _of(
        _from("segmentation_models_pytorch", "DeepLabV3Plus", "resnet50", encoder_weights=None, classes=19), 512, 512
    ),
    **{name: _of(_yolo(name), 640, 640, "images") for name in ("yolov6n", "yolov9t", "yolov10n")},
    "centernet_resnet18": _of(_from(_OWN, "centernet"), 512, 512),
    "ssd300_resnet50": _of(_from(_OWN, "ssd_resnet50"), 300, 300),
    "pidnet_s": _of(_from(_OWN, "pidnet_s"), 1024, 2048),
    "bevformer_tiny": _bevformer(),
}
PARTS: Makers = {
    "uniad_tiny_bev": _bevformer("QUARTER"),
    "bevfusion_camera": _from(_BEVFUSION, "camera"),
    "bevfusion_grid": _from(_BEVFUSION, "grid"),
    "bevfusion_fuser": _from(_BEVFUSION, "fuser"),
    "bevfusion_boxes": _from(_BEVFUSION, "boxes"),
    "centerpoint_dense": _from(_BEVFUSION, "centerpoint"),
}
"""Parts of published pipelines, for `tools.verify.published`."""


def exported(name: str) -> bytes:
    """Return a network as an ONNX file with large weights of zero."""
    import onnx
    import torch

    torch.backends.mha.set_fastpath_enabled(False)  # the fused attention has no ONNX form
    torch.manual_seed(0)
    net, inputs, names = (NETWORKS | PARTS)[name]()
    file = io.BytesIO()
    with torch.no_grad():
        torch.onnx.export(net.eval(), inputs, file, input_names=names, opset_version=OPSET, dynamo=False)
    model = onnx.load_from_string(file.getvalue())
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) >= LARGE and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.raw_data = bytes(len(tensor.raw_data))
    return bytes(model.SerializeToString())


def main(folder: Path, names: list[str]) -> None:
    """Write the named networks, or all of docs/zoo.md."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or NETWORKS:
        packed = lzma.compress(exported(name), lzma.FORMAT_XZ)
        (folder / f"{name}.onnx.xz").write_bytes(packed)
        print(f"{name}: {len(packed)} bytes", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
