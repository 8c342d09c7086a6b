"""Labels of synthetic scenes, KITTI's files, and average precision against worked examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded import Recorded

from socsched.errors import InputError
from tools.train import actors
from tools.train.lidar import Street
from tools.train.precision import (
    Judged,
    Question,
    Truth,
    average_precision,
    calibration_of,
    image_boxes,
    overlaps,
    read_calibration,
    read_labels,
    recall,
    truths_of,
    write_calibration,
    write_labels,
)
from tools.train.streets import RoadUser, Scene, Thing, look_at, make_scene

CAL = calibration_of()
ALONG = -np.pi / 2
"""ry of a heading along +x."""


def truth(x: float, y: float, kind: str = "Car", occlusion: int = 0, height: float = 60.0) -> Truth:
    box = np.array([x, y, -1.7, 1.6, 4.0, 1.5, ALONG], np.float32)
    return Truth(kind, box, (0.0, 100.0, 50.0, 100.0 + height), 0.0, occlusion)


def judged(truths: list[Truth], found: list[tuple[float, float, float]], kind: int = 2) -> Judged:
    boxes = np.array([[x, y, -1.7, 1.6, 4.0, 1.5, ALONG] for x, y, _ in found], np.float32).reshape(-1, 7)
    scores = np.array([score for *_, score in found], np.float32)
    return Judged(truths, boxes, scores, np.full(len(found), kind, np.int32), CAL)


CAR = Question("Car")


def test_average_precision_of_hand_calculated_cases() -> None:
    two = [truth(10, 0), truth(20, 0)]
    # right, wrong, right: precision 1 up to recall 1/2, 2/3 up to 1
    assert average_precision([judged(two, [(10, 0, 0.9), (15, 8, 0.8), (20, 0, 0.7)])], CAR) == pytest.approx(5 / 6)
    assert average_precision([judged(two, [(10, 0, 0.9)])], CAR) == pytest.approx(0.5)
    assert average_precision([judged(two, [(15, 8, 0.9), (10, 0, 0.8), (20, 0, 0.7)])], CAR) == pytest.approx(2 / 3)
    assert average_precision([judged(two, [(10, 0, 0.9), (20, 0, 0.8)]), judged([], [])], CAR) == 1.0
    assert average_precision([judged(two, [])], CAR) == 0.0
    assert average_precision([judged([], [(10, 0, 0.9)])], CAR) is None


def test_a_second_detection_of_an_object_is_wrong_and_the_overlap_decides() -> None:
    one = [truth(10, 0)]
    assert average_precision([judged(one, [(10, 0, 0.5), (10.1, 0, 0.9)])], CAR) == 1.0  # the better scored one counts
    assert average_precision([judged(one, [(10, 0, 0.5), (10, 8, 0.9)])], CAR) == pytest.approx(0.5)
    # shifted by a along its length of 4, the IoU is (4 - a) / (4 + a): 0.7 at a = 12/17
    assert average_precision([judged(one, [(10.70, 0, 0.9)])], CAR) == 1.0
    assert average_precision([judged(one, [(10.71, 0, 0.9)])], CAR) == 0.0
    assert average_precision([judged(one, [(10.71, 0, 0.9)])], replace(CAR, overlap=0.5)) == 1.0


def test_harder_objects_and_neighbouring_classes_are_neither_right_nor_wrong() -> None:
    frames = [
        judged([truth(10, 0), truth(20, 0, occlusion=2), truth(30, 0, "Van")], [(x, 0, 0.9) for x in (10, 20, 30)])
    ]
    assert average_precision(frames, CAR) == 1.0
    assert recall(frames, CAR, 0.3) == (1, 1)
    assert recall(frames, replace(CAR, level=2), 0.3) == (2, 2)
    trucks = [judged([truth(10, 0), truth(20, 0, "Truck")], [(20, 0, 0.9), (10, 0, 0.8)])]
    assert average_precision(trucks, CAR) == pytest.approx(0.5)
    small = [judged([truth(10, 0, height=24.0), truth(12, 5)], [(12, 5, 0.9)])]
    assert average_precision(small, CAR) == 1.0
    near = replace(CAR, within=(0.0, 15.0))
    assert (
        average_precision([judged([truth(10, 0), truth(20, 0)], [(20, 0, 0.9), (25, 0, 0.8), (10, 0, 0.7)])], near)
        == 1.0
    )


def test_overlap_in_space_takes_heights_in() -> None:
    box = np.array([[10, 0, -1.7, 1.6, 4.0, 1.5, ALONG]])
    raised = box + np.array([0, 0, 0.5, 0, 0, 0, 0])
    assert overlaps(box, raised, solid=False)[0, 0] == pytest.approx(1)
    assert overlaps(box, raised, solid=True)[0, 0] == pytest.approx(1.0 / 2.0)
    assert overlaps(box, box + 100, solid=False)[0, 0] == 0


def test_labels_and_calibration_survive_their_files(tmp_path: Path) -> None:
    scene = make_scene(3)
    truths = truths_of(scene, look_at(scene, 3))
    assert len(truths) > 3
    write_labels(tmp_path / "a_label.txt", truths, CAL)
    write_calibration(tmp_path / "a_calib.txt", CAL)
    calibration = read_calibration(tmp_path / "a_calib.txt")
    again = read_labels(tmp_path / "a_label.txt", calibration)
    assert [t.kind for t in again] == [t.kind for t in truths]
    np.testing.assert_allclose([t.box for t in again], [t.box for t in truths], atol=0.006)  # files have centimetres
    assert [t.level for t in again] == [t.level for t in truths]
    (tmp_path / "b.txt").write_text("Car 0.0 0\n")
    with pytest.raises(InputError, match=r"b.txt:1: not a KITTI label"):
        read_labels(tmp_path / "b.txt", calibration)
    with pytest.raises(InputError, match="not a KITTI calibration"):
        read_calibration(tmp_path / "b.txt")


def test_boxes_of_labels_cover_the_image_boxes_of_the_same_file(recorded: Recorded) -> None:
    """An oracle for frames, calibration and rotation at once: image boxes made in camera coordinates."""
    checked = 0
    for labels, file in recorded.labels:
        calibration = read_calibration(file)
        for label in read_labels(labels, calibration):
            clipped, _ = image_boxes(label.box[None], calibration)
            np.testing.assert_allclose(clipped[0], label.image, atol=recorded.pixels)
            checked += 1
    assert checked >= 6


def test_occlusion_is_the_share_of_rays_that_something_else_stops() -> None:
    car = RoadUser("Car", 20.0, 0.0, 0.0, (1.6, 3.9, 1.5), 0.0, 0.5)
    street = Street(0.0, 6.0)
    for width, expected in ((0.0, 0), (0.3, 1), (0.65, 2), (0.86, 3)):
        # from 10 m away it hides 1.8 times its width of the rear at 18 m, from one side on
        things = (Thing(actors.cabinet, 10.0, -0.42 + width / 2, (0.2, width, 2.5)),) if width else ()
        scene = Scene(street, (car,), things, 0.0)
        seen = look_at(scene, 0)
        found = truths_of(scene, seen)
        assert [t.occlusion for t in found] == ([expected] if seen.hits[0] else []), width
        assert seen.hits[0] <= seen.rays[0] and (width or seen.hits[0] == seen.rays[0])


def test_truncation_and_height_make_the_level() -> None:
    street = Street(0.0, 6.0)
    places = {0: (15.0, 0.0), 1: (35.0, 0.0), 3: (60.0, 0.0)}
    for level, (x, y) in places.items():
        scene = Scene(street, (RoadUser("Car", x, y, 0.0, (1.6, 3.9, 1.5), 0.0, 0.3),), (), 0.0)
        assert [t.level for t in truths_of(scene, look_at(scene, 0))] == [level]
    half_out = Scene(street, (RoadUser("Car", 8.0, 6.8, 0.0, (1.6, 3.9, 1.5), 0.0, 0.3),), (), 0.0)
    (cut,) = truths_of(half_out, look_at(half_out, 0))
    assert cut.truncation > 0.3 and cut.level > 1
