"""Platforms and pipelines by name or path, and the hashes that tell which of them a plan was made from."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from socsched import resources
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import DescriptorError

HOST = "host"
"""Name of the platform that is detected on this machine instead of read from a file."""


def platform_names() -> list[str]:
    """Return the names of all platforms `get_platform` takes, sorted."""
    return sorted({HOST, *resources.names("platforms")})


def pipeline_names() -> list[str]:
    """Return the names of all pipelines `get_pipeline` takes, sorted."""
    return resources.names("pipelines")


def get_platform(name_or_path: str) -> Platform:
    """Return a platform by name or path; ``host`` is this machine.

    Raises UsageError for an unknown name, DescriptorError for a file with faults.
    """
    if name_or_path == HOST:
        from socsched.descriptor.host import detect

        return detect()
    path = resources.find("platforms", name_or_path)
    return _platform(path, _stamp(path))


def described(name: str) -> Platform | None:
    """Return the platform of this name where a valid file describes it, None for anything else (and for `host`)."""
    if name not in resources.names("platforms"):
        return None
    try:
        return get_platform(name)
    except DescriptorError:
        return None


def get_pipeline(name_or_path: str) -> Pipeline:
    """Return a pipeline by name or path, that of a network for an ONNX file.

    Raises UsageError for an unknown name, DescriptorError for a file with faults.
    """
    if name_or_path.lower().endswith(".onnx"):
        from socsched.descriptor.onnx_pipeline import onnx_pipeline

        return onnx_pipeline(Path(name_or_path).expanduser())
    path = resources.find("pipelines", name_or_path)
    return _pipeline(path, _stamp(path))


def input_hashes(platform: Platform, pipeline: Pipeline) -> dict[str, str]:
    """Return file -> SHA-256 (hex) of what a plan is made from, as `Plan.inputs` holds it.

    Keys are ``platforms/FILE`` and ``pipelines/FILE`` without the folders of this machine.  A platform or pipeline that
    no file holds (the detected host) is hashed by its content.
    """
    return {
        _key("platforms", platform.name, platform.file): _digest(platform.file, platform),
        _key("pipelines", pipeline.name, pipeline.file): _digest(pipeline.file, pipeline),
    }


def _key(kind: str, name: str, file: str) -> str:
    return f"{kind}/{Path(file).name}" if file and Path(file).is_file() else f"{kind}/{name}"


def _digest(file: str, content: object) -> str:
    raw = Path(file).read_bytes() if file and Path(file).is_file() else repr(content).encode()
    return hashlib.sha256(raw).hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


# Reading and checking a file takes tens of milliseconds; a command asks for the same one several times.
@lru_cache(maxsize=32)
def _platform(path: Path, stamp: tuple[int, int]) -> Platform:
    from socsched.descriptor.platform_file import load_platform

    return load_platform(path)


@lru_cache(maxsize=32)
def _pipeline(path: Path, stamp: tuple[int, int]) -> Pipeline:
    from socsched.descriptor.pipeline_file import load_pipeline

    return load_pipeline(path)
