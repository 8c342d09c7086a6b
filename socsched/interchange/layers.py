"""Layer names in rows of TensorRT's profiles: fused names, ranges, and rows that move data or wait."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from socsched.graph.network import Network
from socsched.graph.partition import Part

_ROLE = re.compile(
    r" (input reformatter \d+|output reformatter \d+|reformatted input \d+ finish|output to be reformatted \d+ finish"
    r"|copy finish|finish|from nvm|to nvm)$"
)
_COPY_NODE = re.compile(r"Reformatting CopyNode for (Input|Output) Tensor \d+ to (.*)", re.S)
_RANGE = re.compile(r"\{?ForeignNode\[(.+?)\.\.\.(.+?)\]\}?")


@dataclass(frozen=True, slots=True)
class RowName:
    """The parts of a row's name: `base` is the layer or block concerned; `role` is empty for the block itself.

    role: input | output (reformatters), finish (a synchronisation marker), from | to (copies of DLA memory).
    """

    base: str
    role: str = ""


def parse_row(name: str) -> RowName:
    """Return the base and the role of a row."""
    if match := _COPY_NODE.fullmatch(name):
        return RowName(match[2], match[1].lower())
    match = _ROLE.search(name)
    if match is None:
        return RowName(name)
    text = match[1]
    role = "finish" if text.endswith("finish") else text.split()[0]
    return RowName(name[: match.start()], role)


def is_list(base: str) -> bool:
    """Return whether a name is a block of listed layers, "{a,b,c}", as TensorRT 7 names subgraphs of the DLA."""
    return base.startswith("{") and base.endswith("}") and not _RANGE.fullmatch(base)


def is_range(base: str) -> bool:
    """Return whether a name is "{ForeignNode[first...last]}": a subgraph of the DLA or of TensorRT's GPU compiler."""
    return _RANGE.fullmatch(base) is not None


def layers_of(base: str, order: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the layers of a fused name "a + b || c", a list "{a,b}", or a range "ForeignNode[first...last]".

    `order`: the network's layers, to expand a range; without it, or where an end is unknown, the two ends.
    """
    if match := _RANGE.fullmatch(base):
        first, last = match[1], match[2]
        if first in order and last in order:
            start, end = sorted((order.index(first), order.index(last)))
            return tuple(order[start : end + 1])
        return (first,) if first == last else (first, last)
    if is_list(base):
        return tuple(name for name in base[1:-1].split(",") if name)
    names: list[str] = []
    for text in re.split(r" \|\| | \+ ", base.removesuffix(" copy")):
        while match := re.fullmatch(r"(?:PWN|CONV|POOL|ELTWISE)\((.*)\)", text):
            text = match[1]
        names += [name for name in (part.strip() for part in text.split(", ")) if name]
    return tuple(names)


def parts_of(network: Network, sections: Sequence[Sequence[str]]) -> tuple[Part, ...]:
    """Return the parts of a network that consecutive sections ran, empty where their layers are not a cut of it.

    Layers that a compiler fused away belong to the section of the next layer that needs them.
    """
    by_name = {layer.name: layer for layer in network.layers}
    if not sections or not all(any(name in by_name for name in names) for names in sections):
        return ()
    before, ends = set[str](), [tuple[str, ...]()]
    for place, names in enumerate(sections[:-1]):
        open_ = [name for name in names if name in by_name]
        while open_:
            name = open_.pop()
            if name not in before:
                before.add(name)
                open_ += [source for source in by_name[name].inputs if source in by_name]
        if any(name in before for later in sections[place + 1 :] for name in later):
            return ()
        followed = {name for layer in network.layers if layer.name in before for name in layer.inputs}
        ends.append(tuple(layer.name for layer in network.layers if layer.name in before - followed))
    return tuple(Part(begin, end) for begin, end in zip(ends, [*ends[1:], ()], strict=True))
