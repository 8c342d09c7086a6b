"""Platforms and pipelines by name or path, and the hashes that identify a plan's inputs."""

from __future__ import annotations

import difflib
import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from socsched import resources
from socsched.errors import DescriptorError
from socsched.files import file_digest

if TYPE_CHECKING:  # completions of names load no models
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform
    from socsched.descriptor.validation import Tree

HOST = "host"
"""Name of the platform detected on this machine rather than read from a file."""


def platform_names() -> list[str]:
    """Return the names of all platforms `get_platform` accepts, sorted."""
    return sorted({HOST, *resources.names("platforms")})


def pipeline_names() -> list[str]:
    """Return the names of all pipelines `get_pipeline` accepts, sorted."""
    return resources.names("pipelines")


def get_platform(name_or_path: str) -> Platform:
    """Return a platform by name or path; ``host`` is this machine.

    Raises UsageError for an unknown name, DescriptorError for an invalid file.
    """
    if name_or_path == HOST:
        from socsched.descriptor.host import detect

        return detect()
    path = resources.find("platforms", name_or_path)
    return _platform(path, _stamp(path))


def find_platform(name: str) -> Platform | None:
    """Return the platform of this name if a valid file describes it, None otherwise (and for `host`)."""
    if name not in resources.names("platforms"):
        return None
    try:
        return get_platform(name)
    except DescriptorError:
        return None


def get_pipeline(name_or_path: str) -> Pipeline:
    """Return a pipeline by name or path; an ONNX file yields the pipeline of its network.

    Raises UsageError for an unknown name, DescriptorError for an invalid file.
    """
    from socsched.descriptor.pipeline_file import NETWORKS, onnx_pipeline

    if name_or_path.lower().endswith(NETWORKS):
        return onnx_pipeline(Path(name_or_path).expanduser())
    path = resources.find("pipelines", name_or_path)
    return _pipeline(path, _stamp(path))


def check_places(file: str) -> None:
    """Raise DescriptorError for costs that name an engine or a mode their platform does not have.

    A platform that no file describes may be any text; a near-miss of a described name is reported.
    """
    from socsched.descriptor.source import read
    from socsched.descriptor.validation import Tree

    document = read(file)
    root = Tree(document, (), document.data)
    for stage in root.at("stages").items():
        for cost in stage.at("costs").items():
            platform = find_platform(cost.at("platform").text)
            if platform is None:
                _check_spelling(cost.at("platform"))
            else:
                _check_place(cost, platform)
    document.check()


def _check_spelling(name: Tree) -> None:
    """Report a name within a letter or two of a known platform; any other name means undescribed hardware."""
    near = difflib.get_close_matches(name.text, platform_names(), n=1, cutoff=0.9)
    if near and name.text not in platform_names():
        name.report(f"no platform is called {name.text!r}; did you mean {near[0]!r}?")


def _check_place(cost: Tree, platform: Platform) -> None:
    engines = {name for engine in platform.engines for name in (engine.id, engine.kind)}
    engine, mode = cost.at("engine"), cost.at("mode")
    if engine.text not in engines:
        engine.unknown(f"engine of {platform.name}", engines)
    try:
        platform.mode(mode.text)
    except KeyError:
        mode.unknown(f"power mode of {platform.name}", [m.name for m in platform.modes])


def input_hashes(platform: Platform, pipeline: Pipeline) -> dict[str, str]:
    """Return file -> SHA-256 (hex) of everything that a plan of the two is made from, as stored in `Plan.inputs`.

    Keys are ``platforms/FILE``, ``rules/FILE``, ``pipelines/FILE``, and a network's path with ``pipelines`` for the
    folder of the pipeline, without machine-specific folders.  Platforms that costs of the pipeline were measured on
    count too.  A platform or pipeline without a file (the detected host) is hashed by its content.
    """
    return {**platform_hashes(platform), **pipeline_hashes(pipeline)}


def platform_hashes(platform: Platform) -> dict[str, str]:
    """Return the digests of a platform and of the rule files that its engines name."""
    from socsched.descriptor.operator_rules import rule_files
    from socsched.descriptor.platform_file import base_files

    hashes = {_key("platforms", platform.name, platform.file): _digest(platform.file, platform)}
    if platform.file and Path(platform.file).is_file():
        hashes |= {f"platforms/{file.name}": file_digest(file) for file in base_files(platform.file)}
    for name in sorted({engine.operators.name for engine in platform.engines} - {""}):
        for file in rule_files(name, Path(platform.file).parent if platform.file else None):
            hashes[f"rules/{file.name}"] = file_digest(file)
    return hashes


def pipeline_hashes(pipeline: Pipeline) -> dict[str, str]:
    """Return the digests of a pipeline, of its networks, and of the platforms that its known costs refer to."""
    hashes = {}
    for name in sorted({cost.platform for stage in pipeline.stages for cost in stage.costs}):
        board = find_platform(name)
        if board is not None and board.file:
            hashes[_key("platforms", board.name, board.file)] = _digest(board.file, board)
    hashes[_key("pipelines", pipeline.name, pipeline.file)] = _digest(pipeline.file, pipeline)
    home = Path(pipeline.file).parent.absolute()
    for network in dict.fromkeys(str(stage.params["file"]) for stage in pipeline.stages if "file" in stage.params):
        file = Path(network)
        if file.is_file():
            within = os.path.normpath(Path("pipelines") / file.relative_to(home)) if file.is_relative_to(home) else ""
            hashes[within or file.name] = file_digest(file)
    return hashes


def _key(kind: str, name: str, file: str) -> str:
    return f"{kind}/{Path(file).name}" if file and Path(file).is_file() else f"{kind}/{name}"


def _digest(file: str, content: object) -> str:
    if file and Path(file).is_file():
        return file_digest(Path(file))
    return hashlib.sha256(repr(content).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


# Cached: reading and checking a file takes tens of milliseconds, and a command requests the same one several times.
@lru_cache(maxsize=32)
def _platform(path: Path, stamp: tuple[int, int]) -> Platform:
    from socsched.descriptor.platform_file import load_platform

    return load_platform(path)


@lru_cache(maxsize=32)
def _pipeline(path: Path, stamp: tuple[int, int]) -> Pipeline:
    from socsched.descriptor.pipeline_file import load_pipeline

    return load_pipeline(path)
