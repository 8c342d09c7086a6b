"""Import of other tools' profiles, models and traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from socsched.errors import UsageError, writing
from socsched.files import write_file

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform
    from socsched.graph.network import Network
    from socsched.interchange.costs import Imported
    from socsched.interchange.pipeline_text import ImportedPipeline

TASKSET_FORMATS = (
    "a plan.json, a task set (JSON or YAML), SimSo's XML, PARTSim's YAML, rt-app's JSON, or a job set of nptest (CSV)"
)
"""What `socsched analyze` reads, in words."""
PIPELINE_FORMATS = ("amalthea", "autoware", "btf", "cyberrt", "mcap", "ros2", "rosbag1", "rosbag2")
"""Forms of other tools' pipelines."""


def import_profile(
    files: Sequence[str | Path],
    platform: str | Path | Platform,
    *,
    pipeline: str | Path | Pipeline | None = None,
    mode: str = "",
    precision: str = "",
    engines: Mapping[str, str] | None = None,
    stages: Mapping[str, str] | None = None,
    skip: int = 0,
) -> Imported:
    """Return measured costs from profiles of other tools.

    `engines`: engine kind or provider of the source -> engine of the platform; `stages`: file stem or range -> stage.
    `mode` and `precision` are needed where the files do not state them (without a mode the default one is assumed).
    What they state holds: another mode is an error, another precision is not used; `Imported.notes` says so.
    `pipeline`: its networks' layers expand ranges and give the cuts.  `skip`: first jobs of each recording left out.
    Raises InputError for files that cannot be used, UsageError for choices that are missing or do not fit.
    """
    from socsched.api.loading import load_pipeline, load_platform
    from socsched.interchange import costs

    networks: tuple[Network, ...] = ()
    if pipeline is not None:
        from socsched.models.registry import get_model

        models = (get_model(stage.model, stage.params) for stage in load_pipeline(pipeline).stages if stage.model)
        networks = tuple(model.network() for model in models if model.network is not None)
    choices = costs.Choices(precision, mode, engines or {}, stages or {}, skip)
    return costs.import_profile([Path(file) for file in files], load_platform(platform), choices, networks)


def save_recording(imported: Imported, platform: str | Path | Platform, folder: str | Path) -> None:
    """Write the jobs of an imported profile as a result folder, for `report`, `why` and `compare`.

    Raises UsageError unless exactly one of the files states when jobs ran.
    """
    from socsched.api.folders import save
    from socsched.api.loading import load_platform
    from socsched.interchange.results import recorded, recorded_jobs
    from socsched.trace.metrics import result

    timed, board = [one for one in imported.recordings if one.sections], load_platform(platform)
    if len(timed) == 1 and (events := timed[0].trace) is not None:
        place = board.name, imported.profile.costs[0].mode
        kept, source = {section.stage for section in timed[0].sections}, Path(timed[0].file).name
        plan, trace = recorded_jobs(events, source, timed[0].tool, timed[0].notes, place, kept)
    else:
        plan, trace = recorded(imported, board)
    save(Path(folder), plan, trace, result(trace, plan), page=False)


def import_pipeline(
    form: str,
    source: str | Path,
    *,
    platform: str | Path | Platform | None = None,
    mode: str = "",
    engines: Mapping[str, str] | None = None,
    architecture: str | Path | None = None,
    conf: str | Path | None = None,
    channels: Mapping[str, str] | None = None,
) -> ImportedPipeline:
    """Return the pipeline in another tool's model, configuration or trace, with notes on what it does not state.

    `form`: amalthea (a model), autoware (a thread configuration), btf (a trace), cyberrt (a DAG file or a folder of
    them, with the scheduler's `conf` and the writers or periods of `channels`), mcap, rosbag1 or rosbag2 (a recording
    of topics) or ros2 (the folder of a CTF trace, with CARET's `architecture` file if there is one).  `platform`,
    `mode`, `engines`: what the costs of amalthea are for.  Raises DescriptorError or InputError for faulty files,
    UsageError for an unknown form or engine.
    """
    from socsched.api.loading import load_platform

    board = load_platform(platform) if platform is not None else None
    if board is not None and mode and not any(known.called(mode) for known in board.modes):
        modes = ", ".join(known.name for known in board.modes)
        raise UsageError(f"{board.name} has no mode {mode!r}", f"modes: {modes}")
    if architecture is not None and not Path(architecture).is_file():
        raise UsageError(f"{architecture}: not a file", "give the architecture.yaml that CARET wrote")
    if form == "amalthea":
        from socsched.interchange.amalthea import import_amalthea

        return import_amalthea(Path(source), board, mode, engines)
    if form == "autoware":
        from socsched.interchange.autoware_pipeline import import_autoware

        return import_autoware(Path(source))
    if form == "btf":
        from socsched.interchange.btf_pipeline import import_btf

        return import_btf(Path(source))
    if form == "cyberrt":
        from socsched.interchange.cyberrt_pipeline import import_cyberrt

        return import_cyberrt(Path(source), Path(conf) if conf else None, channels)
    if form == "ros2":
        from socsched.interchange.ros2 import pipeline_of, read_graph

        return pipeline_of(read_graph(Path(source), Path(architecture) if architecture else None), Path(source))
    if form in ("mcap", "rosbag1", "rosbag2"):
        from socsched.interchange.bag import import_bag

        return import_bag(Path(source))
    raise UsageError(f"unknown format {form!r}", f"formats: {', '.join(PIPELINE_FORMATS)}")


def import_results(
    source: str | Path, folder: str | Path, *, pipeline: Pipeline, architecture: str | Path | None = None
) -> None:
    """Write the recording in a ROS 2 or BTF trace as a result folder, for `report`, `why` and `compare`.

    `pipeline`: the one imported from the same trace.  A folder is a ROS 2 trace, a file one in BTF.  Raises InputError
    for a faulty trace.
    """
    from socsched.api.folders import save
    from socsched.interchange import ros2
    from socsched.interchange.results import recorded_jobs
    from socsched.trace import btf
    from socsched.trace.metrics import result

    if Path(source).is_dir():
        graph = ros2.read_graph(Path(source), Path(architecture) if architecture else None)
        longest = ros2.responses(graph)
        plan, trace = ros2.plan_of(graph, pipeline.name, longest), ros2.trace_of(graph, longest)
    else:
        events, remarks = btf.read_noted(source)
        plan, trace = recorded_jobs(events, Path(source).name, "BTF", remarks)
    save(Path(folder), plan, trace, result(trace, plan), page=False)


def write_pipeline(imported: ImportedPipeline, file: str | Path) -> Pipeline:
    """Write an imported pipeline and return it; DescriptorError if it breaks a rule of pipeline files."""
    pipeline = imported.pipeline(str(file))
    with writing(file):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        write_file(file, imported.text())
    return pipeline
