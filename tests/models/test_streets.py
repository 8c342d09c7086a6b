"""The streets that training data and the shipped scans are made of: solids, rays, objects and their true boxes."""

import numpy as np

from socsched.models import street
from socsched.models.pointpillars.voxelise import voxelise
from tools.train.lidar import KITTI_CAMERA
from tools.train.streets import (
    sequence,
    visible,
)


def test_the_shipped_scans_are_those_of_the_drive_of_seed_0():
    for number, (scene, points) in enumerate(sequence(0, 2)):
        np.testing.assert_array_equal(street.scan(number), points)
        np.testing.assert_array_equal(street.boxes(number), scene.boxes[visible(scene, points)])
    assert len({street.scan(number).tobytes() for number in range(street.SCANS)}) == street.SCANS
    assert street.scan(street.SCANS).tobytes() == street.scan(0).tobytes()


def test_a_full_turn_is_as_heavy_as_kittis():
    """KITTI's camera crops hold 2300 to 8600 live pillars (32 scans measured), its full turns 128 thousand points."""
    for number in range(street.SCANS):
        ahead, whole = street.scan(number), street.scan(number, all_round=True)
        assert 2300 <= len(voxelise(ahead)[1]) <= 8600 and len(voxelise(whole)[1]) <= 18_500
        assert KITTI_CAMERA.sees(ahead.astype(np.float64)).mean() > 0.999
        np.testing.assert_array_equal(whole[: len(ahead)], ahead)
        assert np.histogram(np.arctan2(whole[:, 1], whole[:, 0]), 4, (-np.pi, np.pi))[0].min() > 15_000
