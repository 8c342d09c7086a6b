"""Networks the papers were evaluated with, as plain layers with shapes only, and pipelines of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from socsched import plugins
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.model import Model, Port

MS = 1_000_000


class Builder:
    """Layers and parameter shapes as they accumulate; a tensor is (name, channels, side)."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.params: dict[str, tuple[int, ...]] = {}
        self.channels: dict[str, int] = {}

    def conv(
        self, source: str, outputs: int, kernel: int | tuple[int, int] = 1, stride: int = 1, pad: Any = None
    ) -> str:
        """A convolution with bias and ReLU."""
        name = f"conv{len(self.layers)}"
        high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
        if pad is None:
            pad = (high // 2, wide // 2, high // 2, wide // 2)
        elif isinstance(pad, int):
            pad = (pad,) * 4
        weights = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
        shapes = ((outputs, self.channels[source], high, wide), (outputs,))
        self.params |= dict(zip(weights.values(), shapes, strict=True))
        self.layers.append(Layer(name, "conv2d", (source,), weights, {"stride": stride, "padding": pad}))
        self.layers.append(Layer(f"{name}.relu", "relu", (name,)))
        self.channels[f"{name}.relu"] = outputs
        return f"{name}.relu"

    def pool(self, source: str, op: str = "max_pool", kernel: int = 3, stride: int = 2, padding: int = 0) -> str:
        """A pooling layer."""
        name = f"pool{len(self.layers)}"
        self.layers.append(Layer(name, op, (source,), attrs={"kernel": kernel, "stride": stride, "padding": padding}))
        self.channels[name] = self.channels[source]
        return name

    def concat(self, *sources: str) -> str:
        """Channels of several tensors side by side."""
        name = f"concat{len(self.layers)}"
        self.layers.append(Layer(name, "concat", sources, attrs={"axis": 1}))
        self.channels[name] = sum(self.channels[source] for source in sources)
        return name

    def add(self, left: str, right: str) -> str:
        """The sum of two tensors, and ReLU."""
        name = f"add{len(self.layers)}"
        self.layers += [Layer(name, "add", (left, right)), Layer(f"{name}.relu", "relu", (name,))]
        self.channels[f"{name}.relu"] = self.channels[left]
        return f"{name}.relu"


def resnet18(params: Mapping[str, Any]) -> Model:
    """He et al., CVPR 2016, table 1, without its classifier."""
    return _resnet("claims.resnet18", (2, 2, 2, 2), False)


def resnet50(params: Mapping[str, Any]) -> Model:
    """He et al., CVPR 2016, table 1, without its classifier."""
    return _resnet("claims.resnet50", (3, 4, 6, 3), True)


def resnet101(params: Mapping[str, Any]) -> Model:
    """He et al., CVPR 2016, table 1, without its classifier."""
    return _resnet("claims.resnet101", (3, 4, 23, 3), True)


def vgg16(params: Mapping[str, Any]) -> Model:
    """Simonyan, Zisserman, 2014, configuration D, convolutions only."""
    b = Builder()
    b.channels["image"] = 3
    x = "image"
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = b.conv(x, channels, 3)
        x = b.pool(x, kernel=2)
    return _model("claims.vgg16", b, x, 224)


def _resnet(name: str, blocks: Sequence[int], bottleneck: bool) -> Model:
    b = Builder()
    b.channels["image"] = 3
    x = b.pool(b.conv("image", 64, 7, 2), padding=1)
    for stage, count in enumerate(blocks):
        width = 64 << stage
        outputs = width * (4 if bottleneck else 1)
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = b.conv(x, width) if bottleneck else x
            y = b.conv(y, width, 3, stride)
            y = b.conv(y, outputs) if bottleneck else b.conv(y, outputs, 3)
            same = stride == 1 and b.channels[x] == outputs
            x = b.add(y, x if same else b.conv(x, outputs, 1, stride))
    return _model(name, b, x, 224)


def _model(name: str, b: Builder, last: str, side: int) -> Model:
    image = TensorType((1, 3, side, side), "fp32", "NCHW")
    network = Network(name, {"image": image}, tuple(b.layers), (last,), b.params)
    # The result is not read; the compiler derives its size.
    result = Port(f"{name}.features", TensorType((1, b.channels[last], -1, -1), "fp32", "NCHW"))
    return Model(name, (Port("image", image),), (result,), network=lambda: network)


for _name in ("resnet18", "resnet50", "resnet101", "vgg16"):
    plugins.provide("socsched.models", f"claims.{_name}", f"{__name__}:{_name}")


def pipeline(
    *models: str, period_ms: float = 100.0, precisions: tuple[str, ...] = ("fp16",), engines: tuple[str, ...] = ()
) -> Pipeline:
    """Return networks side by side that all start with every frame of one camera, each a chain of its own."""
    camera = Sensor("camera", "camera", round(period_ms * MS))
    stages, chains = [], []
    for number, model in enumerate(models):
        name = model if models.count(model) == 1 else f"{model}-{number}"
        stages.append(_stage(name, model, precisions, engines))
        chains.append(Chain(f"{name}-latency", ("camera", name), round(period_ms * MS), None))
    return Pipeline("+".join(models), "", (camera,), tuple(stages), tuple(chains))


def _stage(name: str, model: str, precisions: tuple[str, ...], engines: tuple[str, ...]) -> Stage:
    return Stage(name, model, f"claims.{model}", ("camera",), precisions=precisions, queue=2, engines=engines)
