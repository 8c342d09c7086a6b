"""The streets that training data and the shipped scans are made of: solids, rays, objects and their true boxes."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from socsched.models import street
from socsched.models.pointpillars.boxes import corners, footprints, iou_matrix
from socsched.models.pointpillars.voxelise import voxelise
from tools.train import actors
from tools.train.lidar import HDL_64E, KITTI_CAMERA, Convex, Cylinder, Ellipsoid, Frame, Material, Street
from tools.train.streets import (
    RoadUser,
    Scene,
    Thing,
    advance,
    cast,
    look_at,
    make_scene,
    sequence,
    visible,
)

STREET = Street(0.0, 6.0)
CAR = RoadUser("Car", 15.0, 1.0, 0.4, (1.6, 3.9, 1.5), 0.0, 0.5)


def near_box(points, box, slack=0.1):
    heading = -box[6] - np.pi / 2
    offset = points[:, :2] - box[:2]
    along = offset @ [np.cos(heading), np.sin(heading)]
    across = offset @ [-np.sin(heading), np.cos(heading)]
    height = points[:, 2] - box[2]
    level = (np.abs(along) < box[4] / 2 + slack) & (np.abs(across) < box[3] / 2 + slack)
    return level & (height > 0.1) & (height < box[5] + slack)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    digest = [hashlib.sha256(cast(make_scene(seed), 5).tobytes()).hexdigest() for seed in (3, 3, 4)]
    assert digest[0] == digest[1] != digest[2]
    scene = make_scene(3)
    assert cast(scene, 5).tobytes() != cast(scene, 6).tobytes()


def test_points_come_beam_by_beam_within_range_and_intensity():
    points = cast(make_scene(1), 1, camera=None)
    distance = np.linalg.norm(points[:, :3], axis=1)
    elevation = np.degrees(np.arcsin(points[:, 2] / distance))
    assert distance.min() > 0.7 and distance.max() < 120.2
    # the emitters lie above the origin, so that near returns of a beam appear higher
    scene = make_scene(1)
    x, y, z, _ = points.astype(np.float64).T
    level = np.hypot(x, y)
    beam = np.degrees(np.arctan2(z - HDL_64E.lift - scene.street.bend * x**2, level))
    assert beam.max() < 2.2 and beam.min() > -24.9 and elevation.max() > 2.2
    assert (np.diff(beam) < 0.75).all()  # from the top beam down; 2 cm of noise tilt a ray at 0.9 m
    assert points[:, 3].min() >= 0 and points[:, 3].max() <= 1


def test_reach_follows_the_manuals_two_figures():
    limits = HDL_64E.range_limit(np.array([0.10, 0.80, 1.0, 0.05]))
    assert limits[:3] == pytest.approx([50, 120, 120]) and 20 < limits[3] < 50
    assert len(HDL_64E.elevations) == 64 and HDL_64E.elevations[-1] == pytest.approx(-24.33)


@pytest.mark.parametrize("kind", ["Car", "Pedestrian", "Cyclist"])
@pytest.mark.parametrize("heading", [0.0, 1.1, -2.7])
def test_a_road_user_is_seen_where_its_box_is(kind, heading):
    size = {"Car": (1.6, 3.9, 1.5), "Pedestrian": (0.6, 0.8, 1.7), "Cyclist": (0.6, 1.76, 1.7)}[kind]
    empty = Scene(STREET, (), (), 8.0)
    scene = replace(empty, users=(RoadUser(kind, 12.0, -1.0, heading, size, 0.0, 0.5),))
    points = cast(scene, 1)
    above = points[points[:, 2] > STREET.height + 0.25]
    assert len(above) > 40 and near_box(above, scene.boxes[0]).all()
    # it throws a shadow: fewer points on the ground behind it
    shaded, open_ = (
        np.count_nonzero((p[:, 0] > 14) & (np.abs(p[:, 1] / p[:, 0] + 1 / 12) < 0.01)) for p in (points, cast(empty, 1))
    )
    assert shaded < 0.7 * open_
    assert visible(scene, points).tolist() == [0] and visible(empty, points).tolist() == []


def test_box_and_heading_follow_the_detectors_convention():
    scene = Scene(STREET, (CAR,), (), 0.0)
    (box,) = scene.boxes
    outline = corners(footprints(box[None]))[0]
    front = (outline[0] + outline[3]) / 2
    np.testing.assert_allclose(front, [15 + 1.95 * np.cos(0.4), 1 + 1.95 * np.sin(0.4)], atol=1e-6)
    assert box[2] == pytest.approx(-1.73) and scene.labels == ("Car",)
    assert box[3:6].tolist() == pytest.approx([1.6, 3.9, 1.5])


def test_a_wall_hides_what_is_behind_it():
    wall = Thing(actors.house, 8.0, 0.0, (1.0, 30.0, 9.0))
    open_, hidden = (Scene(STREET, (CAR,), things, 0.0) for things in ((), (wall,)))
    assert visible(open_, cast(open_, 0)).tolist() == [0]
    points = cast(hidden, 0)
    assert visible(hidden, points).tolist() == [] and points[:, 0].max() < 8.0


@pytest.mark.parametrize("seed", range(5))
def test_vehicles_never_run_into_each_other(seed):
    scene = make_scene(seed)
    for _ in range(40):
        overlaps = iou_matrix(footprints(scene.boxes))
        cars = np.array([label != "Pedestrian" for label in scene.labels])
        overlaps = overlaps[np.ix_(cars, cars)] - np.eye(cars.sum())
        assert overlaps.max() < 1e-6
        scene = advance(scene, 0.25)


def test_time_moves_users_and_the_vehicle():
    walker = RoadUser("Pedestrian", 20.0, 4.0, np.pi, (0.6, 0.8, 1.7), 1.5, 0.2)
    post = Thing(actors.pole, -124.9, 7.0, (5.0,))
    later = advance(Scene(STREET, (walker,), (post,), 10.0), 0.5)
    assert (later.users[0].x, later.users[0].y) == pytest.approx((20 - 5 - 0.75, 4.0))
    assert later.things[0].x == pytest.approx(250 - 129.9)  # the street repeats
    assert later.street.phase == pytest.approx(5.0)


def test_a_survey_names_the_object_of_every_point():
    scene = make_scene(3)
    seen = look_at(scene, 3)
    assert (seen.hits <= seen.rays).all() and len(seen.owner) == len(seen.points)
    for number, box in enumerate(scene.boxes):
        mine = seen.points[seen.owner == number]
        assert near_box(mine[mine[:, 2] > box[2] + 0.15], box).all()
        assert len(mine) <= seen.hits[number]
    assert {"Car", "Pedestrian"} <= {scene.labels[number] for number in set(seen.owner.tolist()) - {-1}}


def test_a_crossing_street_has_no_kerbs_and_a_hill_lifts_what_stands_on_it():
    crossed = Street(0.0, 5.0, kerb=0.15, crossing=(20.0, 4.0), bend=1e-3)
    assert crossed.level(20, 9) == crossed.level(20, 0) and crossed.level(10, 9) == pytest.approx(
        crossed.level(10, 0) + 0.15
    )
    scene = Scene(crossed, (replace(CAR, x=20.0),), (), 0.0)
    assert scene.boxes[0, 2] == pytest.approx(-1.73 + 0.4)
    points = cast(scene, 0)
    on_road = points[(np.abs(points[:, 1]) < 2) & (points[:, 0] > 34)]
    assert np.median(on_road[:, 2] - (-1.73 + 1e-3 * on_road[:, 0] ** 2)) == pytest.approx(0, abs=0.05)
    assert len(visible(scene, points)) == 1
    assert advance(replace(scene, speed=10.0), 0.5).street.crossing == pytest.approx((15.0, 4.0))


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


STONE = Material(0.3)
PLACE = st.floats(-20, 20)
SIZE = st.floats(0.3, 6)
FRAMES = st.builds(Frame, PLACE, PLACE, st.floats(-3, 1), st.floats(-4, 4))
BLOCKS = st.builds(lambda f, length, w, h: f.block(length, w, -0.2, h, STONE), FRAMES, SIZE, SIZE, SIZE)
CABINS = st.builds(
    lambda f, u, v, h, inset: f.prism((-u, u, -v, v), (-u * inset, u * inset / 2, -v * inset, v), 0.2, 0.2 + h, STONE),
    FRAMES,
    SIZE,
    SIZE,
    SIZE,
    st.floats(0.2, 1.0),
)
BALLS = st.builds(lambda f, a, b: Ellipsoid((f.x, f.y, f.z), a, b, STONE), FRAMES, SIZE, SIZE)
POSTS = st.builds(lambda f, h, r: Cylinder(f.x, f.y, f.z, f.z + h, r, STONE), FRAMES, SIZE, SIZE)


def contains(solid, points):
    """Membership by each shape's definition."""
    if isinstance(solid, Convex):
        return (points @ solid.normals.T <= solid.offsets).all(-1)
    if isinstance(solid, Ellipsoid):
        scaled = (points - solid.centre) / (solid.horizontal, solid.horizontal, solid.vertical)
        return (scaled**2).sum(-1) <= 1
    near = np.hypot(points[..., 0] - solid.x, points[..., 1] - solid.y) <= solid.girth
    return near & (points[..., 2] >= solid.bottom) & (points[..., 2] <= solid.top)


def rays_towards(solid, seed, count=40):
    """Rays at and around the solid, and some in any direction."""
    rng = np.random.default_rng(seed)
    aims = np.array(solid.centre) + rng.normal(0, solid.radius, (count, 3))
    aims[::8] = rng.normal(0, 1, aims[::8].shape)
    return aims / np.linalg.norm(aims, axis=1, keepdims=True)


@settings(max_examples=150, deadline=None)
@given(solid=st.one_of(BLOCKS, CABINS, BALLS, POSTS), seed=st.integers(0, 1000))
def test_rays_are_inside_between_entry_and_exit_and_nowhere_else(solid, seed):
    rays = rays_towards(solid, seed)
    assume(not contains(solid, np.zeros((1, 3)))[0])  # the LiDAR stands in the open
    met = solid.cross(rays)
    steps = np.linspace(0.01, np.linalg.norm(solid.centre) + solid.radius, 700)
    inside = contains(solid, rays[:, None] * steps[:, None])
    expected = (steps > met.enter[:, None]) & (steps < met.leave[:, None])
    # a sample may lie within rounding of the border
    border = np.minimum(np.abs(steps - met.enter[:, None]), np.abs(steps - met.leave[:, None])) < 1e-6
    assert ((inside == expected) | border).all()
    hit = np.isfinite(met.enter)
    assert ((met.cosine[hit] >= 0) & (met.cosine[hit] <= 1 + 1e-9)).all()


@settings(max_examples=100, deadline=None)
@given(solid=st.one_of(BLOCKS, CABINS, BALLS, POSTS), seed=st.integers(0, 1000))
def test_everything_met_lies_in_the_bounding_sphere(solid, seed):
    rays = rays_towards(solid, seed)
    enter = solid.cross(rays).enter
    hit = np.isfinite(enter)
    reach = np.linalg.norm(rays[hit] * enter[hit, None] - solid.centre, axis=1)
    assert (reach <= solid.radius + 1e-9).all()


def test_known_distances_and_angles():
    ahead, down = np.array([[1.0, 0, 0]]), np.array([[0.6, 0, -0.8]])
    block = Frame(10, 0, -1, np.pi / 2).block(2, 4, 0, 3, STONE)  # 4 m along x after the quarter turn
    met = block.cross(ahead)
    assert (met.enter[0], met.leave[0], met.cosine[0]) == pytest.approx((8, 12, 1))
    ball = Ellipsoid((5, 0, 0), 1, 2, STONE).cross(ahead)
    assert (ball.enter[0], ball.leave[0], ball.cosine[0]) == pytest.approx((4, 6, 1))
    post = Cylinder(3, 0, -9, -4, 0.5, STONE).cross(down)
    assert (post.enter[0], post.cosine[0]) == pytest.approx((5, 0.8))  # on the top face
    assert np.isinf(Cylinder(-3, 0, -1, 1, 0.5, STONE).cross(ahead).enter[0])  # behind


def test_a_slanted_side_holds_both_its_edges():
    base, roof = (-2, 2, -1, 1), (-1, 0.5, -0.8, 0.8)
    cabin = Frame(0, 0, 0, 0.0).prism(base, roof, 1.0, 2.0, STONE)
    corners = np.array([(u, v, z) for z, face in ((1, base), (2, roof)) for u in face[:2] for v in face[2:]])
    assert (corners @ cabin.normals.T <= cabin.offsets + 1e-12).all()
    assert not contains(cabin, corners + np.sign(corners) * 0.01).any()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    middle=st.floats(-3, 3),
    kerb=st.floats(0.05, 0.2),
    slope=st.tuples(st.floats(-0.02, 0.02), st.floats(-0.02, 0.02)),
)
def test_rays_end_where_they_first_go_below_the_street(seed, middle, kerb, slope):
    street = Street(middle, 5.0, kerb, slope)
    rng = np.random.default_rng(seed)
    azimuth, elevation = rng.uniform(-np.pi, np.pi, 30), np.radians(rng.uniform(-25, -3, 30))
    level = np.cos(elevation)
    rays = np.stack([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], axis=-1)
    met, reflectivity = street.cross(rays)
    for ray, distance in zip(rays, met.enter, strict=True):
        steps = np.arange(0.5, min(distance, 60.0) - 0.01, 0.05)
        before = ray * steps[:, None]
        assert all(z > street.level(x, y) - 1e-9 for x, y, z in before)
        if np.isfinite(distance):
            x, y, z = ray * (distance + 1e-4)
            assert z <= street.level(x, y) + 1e-3
    assert ((reflectivity > 0) & (reflectivity <= 1)).all()
