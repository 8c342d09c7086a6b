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
from pathlib import Path
from typing import Any

LARGE = 16384
"""Bytes from which on a weight is set to zero: shapes and indices are smaller."""
OPSET = 17


def _torchvision(name: str, **more: Any) -> Any:
    import torchvision

    return torchvision.models.get_model(name, weights=None, **more)


def _mobilenetv4() -> tuple[Any, tuple[Any, ...], list[str]]:
    import timm
    import torch

    return timm.create_model("mobilenetv4_conv_small", pretrained=False), (torch.zeros(1, 3, 224, 224),), ["image"]


def _vit() -> tuple[Any, tuple[Any, ...], list[str]]:
    import torch

    return _torchvision("vit_b_16"), (torch.zeros(1, 3, 224, 224),), ["image"]


def _swin() -> tuple[Any, tuple[Any, ...], list[str]]:
    import torch

    return _torchvision("swin_t"), (torch.zeros(1, 3, 224, 224),), ["image"]


def _rt_detr() -> tuple[Any, tuple[Any, ...], list[str]]:
    """Return RT-DETR with ResNet-50 (transformers' defaults), anchors of 640 x 640 fixed."""
    import torch
    from transformers import RTDetrConfig, RTDetrForObjectDetection

    net = RTDetrForObjectDetection(RTDetrConfig(anchor_image_size=[640, 640]))
    return _Outputs.of(net, "logits", "pred_boxes"), (torch.zeros(1, 3, 640, 640),), ["image"]


def _segformer() -> tuple[Any, tuple[Any, ...], list[str]]:
    """Return SegFormer-B0 (transformers' defaults) with the 19 classes of Cityscapes."""
    import torch
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    net = SegformerForSemanticSegmentation(SegformerConfig(num_labels=19))
    return _Outputs.of(net, "logits"), (torch.zeros(1, 3, 512, 1024),), ["image"]


def _deeplab() -> tuple[Any, tuple[Any, ...], list[str]]:
    import segmentation_models_pytorch as smp
    import torch

    net = smp.DeepLabV3Plus("resnet50", encoder_weights=None, classes=19)
    return net, (torch.zeros(1, 3, 512, 512),), ["image"]


def _yolo(name: str) -> Callable[[], tuple[Any, tuple[Any, ...], list[str]]]:
    def made() -> tuple[Any, tuple[Any, ...], list[str]]:
        """Return a YOLO with decoding, from its description in ultralytics."""
        import torch
        from ultralytics.nn.tasks import DetectionModel

        net = DetectionModel(f"{name}.yaml", verbose=False)
        net.model[-1].export = True  # boxes and scores as one output
        return net, (torch.zeros(1, 3, 640, 640),), ["images"]

    return made


def _centernet() -> tuple[Any, tuple[Any, ...], list[str]]:
    import torch

    from tools.generate.zoo_definitions import centernet

    return centernet(), (torch.zeros(1, 3, 512, 512),), ["image"]


def _ssd() -> tuple[Any, tuple[Any, ...], list[str]]:
    import torch

    from tools.generate.zoo_definitions import ssd_resnet50

    return ssd_resnet50(), (torch.zeros(1, 3, 300, 300),), ["image"]


def _pidnet() -> tuple[Any, tuple[Any, ...], list[str]]:
    import torch

    from tools.generate.zoo_definitions import pidnet_s

    return pidnet_s(), (torch.zeros(1, 3, 1024, 2048),), ["image"]


def _bevformer(image: str = "IMAGE") -> Callable[[], tuple[Any, tuple[Any, ...], list[str]]]:
    def made() -> tuple[Any, tuple[Any, ...], list[str]]:
        from tools.generate import zoo_bevformer

        return zoo_bevformer.bevformer_tiny(getattr(zoo_bevformer, image))

    return made


def _bevfusion(part: str) -> Callable[[], tuple[Any, tuple[Any, ...], list[str]]]:
    def made() -> tuple[Any, tuple[Any, ...], list[str]]:
        from tools.generate import zoo_bevfusion

        found: tuple[Any, tuple[Any, ...], list[str]] = getattr(zoo_bevfusion, part)()
        return found

    return made


class _Outputs:
    @staticmethod
    def of(net: Any, *names: str) -> Any:
        """Return a module with the named fields of a network's result as its outputs."""
        import torch

        class Chosen(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = net

            def forward(self, image: Any) -> Any:
                found = self.net(image)
                return tuple(getattr(found, name) for name in names)

        return Chosen()


Makers = dict[str, Callable[[], tuple[Any, tuple[Any, ...], list[str]]]]
NETWORKS: Makers = {
    "mobilenetv4_conv_small": _mobilenetv4,
    "vit_b_16": _vit,
    "swin_t": _swin,
    "rt_detr_r50": _rt_detr,
    "segformer_b0": _segformer,
    "deeplabv3plus_resnet50": _deeplab,
    "yolov6n": _yolo("yolov6n"),
    "yolov9t": _yolo("yolov9t"),
    "yolov10n": _yolo("yolov10n"),
    "centernet_resnet18": _centernet,
    "ssd300_resnet50": _ssd,
    "pidnet_s": _pidnet,
    "bevformer_tiny": _bevformer(),
}
PARTS: Makers = {
    "uniad_tiny_bev": _bevformer("QUARTER"),
    "bevfusion_camera": _bevfusion("camera"),
    "bevfusion_grid": _bevfusion("grid"),
    "bevfusion_fuser": _bevfusion("fuser"),
    "bevfusion_boxes": _bevfusion("boxes"),
    "centerpoint_dense": _bevfusion("centerpoint"),
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
