"""A synthetic street to drive through: laid out by seed, scanned by a rotating LiDAR, with the true boxes known.

The LiDAR frame is the world: x forward, y left, z up, origin at the LiDAR.  Boxes are x, y, z_bottom, w, l, h, ry in
metres and radians with the heading at -ry - pi/2, as the detector's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from socsched.models.pointpillars.boxes import CLASSES, iou_matrix, suppress
from tools.train import actors
from tools.train.lidar import HDL_64E, KITTI_CAMERA, Camera, Frame, Lidar, Solid, Street, Survey, survey

FRAME_S = 0.1
"""Seconds from frame to frame: KITTI's LiDAR turns ten times a second."""
BLOCK = 250.0
"""Period of the street in metres, over twice the LiDAR's reach: objects leaving at the back reappear in front."""
_BUILDERS = {
    "Car": actors.car,
    "Van": actors.van,
    "Truck": actors.truck,
    "Pedestrian": actors.pedestrian,
    "Cyclist": actors.cyclist,
}


@dataclass(frozen=True, slots=True)
class RoadUser:
    """A road user: class, position (m), heading (rad), size w, l, h (m), speed (m/s), look (0 to 1: shape, colours).

    Classes are the detector's, plus Van and Truck, which it does not detect.
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
    """A static object: builder (a function of `lidar.actors`), position (m), heading (rad), sizes (m)."""

    build: Callable[..., list[Solid]]
    x: float
    y: float
    sizes: tuple[float, ...]
    heading: float = 0.0


@dataclass(frozen=True, slots=True)
class Scene:
    """A street at one instant; the LiDAR's vehicle drives along +x with `speed` m/s."""

    street: Street
    users: tuple[RoadUser, ...]
    things: tuple[Thing, ...]
    speed: float

    @property
    def boxes(self) -> npt.NDArray[np.float32]:
        """Return the true boxes [n, 7] of all road users, including hidden ones."""
        bend = self.street.bend
        rows = [(u.x, u.y, self.street.level(u.x, u.y) + bend * u.x**2, *u.size, yaw(u.heading)) for u in self.users]
        return np.array(rows, np.float32).reshape(-1, 7)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the class names of all road users, in the order of `boxes`."""
        return tuple(user.kind for user in self.users)

    def solids(self, camera: Camera | None = None) -> tuple[list[list[Solid]], list[Solid]]:
        """Return the solids of each road user, and of everything else; none for objects outside the camera's view."""
        groups = [
            _BUILDERS[user.kind](self._frame(user), *user.size, user.look) if _near(user, user.size, camera) else []
            for user in self.users
        ]
        rest = [t.build(self._frame(t), *t.sizes) for t in self.things if _near(t, t.sizes, camera)]
        return groups, [solid for built in rest for solid in built]

    def _frame(self, item: RoadUser | Thing) -> Frame:
        return Frame(item.x, item.y, self.street.level(item.x, item.y), item.heading)


def _near(item: RoadUser | Thing, sizes: tuple[float, ...], camera: Camera | None) -> bool:
    """Return whether an object may reach into the 90 degrees ahead, which contain the camera's view, or all around."""
    within = sum(sizes) + 2
    ahead = camera is None or abs(item.y) - item.x <= 2**0.5 * within
    return ahead and float(np.hypot(item.x, item.y)) - within <= HDL_64E.reach[1][1]


def yaw(heading: float) -> float:
    """Return ry of a heading, in [-pi, pi)."""
    return float((-heading - np.pi / 2 + np.pi) % (2 * np.pi) - np.pi)


def look_at(scene: Scene, seed: int, lidar: Lidar = HDL_64E, camera: Camera | None = KITTI_CAMERA) -> Survey:
    """Return the scan of a scene with its ray counts per road user; arguments as in `cast`."""
    lowered = replace(scene, street=replace(scene.street, height=scene.street.height - lidar.lift))
    groups, rest = lowered.solids(camera)
    return survey(lowered.street, groups, rest, np.random.default_rng(seed), lidar, camera)


def cast(
    scene: Scene, seed: int, lidar: Lidar = HDL_64E, camera: Camera | None = KITTI_CAMERA
) -> npt.NDArray[np.float32]:
    """Return the scan float32 [N, 4] of a scene; `seed` draws noise and losses; `camera` None keeps the full turn."""
    return look_at(scene, seed, lidar, camera).points


def visible(scene: Scene, points: npt.NDArray[np.float32], least: int = 5) -> npt.NDArray[np.intp]:
    """Return the indices of road users of the detector's classes with at least `least` points within their box."""
    counts = [_inside(points, box) * (kind in CLASSES) for box, kind in zip(scene.boxes, scene.labels, strict=True)]
    return np.flatnonzero(np.array(counts, int) >= least)


def _inside(points: npt.NDArray[np.float32], box: npt.NDArray[np.float32]) -> int:
    """Return the number of points within a box, with a noise margin of 2 cm."""
    heading = -float(box[6]) - np.pi / 2
    cos, sin = np.cos(heading), np.sin(heading)
    dx, dy, dz = points[:, 0] - box[0], points[:, 1] - box[1], points[:, 2] - box[2]
    along, across, slack = np.abs(dx * cos + dy * sin), np.abs(dy * cos - dx * sin), 0.02
    within = (along <= box[4] / 2 + slack) & (across <= box[3] / 2 + slack) & (dz > 0.1) & (dz <= box[5] + slack)
    return int(np.count_nonzero(within))


def advance(scene: Scene, seconds: float) -> Scene:
    """Return the scene `seconds` later, in the frame of the vehicle, which has moved as well."""
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
    crossing = scene.street.crossing and (_wrap(scene.street.crossing[0] - ride), scene.street.crossing[1])
    street = replace(scene.street, phase=(scene.street.phase + ride) % 10, crossing=crossing)
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
    return lay_out(np.random.default_rng(seed))


SIZES = {
    "Car": ((1.63, 3.88, 1.53), (0.09, 0.40, 0.12)),
    "Van": ((1.90, 5.08, 2.21), (0.14, 0.50, 0.28)),
    "Truck": ((2.59, 10.1, 3.25), (0.20, 2.0, 0.40)),
    "Pedestrian": ((0.66, 0.84, 1.76), (0.12, 0.18, 0.11)),
    "Cyclist": ((0.60, 1.76, 1.74), (0.10, 0.14, 0.09)),
}
"""Mean and standard deviation of w, l, h in metres: KITTI's training labels (Geiger et al., CVPR 2012), rounded."""
MOTIONLESS = 0.0
NARROW, ROOM = 6.6, 1.65
"""Half width (m) below which nothing parks at the kerb; middle line's distance (m) above which two lanes are used."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of street: half width (m), shares of kerb occupied by parked cars, plots built on and plots used to park,
    numbers of pedestrians and cyclists, share of vehicles other than cars, and gap between moving vehicles (m)."""

    half: tuple[float, float]
    parked: tuple[float, float]
    built: tuple[float, float]
    lots: float
    walkers: tuple[int, int]
    riders: tuple[int, int]
    large: float
    gap: tuple[float, float]
    verge: bool = False


KINDS = (
    (0.40, Kind((5.0, 9.0), (0.15, 0.8), (0.3, 1.0), 0.25, (5, 20), (2, 7), 0.08, (12, 60))),  # town
    (0.20, Kind((6.6, 11.0), (0.0, 0.4), (0.0, 0.8), 0.35, (3, 14), (1, 6), 0.12, (8, 35))),  # avenue
    (0.20, Kind((4.0, 6.5), (0.0, 0.15), (0.0, 0.15), 0.15, (2, 6), (2, 5), 0.15, (15, 60), verge=True)),  # country
    (0.20, Kind((3.8, 7.0), (0.0, 0.3), (0.6, 1.0), 0.1, (18, 40), (4, 12), 0.04, (25, 80))),  # walkers' quarter
)
"""Probability and parameters of each kind."""


def lay_out(rng: np.random.Generator) -> Scene:
    """Return a street drawn from `rng`."""
    kind = KINDS[int(rng.choice(len(KINDS), p=[share for share, _ in KINDS]))][1]
    half = float(rng.uniform(*kind.half))
    crossing = (float(rng.uniform(8, 70)), float(rng.uniform(3.5, 7))) if rng.random() < 0.4 else None
    # right-hand traffic: the vehicle keeps to the middle of the right lane, left of the cars parked at the kerb; in
    # narrow streets nothing parks at the kerb, so that cyclists keep clear of the cars
    narrow = half < NARROW
    street = Street(
        middle=half - 2.2 - float(rng.uniform(1.2, 1.6) if narrow else rng.uniform(2.3, 2.7)),
        half_width=half,
        kerb=0.0 if kind.verge else float(rng.uniform(0.06, 0.16)),
        slope=(float(rng.normal(0, 0.009)), float(rng.normal(0, 0.009))),
        height=float(rng.normal(-1.70, 0.04)),
        loss=float(rng.uniform(0.004, 0.05) if rng.random() < 0.8 else rng.uniform(0.05, 0.14)),
        rough=float(rng.uniform(0.001, 0.006)),
        bend=float(np.clip(rng.normal(0, 1.2e-4), -3e-4, 3e-4)),
        faint=float(rng.uniform(0.04, 0.17)),
        crossing=crossing,
    )
    speed = float(rng.uniform(6, 12))
    parked_off, things = _plots(rng, street, kind)
    users = _apart([
        *_moving(rng, street, kind, speed),
        *([] if narrow else _parked(rng, street, kind)),
        *parked_off,
        *_waiting(rng, street),
        *_riders(rng, street, kind),
        *_on_foot(rng, street, kind),
    ])  # fmt: skip
    return Scene(street, users, _clear(things, users), speed)


def _apart(users: list[RoadUser]) -> tuple[RoadUser, ...]:
    """Return the users that do not overlap an earlier one or the LiDAR's own vehicle."""
    areas = [(user.x, user.y, user.size[0] + 0.2, user.size[1] + 0.2, yaw(user.heading)) for user in users]
    overlaps = iou_matrix(np.array([(0.0, 0.0, 2.2, 6.0, yaw(0.0)), *areas])) > 1e-6
    return tuple(users[i - 1] for i in suppress(overlaps, np.arange(len(overlaps))) if i)


def _clear(things: Iterable[Thing], users: tuple[RoadUser, ...]) -> tuple[Thing, ...]:
    """Return the things, without the small ones that overlap users."""
    places = np.array([(user.x, user.y) for user in users]).reshape(-1, 2)
    reach = np.array([user.size[1] / 2 for user in users]) + 0.6
    small = (actors.pole, actors.sign, actors.bin_, actors.cabinet, actors.tree, actors.bush, actors.thicket)
    kept = []
    for thing in things:
        near = np.hypot(places[:, 0] - thing.x, places[:, 1] - thing.y) < reach
        if not (thing.build in small and near.any()):
            kept.append(thing)
    return tuple(kept)


def _user(rng: np.random.Generator, kind: str, x: float, y: float, heading: float, speed: float) -> RoadUser:
    mean, spread = SIZES[kind]
    size = np.array(mean) + np.clip(rng.normal(0, 1, 3), -2, 2) * spread
    width, length, height = (float(value) for value in size)
    return RoadUser(kind, float(x), float(y), float(heading), (width, length, height), float(speed), rng.random())


def _vehicle(rng: np.random.Generator, kind: Kind) -> str:
    if rng.random() >= kind.large:
        return "Car"
    return "Van" if rng.random() < 0.75 else "Truck"


def _open(street: Street, x: float, length: float = 5.0) -> bool:
    """Return whether the stretch around x is clear of the crossing street."""
    return street.crossing is None or abs(x - street.crossing[0]) > street.crossing[1] + length / 2 + 1.5


def _parked(rng: np.random.Generator, street: Street, kind: Kind) -> Iterator[RoadUser]:
    for side in (-1, 1):
        crowd = rng.uniform(*kind.parked)
        for x in np.arange(-BLOCK / 2, BLOCK / 2 - 5, 5.8):
            if rng.random() < crowd and abs(x) > 4 and _open(street, x):
                y = street.middle + side * (street.half_width - 1.05)
                turned = np.pi * ((side > 0) ^ (rng.random() < 0.15)) + float(np.clip(rng.normal(0, 0.04), -0.08, 0.08))
                vehicle = "Van" if rng.random() < kind.large else "Car"
                place = x + rng.uniform(-0.4, 0.4), y + rng.normal(0, 0.08)
                yield _user(rng, vehicle, *place, turned, MOTIONLESS)


def _moving(rng: np.random.Generator, street: Street, kind: Kind, speed: float) -> Iterator[RoadUser]:
    """Yield the traffic of both lanes; each lane has one speed, ahead the vehicle's own, so none collide."""
    oncoming = rng.uniform(7, 11)
    lanes = ((True, 0.0), (False, 2 * street.middle)) if street.middle > ROOM else ((True, 0.0),)
    for own, y in lanes:
        x = rng.uniform(9, 30) if own else rng.uniform(-110, -90)
        while x < BLOCK / 2 - 12:
            heading, pace = (0.0, speed) if own else (np.pi, oncoming)
            vehicle = _vehicle(rng, kind)
            yield _user(rng, vehicle, x, y + float(np.clip(rng.normal(0, 0.1), -0.15, 0.15)), heading, pace)
            x += rng.uniform(*kind.gap) + (8 if vehicle == "Truck" else 0)


def _waiting(rng: np.random.Generator, street: Street) -> Iterator[RoadUser]:
    """Yield the vehicles of the crossing street: waiting at its ends, with parked ones behind."""
    if street.crossing is None:
        return
    middle, half = street.crossing
    for side in (-1, 1):
        y = street.half_width + rng.uniform(3.0, 5.0)
        while y < 55:
            if rng.random() < 0.6:
                x = middle + side * min(1.8, half - 1.2)
                heading = -side * np.pi / 2 + rng.normal(0, 0.06)
                yield _user(rng, "Car", x, street.middle + side * y, heading, MOTIONLESS)
            if half > 5 and rng.random() < 0.5:
                x = middle - side * (half - 1.1)
                heading = rng.choice((-1, 1)) * np.pi / 2 + rng.normal(0, 0.04)
                yield _user(rng, "Car", x, street.middle + side * y, heading, MOTIONLESS)
            y += rng.uniform(5.5, 9)


def _on_foot(rng: np.random.Generator, street: Street, kind: Kind) -> Iterator[RoadUser]:
    """Yield pedestrians walking or standing on the pavements, alone or in groups, and some on the centre line."""
    for _ in range(int(rng.integers(*kind.walkers))):
        side, walks = rng.choice((-1, 1)), rng.random() < 0.7
        x, y = rng.uniform(-15, 60), street.middle + side * (street.half_width + rng.uniform(0.9, 2.8))
        heading = rng.choice((0, np.pi)) if walks else rng.uniform(-np.pi, np.pi)
        pace = rng.uniform(0.8, 1.6) if walks else MOTIONLESS
        yield _user(rng, "Pedestrian", x, y, heading, pace)
        for _ in range(int(rng.integers(0, 3)) if rng.random() < 0.25 else 0):
            position = x + rng.uniform(-1.2, 1.2), y + rng.uniform(-1.0, 1.0)
            yield _user(rng, "Pedestrian", *position, heading + rng.normal(0, 0.1), pace)
    for _ in range(int(rng.integers(0, 3))):
        heading = rng.choice((-1, 1)) * np.pi / 2
        place = rng.uniform(10, 45), street.middle + rng.uniform(-0.2, 0.2)
        yield _user(rng, "Pedestrian", *place, heading, MOTIONLESS)


def _riders(rng: np.random.Generator, street: Street, kind: Kind) -> Iterator[RoadUser]:
    speed = rng.uniform(3, 7)
    for _ in range(int(rng.integers(*kind.riders))):
        side = rng.choice((-1, 1))
        y = street.middle + side * (street.half_width - (0.8 if street.half_width < NARROW else 2.6))
        yield _user(rng, "Cyclist", rng.uniform(-30, 65), y, np.pi * (side > 0), speed)
    for _ in range(int(rng.integers(0, 3))):
        side = rng.choice((-1, 1))
        y = street.middle + side * (street.half_width + rng.uniform(0.8, 3.0))
        yield _user(rng, "Cyclist", rng.uniform(6, 55), y, rng.uniform(-np.pi, np.pi), MOTIONLESS)


def _plots(rng: np.random.Generator, street: Street, kind: Kind) -> tuple[list[RoadUser], list[Thing]]:
    """Return the vehicles parked off the street, and all roadside objects."""
    users: list[RoadUser] = []
    things: list[Thing] = []
    for side in (-1, 1):
        things += _kerbside(rng, street, side, kind)
        built, setback = rng.uniform(*kind.built), rng.uniform(-0.5, 14.0)
        edge, x = street.half_width + 3.6, -BLOCK / 2
        while x < BLOCK / 2 - 8:
            length, depth = float(rng.uniform(9, 20)), float(rng.uniform(8, 12))
            middle = x + length / 2
            x += length + rng.choice((0.0, 0.0, 4.0, 12.0))
            if not _open(street, middle, length):
                continue
            if rng.random() < built:
                y = street.middle + side * (edge + setback + rng.uniform(0, 1.5) + depth / 2)
                things.append(
                    Thing(actors.house, middle, float(y), (length - 0.5, depth, *rng.uniform((5, 0), (13, 1)).tolist()))
                )
                if setback > 2:
                    things.append(_boundary(rng, middle, street.middle + side * edge, length))
                    things += _front_garden(rng, middle, street.middle, side, edge, length, setback)
            elif rng.random() < kind.lots:
                users += _lot(rng, street, side, middle, length)
            else:
                things += _open_ground(rng, street, side, middle, length)
        things += _background(rng, street, side)
        if rng.random() < 0.3:
            things += _close(rng, street, side)
    if street.crossing is not None:
        things += _beside_the_crossing(rng, street)
    return users, things


def _background(rng: np.random.Generator, street: Street, side: int) -> Iterator[Thing]:
    """Yield the thicket, wall or row of houses that ends the view to a side, with gaps."""
    away, cover, x = float(rng.uniform(7, 32)), rng.uniform(0.4, 1.0), -BLOCK / 2
    while x < BLOCK / 2 - 12:
        length, sway = float(rng.uniform(6, 24)), float(rng.normal(0, 0.8))
        middle, y = x + length / 2, street.middle + side * (street.half_width + away + sway)
        x += length
        if rng.random() > cover or not _open(street, middle, length):
            continue
        choice, tall = rng.random(), float(rng.uniform(1.5, 6))
        if choice < 0.4:
            yield Thing(actors.thicket, middle, y, (length, tall, float(rng.random())), float(rng.normal(0, 0.1)))
        elif choice < 0.65:
            yield Thing(
                actors.hedge, middle, y, (length, float(rng.uniform(1.0, 4.0)), tall), float(rng.normal(0, 0.05))
            )
        elif choice < 0.8:
            yield Thing(actors.wall, middle, y, (length, float(rng.uniform(1.0, 2.5))))
        else:
            yield Thing(actors.house, middle, y + side * 5, (length, 8.0, tall + 3, float(rng.random())))


def _front_garden(
    rng: np.random.Generator, x: float, middle: float, side: int, edge: float, length: float, depth: float
) -> Iterator[Thing]:
    """Yield the objects between a fence and a house: bushes, steps, bicycle stands, bins."""
    for _ in range(int(rng.integers(0, 4))):
        place = float(x + rng.uniform(-0.5, 0.5) * length), middle + side * (edge + 0.8 + float(rng.uniform(0, depth)))
        if rng.random() < 0.5:
            yield Thing(actors.bush, *place, tuple(rng.uniform((0.25, 0.6), (1.2, 2.2)).tolist()))
        else:
            sizes = tuple(rng.uniform((0.4, 0.4, 0.4), (3.5, 1.8, 1.8)).tolist())
            yield Thing(actors.cabinet, *place, sizes, float(rng.uniform(-np.pi, np.pi)))


def _close(rng: np.random.Generator, street: Street, side: int) -> Iterator[Thing]:
    """Yield the hedge or wall that some streets have directly at the kerb, for a stretch."""
    away, choice = street.half_width + float(rng.uniform(0.15, 0.9)), rng.random()
    start, tall = float(rng.uniform(-40, 60)), float(rng.uniform(0.8, 3.2))
    for x in np.arange(start, min(start + float(rng.uniform(15, 70)), BLOCK / 2 - 8), 8.0):
        if not _open(street, x, 8.0):
            continue
        if choice < 0.5:
            wide = float(rng.uniform(0.6, 1.6))
            y = street.middle + side * (away + wide / 2)
            yield Thing(actors.hedge, float(x), y, (8.0, wide, tall * float(rng.uniform(0.8, 1.2))))
        elif choice < 0.75:
            yield Thing(actors.wall, float(x), street.middle + side * (away + 0.15), (8.0, tall))
        else:
            look = float(rng.random())
            yield Thing(actors.thicket, float(x), street.middle + side * (away + 1.6), (8.0, tall, look))


def _lot(rng: np.random.Generator, street: Street, side: int, x: float, length: float) -> Iterator[RoadUser]:
    """Yield rows of vehicles parked across or at an angle."""
    slant, crowd = rng.choice((np.pi / 2, np.pi / 2, 1.1, 0.8)), rng.uniform(0.4, 0.95)
    for row in range(int(rng.integers(1, 4))):
        y = street.middle + side * (street.half_width + 6.2 + 6.5 * row)
        for place in np.arange(x - length / 2 + 1.4, x + length / 2 - 1.4, 2.7 / np.sin(slant)):
            if rng.random() < crowd:
                heading = slant + np.pi * (rng.random() < 0.5) + rng.normal(0, 0.05)
                vehicle = "Van" if rng.random() < 0.06 else "Car"
                yield _user(rng, vehicle, place + rng.normal(0, 0.12), y + rng.normal(0, 0.25), heading, MOTIONLESS)


def _kerbside(rng: np.random.Generator, street: Street, side: int, kind: Kind) -> Iterator[Thing]:
    """Yield the objects between carriageway and walkway: lamp posts, signs, bollards, bins, trees; or a guard rail."""
    line = street.middle + side * (street.half_width + 0.45)
    gap, trees, clutter = rng.uniform(22, 32), rng.uniform(0.0, 0.8), rng.uniform(0.0, 0.7)
    for x in np.arange(-BLOCK / 2, BLOCK / 2, gap):
        yield Thing(actors.pole, float(x + rng.uniform(-2, 2)), line, (float(rng.uniform(4, 8)),))
    for x in np.arange(-BLOCK / 2 + 6, BLOCK / 2, 9.0):
        if rng.random() < trees and _open(street, x):
            sizes = (float(rng.uniform(0.1, 0.25)), float(rng.uniform(1.2, 2.6)), float(rng.uniform(5, 9)))
            yield Thing(actors.tree, float(x + rng.uniform(-2, 2)), line, sizes)
        if rng.random() < clutter and _open(street, x):
            yield _clutter(rng, float(x + rng.uniform(-3, 3)), line + side * float(rng.uniform(-0.1, 2.6)))
    if kind.verge and rng.random() < 0.4:
        start = float(rng.uniform(-BLOCK / 2, 40))
        for x in np.arange(start, start + 60, 16.0):
            if _open(street, x, 16.0) and abs(x) < BLOCK / 2 - 8:
                yield Thing(actors.rail, float(x), street.middle + side * (street.half_width + 0.8), (16.0,))


def _clutter(rng: np.random.Generator, x: float, y: float) -> Thing:
    """Return one item of pavement clutter."""
    heading = float(rng.uniform(-np.pi, np.pi))
    match int(rng.integers(7)):
        case 0:
            return Thing(actors.sign, x, y, tuple(rng.uniform((1.8, 0.4, 0.4), (3.2, 1.0, 0.9)).tolist()), heading)
        case 1:
            return Thing(actors.bin_, x, y, tuple(rng.uniform((0.15, 0.8), (0.35, 1.3)).tolist()))
        case 2:
            return Thing(actors.bin_, x, y, tuple(rng.uniform((0.3, 1.8), (0.7, 3.2)).tolist()))
        case 3:
            return Thing(actors.cabinet, x, y, tuple(rng.uniform((0.5, 0.3, 0.8), (2.2, 0.9, 1.8)).tolist()), heading)
        case 4:
            return Thing(actors.pole, x, y, tuple(rng.uniform((0.8, 0.06), (1.8, 0.16)).tolist()))
        case 5:
            return Thing(actors.bush, x, y, tuple(rng.uniform((0.25, 0.6), (0.8, 2.0)).tolist()))
        case _:
            return Thing(actors.tree, x, y, tuple(rng.uniform((0.05, 0.4, 1.8), (0.12, 1.0, 4.0)).tolist()))


def _boundary(rng: np.random.Generator, x: float, y: float, length: float) -> Thing:
    kind = int(rng.integers(3))
    if kind == 0:
        return Thing(actors.hedge, x, y, (length * 0.8, 0.6, float(rng.uniform(0.6, 1.6))))
    build = actors.fence if kind == 1 else actors.wall
    return Thing(build, x, y, (length * 0.8, float(rng.uniform(0.7, 2.0))))


def _open_ground(rng: np.random.Generator, street: Street, side: int, x: float, length: float) -> Iterator[Thing]:
    """Yield the trees and bushes of an unbuilt plot, sheds and containers among them."""
    for _ in range(int(rng.integers(2, 8))):
        away = side * float(street.half_width + rng.uniform(4, 30))
        place = float(x + rng.uniform(-0.5, 0.5) * length), street.middle + away
        choice = rng.random()
        if choice < 0.1:
            sizes = (float(rng.uniform(3, 9)), float(rng.uniform(0.8, 3)), float(rng.random()))
            yield Thing(actors.thicket, *place, sizes, float(rng.uniform(-np.pi, np.pi)))
        elif choice < 0.4:
            yield Thing(actors.bush, *place, (float(rng.uniform(0.4, 1.8)), float(rng.uniform(0.6, 2.4))))
        elif choice < 0.85:
            sizes = (float(rng.uniform(0.1, 0.3)), float(rng.uniform(1.5, 3.0)), float(rng.uniform(5, 11)))
            yield Thing(actors.tree, *place, sizes)
        else:
            sizes = tuple(rng.uniform((1.5, 1.0, 1.0), (6.0, 3.0, 2.8)).tolist())
            yield Thing(actors.cabinet, *place, sizes, float(rng.uniform(-np.pi, np.pi)))


def _beside_the_crossing(rng: np.random.Generator, street: Street) -> Iterator[Thing]:
    """Yield the houses and trees along the crossing street, beyond those of this one."""
    assert street.crossing is not None
    middle, half = street.crossing
    for side in (-1, 1):
        for flank in (-1, 1):
            for y in np.arange(street.half_width + 28, 70, 16.0):
                depth = float(rng.uniform(8, 12))
                x, place = middle + flank * (half + 4 + depth / 2), street.middle + side * float(y)
                if rng.random() < 0.5:
                    yield Thing(
                        actors.house, x, place, (14.0, depth, *rng.uniform((4, 0), (10, 1)).tolist()), np.pi / 2
                    )
                else:
                    yield Thing(actors.tree, x, place, (0.2, float(rng.uniform(1.5, 3)), float(rng.uniform(5, 10))))
