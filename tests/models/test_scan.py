from __future__ import annotations

import io
import json
import re
from math import prod
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import reference_pointpillars
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from socsched.compiler.quantize.scales import read_pipeline_scales
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import InputError
from socsched.models.pointpillars import small
from socsched.models.pointpillars.scan import KITTI, Layout, list_scans, read_scan, write_bin
from socsched.models.registry import get_model
from socsched.models.weights import load_weights
from socsched.models.work import stage_work
from socsched.planning.candidate import losses
from socsched.planning.search import make_plan

FINITE = hnp.arrays(np.float32, st.tuples(st.integers(1, 40), st.just(4)), elements=st.floats(-1e6, 1e6, width=32))


@given(points=FINITE)
def test_what_is_written_is_read_back_on_a_64_byte_border(tmp_path_factory, points):
    path = tmp_path_factory.mktemp("scan") / "a.bin"
    write_bin(path, points)
    back = read_scan(path)
    assert back.dtype == np.float32 and back.ctypes.data % 64 == 0
    np.testing.assert_array_equal(back, points)


def test_a_folder_lists_its_scans_in_order_and_nothing_else(tmp_path):
    for name in ("b.bin", "a.bin", "a.txt", "c.BIN.bak"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "d.bin").mkdir()
    assert [path.name for path in list_scans(tmp_path)] == ["a.bin", "b.bin"]
    assert list_scans(tmp_path / "b.bin") == (tmp_path / "b.bin",)


def test_a_folder_without_scans_and_a_missing_path_are_input_errors(tmp_path):
    with pytest.raises(InputError, match=r"no scan in this folder.*\.bin") as caught:
        list_scans(tmp_path)
    assert "16 bytes" in caught.value.hint
    with pytest.raises(InputError, match=r"gone.*no such scan or folder"):
        list_scans(tmp_path / "gone")
    (tmp_path / "a.las").write_bytes(b"x")
    with pytest.raises(InputError, match=r"a\.las.*ends in \.bin, \.npy, \.pcd"):
        list_scans(tmp_path / "a.las")


def _rows(*patches):
    points = np.zeros((5, 4), np.float32)
    for row, column, value in patches:
        points[row, column] = value
    return points.tobytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"empty, expected at least one row"),
        (bytes(16 * 7 + 9), r"121 bytes, expected a multiple of 16: row 7 breaks off after 9"),
        (bytes(3), r"row 0 breaks off after 3"),
        (_rows((2, 1, np.nan)), r"1 of 5 rows hold NaN or infinite values, the first is row 2 \(0, nan, 0, 0\)"),
        (_rows((4, 3, np.inf), (1, 0, -np.inf), (1, 2, np.nan)), r"2 of 5 rows .* first is row 1 \(-inf, 0, nan, 0\)"),
    ],
)
def test_a_damaged_scan_names_the_file_the_fault_and_the_row(tmp_path, content, message):
    path = tmp_path / "bad.bin"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_scan(path)
    assert str(path) in str(caught.value) and caught.value.hint


def test_a_missing_scan_a_folder_and_a_wrong_name_are_input_errors(tmp_path):
    with pytest.raises(InputError, match=r"gone.*No such file"):
        read_scan(tmp_path / "gone.bin")
    (tmp_path / "dir.bin").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        read_scan(tmp_path / "dir.bin")
    with pytest.raises(InputError, match="not a scan"):
        read_scan(tmp_path / "scan.txt")


def cloud(seed, count=4000):
    """Return points of a street: ranges to 80 m, heights of the ground and of walls, intensity 0 to 1."""
    random = np.random.default_rng(seed)
    angle, distance = random.uniform(0, 2 * np.pi, count), random.uniform(2, 80, count)
    z = np.where(random.random(count) < 0.7, -1.7, random.uniform(-1.7, 4, count)) + random.normal(0, 0.02, count)
    return np.stack([distance * np.cos(angle), distance * np.sin(angle), z, random.random(count)], axis=1)


NAMES = ("x", "y", "z", "intensity", "ring", "time")


def rows(points, width, dtype, seed):
    random = np.random.default_rng(seed)
    more = [random.integers(0, 64, (len(points), 1)), random.uniform(-0.1, 0, (len(points), 1))]
    return np.hstack([points, *more])[:, :width].astype(dtype)


@given(
    seed=st.integers(0, 2**32),
    width=st.integers(3, 6),
    dtype=st.sampled_from(["float32", "float64"]),
    count=st.integers(900, 1100),
)
def test_rows_of_any_width_are_the_points_that_were_measured_or_refused(tmp_path_factory, seed, width, dtype, count):
    points, path = cloud(seed, count), tmp_path_factory.mktemp("scan") / "a.bin"
    path.write_bytes(rows(points, width, dtype, seed).tobytes())
    layout = Layout(NAMES[:width], dtype)
    stated = read_scan(path, layout)
    np.testing.assert_allclose(stated[:, :3], points[:, :3], rtol=1e-6)
    np.testing.assert_allclose(stated[:, 3], points[:, 3] if width > 3 else 0, rtol=1e-6)
    if width == 3:
        with pytest.raises(InputError, match="have no intensity"):
            read_scan(path, None)
    else:
        np.testing.assert_array_equal(read_scan(path, None), stated)
    if layout != KITTI:
        with pytest.raises(InputError, match=f"its values look like {dtype} rows {', '.join(NAMES[:width])}"):
            read_scan(path, KITTI)


def test_values_that_fit_several_widths_are_refused_with_all_of_them(tmp_path):
    path = tmp_path / "zeros.bin"
    path.write_bytes(bytes(4 * 60))
    with pytest.raises(InputError, match=r"240 bytes could be .*; ") as caught:
        read_scan(path, None)
    assert "columns: [x, y, z, intensity" in caught.value.hint
    assert read_scan(path, KITTI).shape == (15, 4), "stated, and it fits"


def pcd(points, form, fields=("x", "y", "z", "intensity", "ring"), kind=("F", 4)):
    table = rows(points, len(fields), "<f4" if kind == ("F", 4) else "<f8", 1)
    count, names = len(points), len(fields)
    head = f"# .PCD v0.7\nVERSION 0.7\nFIELDS {' '.join(fields)}\nSIZE {f'{kind[1]} ' * names}\nTYPE {'F ' * names}\n"
    head += f"COUNT {'1 ' * names}\nWIDTH {count}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {count}\n"
    if form == "ascii":
        text = io.BytesIO()
        np.savetxt(text, table, fmt="%.9g")
        return f"{head}DATA ascii\n".encode() + text.getvalue()
    if form == "binary":
        return f"{head}DATA binary\n".encode() + table.tobytes()
    plain = table.T.tobytes()  # field after field, as runs of up to 32 bytes that are stored as they are
    packed = b"".join(bytes([len(part) - 1]) + part for part in (plain[n : n + 32] for n in range(0, len(plain), 32)))
    sizes = len(packed).to_bytes(4, "little") + len(plain).to_bytes(4, "little")
    return f"{head}DATA binary_compressed\n".encode() + sizes + packed


@pytest.mark.parametrize("form", ["ascii", "binary", "binary_compressed"])
@pytest.mark.parametrize("kind", [("F", 4), ("F", 8)])
def test_pcd_files_name_their_columns(tmp_path, form, kind):
    points = cloud(1, 300)
    points[7, :3] = np.nan
    path = tmp_path / "a.pcd"
    path.write_bytes(pcd(points, form, kind=kind))
    np.testing.assert_allclose(read_scan(path), np.delete(points, 7, axis=0), rtol=1e-5)


def test_repetitions_in_compressed_clouds_may_overlap_themselves(tmp_path):
    head = b"FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nPOINTS 40\nDATA binary_compressed\n"
    one = np.float32(1.5).tobytes()
    packed = bytes([3]) + one + bytes([0xE0, 255, 3]) + bytes([0xE0, 480 - 4 - 264 - 9, 3])
    path = tmp_path / "a.pcd"
    path.write_bytes(head + len(packed).to_bytes(4, "little") + (480).to_bytes(4, "little") + packed)
    np.testing.assert_array_equal(read_scan(path)[:, :3], np.full((40, 3), 1.5, np.float32))


def test_arrays_name_no_columns_but_have_as_many_as_they_say(tmp_path):
    points, path = cloud(2, 50), tmp_path / "a.npy"
    np.save(path, rows(points, 5, np.float64, 1))
    np.testing.assert_allclose(read_scan(path, None), points, rtol=1e-6)
    np.save(path, rows(points, 3, np.float64, 1))
    with pytest.raises(InputError, match="3 columns, whose meaning is not known"):
        read_scan(path, None)
    np.save(path, np.array([[None] * 4] * 3), allow_pickle=True)
    with pytest.raises(InputError, match="expected numbers"):
        read_scan(path, None)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"FIELDS x y z\n", b"DATA ascii\n", pcd(cloud(1, 5), "binary")[:-3], pcd(cloud(1, 5), "ascii")[:-30],
        pcd(cloud(1, 5), "binary_compressed")[:-3], pcd(cloud(1, 5), "binary").replace(b"WIDTH 5", b"WIDTH 9"),
        pcd(cloud(1, 5), "binary").replace(b"POINTS 5", b"POINTS 99999999"),
        pcd(cloud(1, 5), "binary").replace(b"FIELDS x", b"FIELDS q"), b"\xff" * 9000,
    ],
)  # fmt: skip
def test_damaged_pcd_files_are_input_errors(tmp_path, content):
    path = tmp_path / "bad.pcd"
    path.write_bytes(content)
    if b"WIDTH 9" in content:
        assert len(read_scan(path)) == 5, "POINTS counts"
        return
    with pytest.raises(InputError, match=r"bad\.pcd"):
        read_scan(path)


# PointPillars-S: the shipped files agree, objects are detected, and the figures are those stated in the pipeline.

CHECKOUT = Path(__file__).parents[2]
CLASSES = ("Car", "Cyclist", "Pedestrian")


def test_the_shipped_weights_fit_and_are_small() -> None:
    networks = small.networks()
    shapes = {name: shape for network in networks for name, shape in network.params.items()}
    assert sum(map(prod, shapes.values())) <= 600_000
    assert small.FILE.stat().st_size <= 1.2 * 2**20
    with np.load(small.FILE) as archive:
        assert {archive[name].dtype for name in archive.files} == {np.dtype(np.float16)}
        assert set(archive.files) == set(shapes)
    assert load_weights(small.FILE, networks).keys() == small.load_trained_weights().keys()
    assert set(read_pipeline_scales(Path(small.SCALES))) == {"backbone", "head"}


def test_stages_list_their_included_files() -> None:
    assert all(get_model(f"pointpillars-s.{name}").ready for name in ("pfn", "scatter", "backbone", "head"))
    assert get_model("pointpillars.scatter").ready and not get_model("pointpillars.backbone").ready


@pytest.fixture(scope="module")
def figures() -> dict:
    return json.loads((CHECKOUT / "tests/data/pointpillars-s.json").read_text())


def mean(result: dict) -> float:
    return sum(result[kind]["3d"]["moderate"] for kind in CLASSES) / len(CLASSES)


def test_the_pipeline_counts_with_the_measured_losses(figures: dict) -> None:
    pipeline, results = get_pipeline("pointpillars-s"), figures["synthetic"]["results"]
    for stage in ("backbone", "head"):
        loss = mean(results["x86 fp32"]) - mean(results[f"x86 int8, {stage} only"])
        assert pipeline.stage(stage).losses["int8"] == pytest.approx(1000 * max(loss, 0), abs=6)
    assert mean(results["x86 fp32"]) - mean(results["x86 fp16"]) < 0.05  # none worth listing
    chosen = [(pipeline.stage("backbone"), "int8"), (pipeline.stage("head"), "fp32")]
    assert dict(losses(pipeline, chosen)) == {"backbone": pipeline.stage("backbone").losses["int8"]}


def test_the_model_card_agrees_with_the_figures(figures: dict) -> None:
    card = (CHECKOUT / "docs/models/pointpillars-s.md").read_text()
    results = figures["synthetic"]["results"]
    for name in ("x86 fp32", "x86 fp16", "x86 int8"):
        for kind in CLASSES:
            assert f"| {name} | {kind} | " + " | ".join(f"{v:.2f}" for v in results[name][kind]["bev"].values()) in card
    for name, result in results.items():
        both = (fmean(result[kind][form]["moderate"] for kind in CLASSES) for form in ("bev", "3d"))
        assert re.search(rf"\| {name} \| {next(both):.2f} \| \S+ \| {next(both):.2f} \|", card), name
    assert all(results["dla int8"][kind]["bev"] == results["x86 int8"][kind]["bev"] for kind in CLASSES)
    for kind, least in (("Car", 85), ("Pedestrian", 65), ("Cyclist", 65)):
        assert figures["synthetic"]["results"]["x86 fp32"][kind]["bev"]["moderate"] >= least


@pytest.mark.slow
def test_a_budget_keeps_the_backbone_out_of_int8() -> None:
    from dataclasses import replace

    pipeline, platform = get_pipeline("pointpillars-s"), get_platform("qcs8550")
    free, bound = (
        make_plan(one, platform, work=stage_work) for one in (pipeline, replace(pipeline, accuracy_budget=1000))
    )
    chosen, kept = ({task.name: task.precision for task in plan.tasks} for plan in (free, bound))
    assert chosen["backbone"] == "int8" and kept["backbone"] != "int8"


def test_the_oracle_of_the_scans_belongs_to_the_shipped_weights() -> None:
    oracle = json.loads((CHECKOUT / "tests" / "data" / "scan" / "oracle.json").read_text())
    with np.load(small.FILE) as archive:
        found = reference_pointpillars.statistics(np.concatenate([archive[name].ravel() for name in archive.files]))
    assert found.pop("shape") == oracle["weights"].pop("shape")
    assert found == pytest.approx(oracle["weights"], rel=1e-8), (
        "new weights: python -m tools.generate.scan_oracle --write"
    )
