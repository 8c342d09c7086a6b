"""A recording through a run into a recording: the same points come back, with the detections of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_pillars
from mcap_recordings import CLOUD, cloud, write

from socsched.api.execution import run
from socsched.api.folders import Sources
from socsched.api.planning import plan
from socsched.api.renderers import mcap
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import InputError
from socsched.models.registry import bindings
from socsched.runtime.input_files import list_frames
from socsched.runtime.inputs import sources

pytestmark = pytest.mark.needs("MCAP")


def test_a_recording_through_a_run(tmp_path: Path) -> None:
    from mcap.reader import make_reader

    rng = np.random.default_rng(0)
    points = [rng.uniform((1, -12, -2, 0), (25, 12, 0.5, 1), (n, 4)).astype(np.float32) for n in (2000, 3000, 2500)]
    kinds: dict[str, Any] = {name: (CLOUD, map(cloud, points[::step])) for name, step in (("/a", 1), ("/b", -1))}
    drive = write(tmp_path / "drive.mcap", kinds)
    weights = tiny_pillars.write_weights(tmp_path / "w.npz")
    planned = plan(tiny_pillars.PIPELINE, "host")
    how: dict[str, Any] = {"pipeline": tiny_pillars.PIPELINE, "inputs": drive, "weights": weights}
    with pytest.raises(InputError, match="topics that could feed sensor lidar: /a, /b"):
        run(planned, **how)
    chosen = {"lidar": "/b"}
    done = run(planned, **how, pace=False, executor="event-chained", topics=chosen)
    assert done.trace is not None and [done.trace.details[k]["points"] for k in range(3)] == [2500, 3000, 2000]
    done.save(tmp_path / "result", page=False)

    out = tmp_path / "out.mcap"
    mcap(tmp_path / "result", out, Sources(pipeline=str(tiny_pillars.PIPELINE), input=drive, topics=chosen))
    pipeline = load_pipeline(tiny_pillars.PIPELINE)
    again = sources(pipeline, bindings(pipeline), list_frames(out), 0)["lidar"]
    assert again.count == 3
    assert [again.frame(k).outputs["points"].tobytes() for k in range(3)] == [p.tobytes() for p in points[::-1]]
    with out.open("rb") as file:
        scenes = [json.loads(message.data) for _, _, message in make_reader(file).iter_messages("/decode/detections")]
    texts = [[text["text"] for text in scene["entities"][0]["texts"]] for scene in scenes]
    found = [done.trace.details[k]["detections"] for k in range(3)]
    assert texts == [[f"{one['class']} {one['score']:.2f}" for one in frame] for frame in found]
    assert any(texts)

    mcap(tmp_path / "result", out, Sources(pipeline=str(tiny_pillars.PIPELINE)))  # the inputs are not known
    with out.open("rb") as file:
        assert not [*make_reader(file).iter_messages("/lidar/points")]
