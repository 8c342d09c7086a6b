"""A synthetic street to drive through: laid out by seed, scanned by a rotating LiDAR, with the true boxes known.

The LiDAR frame is the world: x forward, y left, z up, origin at the LiDAR.  Boxes are x, y, z_bottom, w, l, h, ry in
metres and radians with the heading at -ry - pi/2, as the detector's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from socsched.models.lidar import actors
from socsched.models.lidar.ground import Street
from socsched.models.lidar.sensor import HDL_64E, KITTI_CAMERA, Camera, Lidar, sweep
from socsched.models.lidar.solids import Frame, Solid
from socsched.models.pointpillars.nms import iou_matrix, suppress
from socsched.models.pointpillars.scan import write_bin

__all__ = ["FRAME_S", "RoadUser", "Scene", "Thing", "advance", "cast", "make_scene", "sequence", "visible", "write_bin"]

FRAME_S = 0.1
"""Seconds from frame to frame: KITTI's LiDAR turns ten times a second."""
BLOCK = 250.0
"""The street repeats after so many metres, over twice the LiDAR's reach: what leaves behind comes back in front."""


@dataclass(frozen=True, slots=True)
class RoadUser:
    """A car, pedestrian or cyclist: class, place (m), heading (rad), size w, l, h (m), speed (m/s), look.

    `look` from 0 to 1 sets the paint of a car and the stride of a pedestrian.
    """

    kind: str
    x: float
    y: float
    heading: float
    size: tuple[float, float, float]
    speed: float
    look: float


@dataclass(frozen=True, slots=True)
class Thing:
    """Something fixed: what builds it (a function of `lidar.actors`), place (m), heading (rad), its sizes (m)."""

    build: Callable[..., list[Solid]]
    x: float
    y: float
    sizes: tuple[float, ...]
    heading: float = 0.0


@dataclass(frozen=True, slots=True)
class Scene:
    """A moment in a street; the LiDAR's vehicle drives along +x with `speed` m/s."""

    street: Street
    users: tuple[RoadUser, ...]
    things: tuple[Thing, ...]
    speed: float

    @property
    def boxes(self) -> npt.NDArray[np.float32]:
        """True boxes [n, 7] of all road users, also of hidden ones."""
        rows = [(u.x, u.y, self.street.level(u.x, u.y), *u.size, _yaw(u.heading)) for u in self.users]
        return np.array(rows, np.float32).reshape(-1, 7)

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names of all road users, in the order of `boxes`."""
        return tuple(user.kind for user in self.users)

    def solids(self) -> list[Solid]:
        """Return everything that stands on the street."""
        built = [_solids_of(user, self._frame(user)) for user in self.users]
        built += [thing.build(self._frame(thing), *thing.sizes) for thing in self.things]
        return [solid for group in built for solid in group]

    def _frame(self, item: RoadUser | Thing) -> Frame:
        return Frame(item.x, item.y, self.street.level(item.x, item.y), item.heading)


def _yaw(heading: float) -> float:
    """Return ry of a heading, in [-pi, pi)."""
    return (-heading - np.pi / 2 + np.pi) % (2 * np.pi) - np.pi


def _solids_of(user: RoadUser, frame: Frame) -> list[Solid]:
    width, length, height = user.size
    if user.kind == "Car":
        return actors.car(frame, width, length, height, paint=0.1 + 0.5 * user.look)
    if user.kind == "Cyclist":
        return actors.cyclist(frame, length, height)
    return actors.pedestrian(frame, height, stride=0.15 + 0.4 * user.look)


def cast(
    scene: Scene, seed: int, lidar: Lidar = HDL_64E, camera: Camera | None = KITTI_CAMERA
) -> npt.NDArray[np.float32]:
    """Return the scan float32 [N, 4] of a scene; `seed` draws noise and losses; `camera` None keeps the full turn."""
    return sweep(scene.street, scene.solids(), np.random.default_rng(seed), lidar, camera)


def visible(scene: Scene, points: npt.NDArray[np.float32], least: int = 5) -> npt.NDArray[np.intp]:
    """Return the indices of road users with at least `least` points within their box (2 cm of noise allowed)."""
    counts = [_inside(points, box) for box in scene.boxes]
    return np.flatnonzero(np.array(counts, int) >= least)


def _inside(points: npt.NDArray[np.float32], box: npt.NDArray[np.float32]) -> int:
    heading = -float(box[6]) - np.pi / 2
    cos, sin = np.cos(heading), np.sin(heading)
    dx, dy, dz = points[:, 0] - box[0], points[:, 1] - box[1], points[:, 2] - box[2]
    along, across, slack = np.abs(dx * cos + dy * sin), np.abs(dy * cos - dx * sin), 0.02
    within = (along <= box[4] / 2 + slack) & (across <= box[3] / 2 + slack) & (dz > 0.1) & (dz <= box[5] + slack)
    return int(np.count_nonzero(within))


def advance(scene: Scene, seconds: float) -> Scene:
    """Return the scene later: everything moved on, seen from the vehicle, which has moved on too."""
    ride = scene.speed * seconds
    users = tuple(
        replace(
            user,
            x=_wrap(user.x + user.speed * seconds * float(np.cos(user.heading)) - ride),
            y=user.y + user.speed * seconds * float(np.sin(user.heading)),
        )
        for user in scene.users
    )
    things = tuple(replace(thing, x=_wrap(thing.x - ride)) for thing in scene.things)
    street = replace(scene.street, phase=(scene.street.phase + ride) % 10)
    return Scene(street, users, things, scene.speed)


def _wrap(x: float) -> float:
    return (x + BLOCK / 2) % BLOCK - BLOCK / 2


def sequence(
    seed: int, frames: int, lidar: Lidar = HDL_64E, camera: Camera | None = KITTI_CAMERA
) -> Iterator[tuple[Scene, npt.NDArray[np.float32]]]:
    """Yield `frames` scenes FRAME_S apart, each with its scan; the same seed gives the same bytes."""
    scene = make_scene(seed)
    for frame in range(frames):
        yield scene, cast(scene, seed * 1_000_003 + frame, lidar, camera)
        scene = advance(scene, FRAME_S)


def make_scene(seed: int) -> Scene:
    """Return the street of a seed: houses, gardens, trees, poles, parked and moving cars, pedestrians, cyclists."""
    rng = np.random.default_rng(seed)
    half = float(rng.uniform(5.5, 8.5))
    # right-hand traffic: the vehicle keeps to the middle of the right lane, left of the cars parked at the kerb
    street = Street(
        middle=half - 2.2 - float(rng.uniform(1.6, 2.2)),
        half_width=half,
        kerb=float(rng.uniform(0.08, 0.16)),
        slope=(float(rng.normal(0, 0.006)), float(rng.normal(0, 0.004))),
    )
    speed = float(rng.uniform(6, 12))
    return Scene(street, _road_users(rng, street, speed), _things(rng, street), speed)


def _road_users(rng: np.random.Generator, street: Street, speed: float) -> tuple[RoadUser, ...]:
    users = [*_parked(rng, street), *_moving(rng, street, speed), *_on_foot(rng, street), *_riders(rng, street)]
    areas = np.array([(user.x, user.y, user.size[0] + 0.2, user.size[1] + 0.2, _yaw(user.heading)) for user in users])
    return tuple(users[i] for i in suppress(iou_matrix(areas) > 1e-6, np.arange(len(users))))


def _size(rng: np.random.Generator, kind: str) -> tuple[float, float, float]:
    """Return w, l, h in metres around the detector's anchor sizes, which are KITTI's class means."""
    mean, spread = {
        "Car": ((1.6, 3.9, 1.56), (0.08, 0.3, 0.08)),
        "Pedestrian": ((0.6, 0.8, 1.73), (0.04, 0.05, 0.09)),
        "Cyclist": ((0.6, 1.76, 1.73), (0.04, 0.06, 0.07)),
    }[kind]
    width, length, height = np.array(mean) + np.clip(rng.normal(0, 1, 3), -2, 2) * spread
    return float(width), float(length), float(height)


def _user(rng: np.random.Generator, kind: str, x: float, y: float, heading: float, speed: float) -> RoadUser:
    return RoadUser(kind, float(x), float(y), float(heading), _size(rng, kind), float(speed), float(rng.random()))


def _parked(rng: np.random.Generator, street: Street) -> Iterator[RoadUser]:
    for side in (-1, 1):
        crowd = rng.uniform(0.15, 0.75)
        for x in np.arange(-BLOCK / 2, BLOCK / 2 - 5, 6.0):
            if rng.random() < crowd and abs(x) > 4:
                y = street.middle + side * (street.half_width - 1.05)
                turned = np.pi * (side > 0) + rng.normal(0, 0.03)
                yield _user(rng, "Car", x + rng.uniform(-0.4, 0.4), y + rng.normal(0, 0.06), turned, 0.0)


def _moving(rng: np.random.Generator, street: Street, speed: float) -> Iterator[RoadUser]:
    """Yield the traffic of both lanes; within a lane all keep one speed, ahead the vehicle's own, so none collide."""
    oncoming = rng.uniform(7, 11)
    for own, y in ((True, 0.0), (False, 2 * street.middle)):
        x = rng.uniform(10, 30) if own else rng.uniform(-110, -90)
        while x < BLOCK / 2 - 10:
            heading, pace = (0.0, speed) if own else (np.pi, oncoming)
            yield _user(rng, "Car", x, y + rng.normal(0, 0.12), heading, pace)
            x += rng.uniform(14, 60)


def _on_foot(rng: np.random.Generator, street: Street) -> Iterator[RoadUser]:
    """Yield people who walk or stand on the pavements, and some who wait on the centre line."""
    for _ in range(int(rng.integers(6, 22))):
        side, walks = rng.choice((-1, 1)), rng.random() < 0.7
        y = street.middle + side * (street.half_width + rng.uniform(0.9, 2.6))
        heading = rng.choice((0, np.pi)) if walks else rng.uniform(-np.pi, np.pi)
        yield _user(rng, "Pedestrian", rng.uniform(-60, 70), y, heading, rng.uniform(0.8, 1.6) if walks else 0.0)
    for _ in range(int(rng.integers(0, 3))):
        heading = rng.choice((-1, 1)) * np.pi / 2
        yield _user(rng, "Pedestrian", rng.uniform(12, 45), street.middle + rng.uniform(-0.2, 0.2), heading, 0.0)


def _riders(rng: np.random.Generator, street: Street) -> Iterator[RoadUser]:
    speed = rng.uniform(3, 7)
    for _ in range(int(rng.integers(2, 7))):
        side = rng.choice((-1, 1))
        y = street.middle + side * (street.half_width - 2.6)
        yield _user(rng, "Cyclist", rng.uniform(-60, 65), y, np.pi * (side > 0), speed)


def _things(rng: np.random.Generator, street: Street) -> tuple[Thing, ...]:
    return tuple(thing for side in (-1, 1) for thing in [*_kerbside(rng, street, side), *_plots(rng, street, side)])


def _kerbside(rng: np.random.Generator, street: Street, side: int) -> Iterator[Thing]:
    """Yield lamp posts and trees between carriageway and walkers."""
    line = street.middle + side * (street.half_width + 0.45)
    gap, trees = rng.uniform(22, 32), rng.uniform(0.0, 0.8)
    for x in np.arange(-BLOCK / 2, BLOCK / 2, gap):
        yield Thing(actors.pole, float(x + rng.uniform(-2, 2)), line, (float(rng.uniform(4, 8)),))
    for x in np.arange(-BLOCK / 2 + 6, BLOCK / 2, 9.0):
        if rng.random() < trees:
            sizes = (float(rng.uniform(0.1, 0.25)), float(rng.uniform(1.2, 2.6)), float(rng.uniform(5, 9)))
            yield Thing(actors.tree, float(x + rng.uniform(-2, 2)), line, sizes)


def _plots(rng: np.random.Generator, street: Street, side: int) -> Iterator[Thing]:
    """Yield house after house with a front garden or none, and open ground where a plot is not built on."""
    built = rng.uniform(0.0, 1.0)
    setback = rng.uniform(-0.5, 14.0)
    edge = street.half_width + 3.2
    x = -BLOCK / 2
    while x < BLOCK / 2 - 8:
        length, depth = float(rng.uniform(9, 20)), float(rng.uniform(8, 12))
        middle = x + length / 2
        if rng.random() < built:
            front = edge + setback + rng.uniform(0, 1.5)
            y = street.middle + side * (front + depth / 2)
            yield Thing(actors.house, middle, float(y), (length - 0.5, depth, float(rng.uniform(5, 13))))
        else:
            yield from _open_ground(rng, street, side, x, length)
        if setback > 2:
            yield _boundary(rng, middle, street.middle + side * edge, length)
        x += length + rng.choice((0.0, 0.0, 4.0, 12.0))


def _boundary(rng: np.random.Generator, x: float, y: float, length: float) -> Thing:
    if rng.random() < 0.5:
        return Thing(actors.hedge, x, y, (length * 0.8, 0.6, float(rng.uniform(0.6, 1.6))))
    return Thing(actors.fence, x, y, (length * 0.8, float(rng.uniform(0.7, 1.5))))


def _open_ground(rng: np.random.Generator, street: Street, side: int, x: float, length: float) -> Iterator[Thing]:
    """Yield the trees and bushes of an unbuilt plot."""
    for _ in range(int(rng.integers(3, 9))):
        place = float(x + rng.uniform(0, length)), street.middle + side * float(street.half_width + rng.uniform(4, 25))
        if rng.random() < 0.5:
            yield Thing(actors.bush, *place, (float(rng.uniform(0.5, 1.6)), float(rng.uniform(0.7, 2.2))))
        else:
            sizes = (float(rng.uniform(0.1, 0.3)), float(rng.uniform(1.5, 3.0)), float(rng.uniform(5, 11)))
            yield Thing(actors.tree, *place, sizes)
