"""Result folders whose small files are not what a simulation wrote: an error with exit code 2, and no page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from socsched.cli.root import run

DEEP = "[" * 100_000
POINT = (
    '{"mode": "m", "objective": "latency", "verdict": "feasible", "on_front": true, "latency_ns": 1, "power_mw": 1, '
    '"energy_uj": 1, "operations": {"gpu": 1.0}}'
)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a simulation."""
    folder = tmp_path_factory.mktemp("simulated") / "out"
    words = ["simulate", "pointpillars", "-p", "jetson-agx-orin-64gb", "--duration", "200ms", "-q", "-o", str(folder)]
    assert run(words) == 0
    return folder


def report(simulated: Path, folder: Path, name: str, content: str | Path, capsys: Any) -> tuple[int, str]:
    """Report a folder with one file replaced; return the exit code and what was said."""
    shutil.copytree(simulated, folder / "t")
    place = folder / "t" / name
    place.unlink(missing_ok=True)
    place.symlink_to(content) if isinstance(content, Path) else place.write_text(content)
    capsys.readouterr()
    code = run(["report", str(folder / "t"), "-o", str(folder / "x.html")])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("notes.json", content) for content in ("5", '{"a": 1}', "[1]", '["\\ud800"]', DEEP, "", Path("/dev/zero"))),
        ("pareto.json", '{"points": [{"mode": 1}]}'),
        ("pareto.json", '{"points": 5}'),
        ("pareto.json", '{"points": [' + POINT.replace('"latency_ns": 1', '"latency_ns": "1"') + "]}"),
        ("pareto.json", '{"points": [' + POINT.replace('{"gpu": 1.0}', "[]") + "]}"),
        ("pareto.json", '{"points": [' + ", ".join([POINT] * 1001) + "]}"),
        ("pareto.json", "[]"),
        ("pareto.json", DEEP),
        ("pareto.json", Path("/dev/zero")),
        ("made.json", DEEP),
        ("made.json", Path("/dev/zero")),
        ("birdseye.png", Path("/dev/zero")),
        ("birdseye.png", "x" * 500_000),
        ("plan.json", Path("/dev/zero")),
        ("trace.bin", Path("/dev/zero")),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_of_a_folder_that_is_none_of_ours(
    simulated: Path, name: str, content: str | Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name != "made.json":  # its digests tell that a file was changed, which is refused earlier
        (tmp_path / "bare").mkdir()
        bare = shutil.copytree(simulated, tmp_path / "bare/out")
        (bare / "made.json").unlink()
        simulated = bare
    code, said = report(simulated, tmp_path, name, content, capsys)
    assert code == 2 and name in said and "bug in socsched" not in said, said
    assert not (tmp_path / "x.html").exists()


def test_a_front_that_was_written_is_drawn(simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = report(simulated, tmp_path, "pareto.json", '{"points": [' + POINT + "]}", capsys)
    assert code == 0, said
    assert "ringed and connected" in (tmp_path / "x.html").read_text()


@pytest.mark.parametrize(
    "line", ["5", '{"frame": 1, "tensors": 5}', '{"frame": 1' + DEEP, '{"frame": 1, "a": "\\ud800"}']
)
def test_frames_that_are_no_frames(
    simulated: Path, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mcap", reason="writes MCAP")
    folder = shutil.copytree(simulated, tmp_path / "t")
    (folder / "frames.jsonl").write_text(line + "\n")
    code = run(["report", str(folder), "-o", str(tmp_path / "x.mcap")])
    assert code in (0, 2) and "bug in socsched" not in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["simulate", "analyze", "lint"])
@pytest.mark.parametrize("content", [DEEP, '{"a": "\\ud800"}', Path("/dev/zero")], ids=["deep", "surrogate", "endless"])
def test_a_plan_that_is_none(
    verb: str, content: str | Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "z.json"
    file.symlink_to(content) if isinstance(content, Path) else file.write_text(content)
    code = run([verb, str(file)])
    said = capsys.readouterr()
    assert code in (1, 2) and "bug in socsched" not in said.err
    assert "z.json" in said.err + said.out


@pytest.mark.parametrize("header", ["(" * 5000, "{'descr': '<f4', 'shape': (", "{'descr': '<f4' 'shape'}", "\\x00"])
def test_arrays_with_damaged_headers_as_input(header: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import zipfile

    text = header.encode()
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        archive.writestr("points.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    words = ["simulate", "pointpillars-s", "-p", "jetson-agx-orin-64gb", "-m", "MAXN", "--functional", "--frames", "1"]
    assert run([*words, "--duration", "100ms", "--input", str(tmp_path / "in.npz")]) == 2
    assert "not a readable array file" in capsys.readouterr().err
