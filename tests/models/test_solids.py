import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.models.lidar.ground import Street
from socsched.models.lidar.solids import Convex, Cylinder, Ellipsoid, Frame, Material

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
    if contains(solid, np.zeros((1, 3)))[0]:
        return  # the LiDAR stands in the open
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
