"""What a finished plan was made from and asked for: digests of its inputs, the options, the requirements."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched import __version__
from socsched.api.options import PlanOptions
from socsched.descriptor.catalog import input_hashes
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.files import file_digest, sources_digest
from socsched.models.onnx_import import portable
from socsched.planning.plan import AUTO, PIPELINE, PLATFORM, SOURCES, Plan, Requirement, requirements_of

_LONGEST = 3000
"""Longest text of options (characters); a longer one is given by its digest."""


_LISTS = {
    "--pin": "pins",
    "--prefer": "prefers",
    "--deadline": "deadlines",
    "--runtime": "runtimes",
    "--precision": "precisions",
    "--shape": "shapes",
    "--dim": "dims",
    "--shares": "shares",
    "--memory": "memory",
}
_CHOICES = ("objective", "policy", "solver", "planner", "evaluations")
_FLAGS = {
    "--robust": ("robust", True),
    "--steady": ("steady", True),
    "--no-cuts": ("cuts", False),
    "--no-refine": ("refine", False),
}
_CAPS = {"--power-cap": ("power_cap", "mW"), "--bandwidth-cap": ("bandwidth_cap", "B/s")}


def options_in(plan: Plan) -> dict[str, Any]:
    """Return the options that a plan was made with as `api.planning.options_of` takes them, but for its profile.

    Options that are there by their digest alone are not known, and none is returned.
    """
    found: dict[str, Any] = {}
    words = iter(shlex.split(str(plan.tool.get("options", ""))))
    for word in words:
        if word in _FLAGS:
            name, found[name] = _FLAGS[word]
        elif word in _LISTS:
            found[_LISTS[word]] = (*found.get(_LISTS[word], ()), next(words))
        elif word == "-O":
            name, _, value = next(words).partition("=")
            found.setdefault("settings", {})[name] = value
        elif word in _CAPS:
            found[_CAPS[word][0]] = next(words)
        elif word.startswith("--"):
            value = next(words)
            found[word[2:]] = int(value) if word == "--evaluations" else value
    return found


def stamped(plan: Plan, pipeline: Pipeline, platform: Platform, mode: str | None, options: PlanOptions) -> Plan:
    """Return a plan with the digests of its inputs, its options and its requirements, and no path of this machine.

    `pipeline`: as loaded, with the deadlines of the options; `mode`: the one asked for, None for any.
    """
    inputs = {**input_hashes(platform, pipeline), **_profile(options), SOURCES: sources_digest()}
    tool = {**plan.tool, "version": __version__}
    text = shlex.join(_options(options))
    if text:
        tool["options"] = text if len(text) <= _LONGEST else f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"
    folder = Path(pipeline.file).parent
    tasks = tuple(replace(task, params=portable(task.params, folder)) for task in plan.tasks)
    asked = (*requirements_of(pipeline), *_around(plan, mode, options))
    return replace(plan, tasks=tasks, inputs=inputs, tool=tool, requirements=asked)


def _profile(options: PlanOptions) -> dict[str, str]:
    if options.profile is None:
        return {}
    if isinstance(options.profile, Path):
        return {f"profiles/{options.profile.name}": file_digest(options.profile)}
    return {"profile": hashlib.sha256(repr(options.profile).encode()).hexdigest()}


def _options(options: PlanOptions) -> Iterator[str]:
    """Yield the options of the command line that decide which plan is made, where they are not the usual ones."""
    usual = type(options)()
    for name in _CHOICES:
        if getattr(options, name) not in (None, getattr(usual, name)):
            yield from (f"--{name}", str(getattr(options, name)))
    for name, value in sorted(options.settings.items()):
        yield from ("-O", f"{name}={value}")
    for option, field in _LISTS.items():
        for value in sorted(getattr(options, field)):
            yield from (option, value)
    for option, (field, unit) in _CAPS.items():
        if (cap := getattr(options, field)) is not None:
            yield from (option, f"{cap}{unit}")
    yield from (option for option, (field, value) in _FLAGS.items() if bool(getattr(options, field)) == value)


def _around(plan: Plan, mode: str | None, options: PlanOptions) -> Iterator[Requirement]:
    """Yield what is required beside the pipeline: by the mode and the platform, and by the options."""
    yield Requirement(PLATFORM, "mode", names=(AUTO if mode in (None, AUTO) else plan.mode,))
    if plan.power.cap_mw is not None:
        yield Requirement(PLATFORM, "power cap", round(plan.power.cap_mw))
    if options.bandwidth_cap is not None:
        yield Requirement(PLATFORM, "bandwidth cap", options.bandwidth_cap)
    if plan.memory.capacity_bytes is not None:
        yield Requirement(PLATFORM, "memory", round(plan.memory.capacity_bytes))
    if options.robust:
        yield Requirement(PIPELINE, "costs", names=("upper-ends",))
