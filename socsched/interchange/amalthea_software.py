"""The software of AMALTHEA models: processes, their call graphs with switches, and what a call graph takes on a unit.

A switch (ModeSwitch, ProbabilitySwitch, the older RunnableModeSwitch) runs one of its entries: the longest counts.
Runnables may call runnables.  References are by name; a name that several elements have is refused where it is used,
unless what they state can be taken together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from socsched.interchange.amalthea_hardware import Unit, amount, bound, plain, reference
from socsched.interchange.xml_file import Element, XmlFile

_GRAPHS = ("activityGraph", "callGraph")
_ITEMS = ("items", "graphEntries", "calls", "runnableItems")
_ENTRIES = ("entries", "defaultEntry")
_GROUPS = ("Group", "CallSequence", "RunnableItemsGroup")
MOST_DEEP = 150
"""Calls and switches, one inside the other."""


class Load(NamedTuple):
    """What a call graph takes on a unit: ticks at most and on average, bytes of labels moved."""

    ticks: float = 0.0
    mean: float = 0.0
    moved: float = 0.0

    def __add__(self, other: tuple[object, ...]) -> Load:
        """Return both one after the other."""
        assert isinstance(other, Load)
        return Load(self.ticks + other.ticks, self.mean + other.mean, self.moved + other.moved)


@dataclass(slots=True, eq=False)
class Process:
    """A task or an interrupt: its name, its element, and the items of its call graph, groups opened."""

    name: str
    kind: str
    element: Element
    items: list[Element] = field(default_factory=list)


class Index:
    """Elements by name, as references mean them."""

    def __init__(self, file: XmlFile, what: str, elements: Iterable[Element]) -> None:
        self.file, self.what = file, what
        self.named: dict[str, list[Element]] = {}
        for element in elements:
            self.named.setdefault(element.get("name"), []).append(element)

    def one(self, name: str, at: Element) -> Element | None:
        """Return the element of a name, None if there is none; DescriptorError if there are several."""
        listed = self.named.get(name, [])
        if len(listed) > 1:
            lines = ", ".join(str(element.line) for element in listed)
            self.file.refuse(at, f"expected one {self.what}, {name!r} is the name of several (lines {lines})")
        return listed[0] if listed else None


def kind(item: Element) -> str:
    """Return the type of an element without its prefix, such as RunnableCall."""
    return item.get("type").rpartition(":")[2]


class Software:
    """Processes, runnables and labels of a model."""

    def __init__(self, file: XmlFile, section: Element) -> None:
        self.file = file
        self.sizes: dict[str, int] = {}
        for label in section.all("labels"):  # of labels with one name the largest counts
            size = label.first("size")
            many = round(amount(file, size)) if size is not None else 0
            self.sizes[label.get("name")] = max(many, self.sizes.get(label.get("name"), 0))
        self.runnables = Index(file, "runnable", section.all("runnables"))
        self.processes = [
            Process(e.get("name"), tag[:-1], e, list(_opened(_graph(e))))
            for tag in ("tasks", "isrs")
            for e in section.all(tag)
            if e.get("name")
        ]
        self._bodies: dict[int, list[Element]] = {}
        self._loads: dict[tuple[int, str], Load | None] = {}

    def named(self, text: str) -> list[Process]:
        """Return the processes that a reference names."""
        name, kind_ = reference(text), text.partition("?type=")[2].lower()
        every = [process for process in self.processes if process.name == name]
        return [process for process in every if process.kind[:-1] in kind_ or process.kind == kind_] or every

    def reached(self, items: Sequence[Element]) -> list[Element]:
        """Return every item that may run, entries of switches and called runnables opened, each once."""
        found: dict[int, Element] = {}
        pending = list(reversed(items))
        while pending:
            item = pending.pop()
            if id(item) in found:
                continue
            found[id(item)] = item
            called = self.called(item)
            inner = self.body(called) if called is not None else _all_entries(item)
            pending += reversed(inner)
        return list(found.values())

    def called(self, item: Element) -> Element | None:
        """Return the runnable that an item calls; DescriptorError if the model has none of that name."""
        if not kind(item).endswith("RunnableCall"):
            return None
        name = reference(item.get("runnable"))
        runnable = self.runnables.one(name, item)
        if runnable is None:
            self.file.refuse(item, f"expected a runnable of the model, got {name!r}")
        return runnable

    def body(self, runnable: Element) -> list[Element]:
        """Return the items of a runnable, groups opened."""
        if id(runnable) not in self._bodies:
            self._bodies[id(runnable)] = list(_opened(_graph(runnable)))
        return self._bodies[id(runnable)]

    def timed(self, items: Sequence[Element]) -> bool:
        """Return whether anything that may run states ticks for some unit."""
        return any(item.children for item in self.reached(items) if kind(item) == "Ticks")

    def load(self, items: Sequence[Element], name: str, unit: Unit, labels: bool = True, depth: int = 0) -> Load | None:
        """Return what items take on a unit, None if one of them states ticks for other units only.

        `labels`: whether accesses to labels count; those of a runnable without ticks are copies, which take time on
        units with a data rate only.
        """
        total = Load()
        for item in items:
            part = self._item(item, name, unit, labels, depth)
            if part is None:
                return None
            total += part
        return total

    def _item(self, item: Element, name: str, unit: Unit, labels: bool, depth: int) -> Load | None:
        what = kind(item)
        if what == "LabelAccess":
            return Load(moved=self.sizes.get(reference(item.get("data")), 0)) if labels else Load()
        if what == "Ticks":
            return self._ticks(item, name)
        if (called := self.called(item)) is not None:
            key = (id(called), name)
            if key not in self._loads:
                self._deeper(item, depth)
                body = self.body(called)
                own = unit.rate > 0 or any(kind(i) == "Ticks" for i in self._flat(body))
                self._loads[key] = self.load(body, name, unit, own, depth + 1)
            return self._loads[key]
        if what.endswith("Loop"):
            self.file.refuse(item, "expected no loop: the model does not state how often it runs")
        entries = _entries(item)
        return self._longest(item, entries, name, unit, labels, depth) if entries else Load()

    def _longest(
        self, item: Element, entries: list[Element], name: str, unit: Unit, labels: bool, depth: int
    ) -> Load | None:
        """Return the longest entry of a switch, its average weighted where the entries have probabilities."""
        loads: list[Load] = []
        self._deeper(item, depth)
        for entry in entries:
            load = self.load(list(_opened(_inside(entry))), name, unit, labels, depth + 1)
            if load is None:
                return None
            loads.append(load)
        # Ticks alone decide where neither frequency nor memory is known.
        longest = max(loads, key=lambda load: (unit.linear_ns(load.ticks, load.moved), load.ticks))
        if kind(item).endswith("ProbabilitySwitch"):
            shares = [plain(self.file, entry, "probability") for entry in entries]
            if sum(shares):
                mean = sum(share * load.mean for share, load in zip(shares, loads, strict=True)) / sum(shares)
                return longest._replace(mean=mean)
        return longest

    def _flat(self, items: Sequence[Element]) -> Iterator[Element]:
        """Yield items and those in entries of switches, without called runnables."""
        pending = list(items)
        while pending:
            item = pending.pop()
            yield item
            pending += _all_entries(item)

    def _ticks(self, item: Element, name: str) -> Load | None:
        own = [e for e in item.all("extended") if reference(e.get("key")) == name]
        values = [value for e in own if (value := e.first("value")) is not None]
        if not values and (default := item.first("default")) is not None:
            values = [default]
        if not values:
            return None if item.children else Load()
        bounds = [bound(self.file, value) for value in values]
        return Load(*max(bounds))

    def _deeper(self, item: Element, depth: int) -> None:
        if depth >= MOST_DEEP:
            self.file.refuse(item, f"expected calls and switches at most {MOST_DEEP} deep, and no cycle of calls")


def _graph(element: Element) -> Iterator[Element]:
    """Yield the items of a process or runnable."""
    for child in element.children:
        if child.tag in _GRAPHS:
            yield from _inside(child)
        elif child.tag == "runnableItems":
            yield child


def _inside(element: Element) -> Iterator[Element]:
    return (child for child in element.children if child.tag in _ITEMS)


def _opened(items: Iterable[Element]) -> Iterator[Element]:
    """Yield items in order, groups replaced by what they hold."""
    for item in items:
        if kind(item) in _GROUPS:
            yield from _opened(_inside(item))
        else:
            yield item


def _entries(item: Element) -> list[Element]:
    return [child for child in item.children if child.tag in _ENTRIES] if kind(item).endswith("Switch") else []


def _all_entries(item: Element) -> list[Element]:
    return [inner for entry in _entries(item) for inner in _opened(_inside(entry))]
