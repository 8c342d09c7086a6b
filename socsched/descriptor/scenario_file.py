"""Scenario files: the changes of mode, temperature, units and conditions that a simulation of a book goes through."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from socsched.descriptor.fields import Duration, FileModel
from socsched.descriptor.source import read
from socsched.descriptor.validation import Tree, validate

AXES = ("mode", "thermal", "loss", "condition")
MOST_EVENTS = 100_000


class StartFile(FileModel):
    """The first cell; what is absent is the book's first."""

    mode: str | None = Field(None, description="power mode")
    thermal: str | None = Field(None, description="thermal state")
    loss: str | None = Field(None, description="engine that is lost, or none")
    condition: str | None = Field(None, description="operating condition")


class EventFile(FileModel):
    """A change of one coordinate at an instant."""

    at: Duration = Field(description="instant of the change")
    mode: str | None = Field(None, description="power mode from then on")
    thermal: str | None = Field(None, description="thermal state from then on")
    loss: str | None = Field(None, description="engine lost from then on, or none once it works again")
    condition: str | None = Field(None, description="operating condition from then on")


class ScenarioFile(FileModel):
    """A start and the changes that follow."""

    start: StartFile = Field(default_factory=lambda: StartFile.model_validate({}), description="the first cell")
    events: list[EventFile] = Field(
        default_factory=list, max_length=MOST_EVENTS, description="changes in order of time"
    )


def load_scenario(path: str | Path, axes: dict[str, tuple[str, ...]]) -> ScenarioFile:
    """Return a scenario file (YAML or JSON), checked against a book's axes; DescriptorError with every finding."""

    def names(tree: Tree) -> list[str]:
        stated = [axis for axis in AXES if tree.at(axis).value is not None]
        for axis in stated:
            if tree.at(axis).text and tree.at(axis).text not in axes[axis]:
                tree.at(axis).unknown(axis, axes[axis])
        return stated

    def check(root: Tree) -> None:
        names(root.at("start"))
        last = None
        for event in root.at("events").items():
            stated = names(event)
            if isinstance(event.value, dict) and len(stated) != 1:
                event.report(f"expected one change, {', '.join(AXES[:-1])} or condition; got {len(stated)}")
            try:
                at = _instant(event.at("at").value)
            except ValueError:
                continue
            if last is not None and at is not None and at < last:
                event.at("at").report("expected the events in order of time")
            last = at if at is not None else last

    return validate(read(path), ScenarioFile, (check,))


def _instant(value: object) -> int | None:
    from socsched.units import parse

    return None if value is None else parse(value, "duration")
