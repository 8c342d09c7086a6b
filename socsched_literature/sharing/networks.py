"""Layers of some convolutional networks as matrix products, from their papers' tables."""

from __future__ import annotations

from collections.abc import Callable

from socsched_literature.sharing.subarrays import Layer


def _conv(size: int, inputs: int, outputs: int, kernel: int = 3) -> Layer:
    return Layer(inputs * kernel * kernel, outputs, size * size)


def resnet50() -> list[Layer]:
    """Return ResNet-50 at 224 x 224 (He et al., CVPR 2016, table 1)."""
    layers = [_conv(112, 3, 64, 7)]
    inputs = 64
    for size, width, blocks in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        for block in range(blocks):
            layers += [_conv(size, inputs, width, 1), _conv(size, width, width), _conv(size, width, 4 * width, 1)]
            if block == 0:
                layers.append(_conv(size, inputs, 4 * width, 1))
            inputs = 4 * width
    return [*layers, Layer(2048, 1000, 1)]


def mobilenet_v1() -> list[Layer]:
    """Return MobileNet at 224 x 224 (Howard et al., arXiv 1704.04861, table 1)."""
    layers = [_conv(112, 3, 32)]
    steps = [(112, 32, 64), (56, 64, 128), (56, 128, 128), (28, 128, 256), (28, 256, 256), (14, 256, 512)]
    steps += [(14, 512, 512)] * 5 + [(7, 512, 1024), (7, 1024, 1024)]
    for size, inputs, outputs in steps:
        layers += [Layer(9, 1, size * size, inputs), _conv(size, inputs, outputs, 1)]
    return [*layers, Layer(1024, 1000, 1)]


def googlenet() -> list[Layer]:
    """Return GoogLeNet at 224 x 224 (Szegedy et al., CVPR 2015, table 1)."""
    layers = [_conv(112, 3, 64, 7), _conv(56, 64, 64, 1), _conv(56, 64, 192)]
    modules = [
        (28, 192, 64, 96, 128, 16, 32, 32), (28, 256, 128, 128, 192, 32, 96, 64),
        (14, 480, 192, 96, 208, 16, 48, 64), (14, 512, 160, 112, 224, 24, 64, 64),
        (14, 512, 128, 128, 256, 24, 64, 64), (14, 512, 112, 144, 288, 32, 64, 64),
        (14, 528, 256, 160, 320, 32, 128, 128),
        (7, 832, 256, 160, 320, 32, 128, 128), (7, 832, 384, 192, 384, 48, 128, 128),
    ]  # fmt: skip
    for size, inputs, one, reduce3, three, reduce5, five, pool in modules:
        layers += [
            _conv(size, inputs, one, 1), _conv(size, inputs, reduce3, 1), _conv(size, reduce3, three),
            _conv(size, inputs, reduce5, 1), _conv(size, reduce5, five, 5), _conv(size, inputs, pool, 1),
        ]  # fmt: skip
    return [*layers, Layer(1024, 1000, 1)]


def tiny_yolo() -> list[Layer]:
    """Return Tiny YOLO v2 at 416 x 416 (Redmon & Farhadi, CVPR 2017, and its configuration file)."""
    steps = [(416, 3, 16), (208, 16, 32), (104, 32, 64), (52, 64, 128), (26, 128, 256), (13, 256, 512)]
    steps += [(13, 512, 1024), (13, 1024, 1024)]
    return [*(_conv(*step) for step in steps), _conv(13, 1024, 125, 1)]


def yolov3() -> list[Layer]:
    """Return YOLOv3 at 416 x 416 (Redmon & Farhadi, arXiv 1804.02767, table 1, and its configuration file)."""
    layers = [_conv(416, 3, 32)]
    for size, width, blocks in ((208, 64, 1), (104, 128, 2), (52, 256, 8), (26, 512, 8), (13, 1024, 4)):
        layers.append(_conv(size, width // 2, width))
        for _ in range(blocks):
            layers += [_conv(size, width, width // 2, 1), _conv(size, width // 2, width)]
    for size, inputs, width in ((13, 1024, 512), (26, 768, 256), (52, 384, 128)):
        layers.append(_conv(size, inputs, width, 1))
        for _ in range(2):
            layers += [_conv(size, width, 2 * width), _conv(size, 2 * width, width, 1)]
        layers += [_conv(size, width, 2 * width), _conv(size, 2 * width, 255, 1)]
    return layers


NETWORKS: dict[str, Callable[[], list[Layer]]] = {
    one.__name__: one for one in (resnet50, googlenet, mobilenet_v1, tiny_yolo, yolov3)
}
