"""Fitting a platform's cost model to measured times: the files of a request, read and checked before the work."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from socsched.api.options import FitOptions
from socsched.cost.fitting.cells import Choice, HostProgram, Networks, pattern, read_pairs
from socsched.cost.fitting.recipe import FitRequest, Report, fit_platform
from socsched.cost.measurements import STEM, Row
from socsched.cost.profile import load_profile
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import UsageError
from socsched.graph.accelerator_kernels import passes
from socsched.graph.expand import fuse_network
from socsched.graph.operators import Pass
from socsched.models.registry import get_model
from socsched.units import parse_duration


def fit(platform: str, options: FitOptions = FitOptions()) -> Report:  # frozen
    """Return the parameters of a platform (name or path) fitted to measurements, profiles and anchors.

    Without any of these the parameters are those of the engines' families.  Raises UsageError for what does not fit
    together, InputError and DescriptorError for files.
    """
    described, engine, precision, networks = get_platform(platform), options.engine, options.precision, options.networks
    choice = Choice(
        tuple(map(pattern, options.exclude)), tuple(map(parse_host, options.hosts)), tuple(map(pattern, options.joined))
    )
    request = FitRequest(described, engine, precision, options.mode, options.family, choice)
    if options.anchors and (engine is None or precision is None):
        raise UsageError("an anchor is a time on one engine in one precision", "add --engine and --precision")
    if bool(options.profiles) != (options.pipeline is not None):
        raise UsageError("a profile names the stages of a pipeline", "give --profile together with --pipeline")
    pairs = [pair for path in options.measurements for pair in read_pairs(path)]
    own: dict[str, tuple[Pass, ...]] = {}
    if options.pipeline is not None:
        own = stage_passes(options.pipeline)
        pairs += [pair for path in options.profiles for pair in read_profile(path, own)]
    for text in options.anchors:
        network, time_us = parse_anchor(text)
        row = Row(described.name, engine or "", precision or "", options.mode or "", 0, network, time_us / 1e3)
        pairs.append(replace(row, source="anchor"))
    if (options.measurements or options.anchors) and networks is None:
        raise UsageError("the networks of the measurements are needed", "add --networks FOLDER with NAME.onnx files")
    if networks is not None and not networks.is_dir():
        raise UsageError(f"{networks}: is no folder", "expected a folder with NAME.onnx or NAME.onnx.xz")
    return fit_platform(request, pairs, Networks(*([networks] if networks else []), known=own))


def parse_anchor(text: str) -> tuple[str, float]:
    """Return the network and the time (us) of "NETWORK=TIME"."""
    network, _, time = text.partition("=")
    try:
        if not STEM.fullmatch(network):
            raise ValueError(f"expected the name of a network, got {network[:50]!r}")
        value = parse_duration(time)
        if value <= 0:
            raise ValueError("expected a time above zero")
    except ValueError as error:
        raise UsageError(f"anchor {text[:80]!r}: {error}", "such as --anchor resnet50=0.767ms") from None
    return network, value / 1e3


def parse_host(text: str) -> HostProgram:
    """Return the host program of "PATTERN=LAUNCH+SUBMIT", such as "source=ultralytics/*=10us+500us"."""
    rows, _, costs = text.rpartition("=")
    try:
        launch, submit = (parse_duration(part) / 1e3 for part in costs.split("+"))
        if min(launch, submit) <= 0:
            raise ValueError("expected times above zero")
    except ValueError as error:
        hint = "PATTERN=LAUNCH+SUBMIT, such as 'source=ultralytics/*=10us+500us'"
        raise UsageError(f"host {text[:80]!r}: {error}", hint) from None
    return HostProgram(pattern(rows), launch, submit)


def stage_passes(pipeline: str) -> dict[str, tuple[Pass, ...]]:
    """Return the passes of a pipeline's networks by stage."""
    models = {
        stage.name: get_model(stage.model, stage.params) for stage in get_pipeline(pipeline).stages if stage.model
    }
    return {name: passes(fuse_network(model.network())) for name, model in models.items() if model.network is not None}


def read_profile(path: Path, stages: Iterable[str]) -> list[Row]:
    """Return the median times of a profile's networks as rows; other stages are left out."""
    profile, wanted = load_profile(path), set(stages)
    source = re.sub(r"[^A-Za-z0-9._/-]+", "-", profile.tool or "profile")
    return [
        Row(
            profile.platform,
            cost.engine,
            cost.precision,
            cost.mode,
            cost.share,
            cost.stage,
            (cost.median_ns or cost.time_ns) / 1e6,
            source=source,
            statistic="median",
        )
        for cost in profile.costs
        if cost.stage in wanted
    ]
