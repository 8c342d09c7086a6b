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
from socsched.models.lidar.sensor import HDL_64E, KITTI_CAMERA, Camera, Lidar, Survey, survey
from socsched.models.lidar.solids import Frame, Solid
from socsched.models.pointpillars.anchors import CLASSES
from socsched.models.pointpillars.scan import write_bin

__all__ = [
    "FRAME_S",
    "RoadUser",
    "Scene",
    "Thing",
    "advance",
    "cast",
    "look_at",
    "make_scene",
    "sequence",
    "visible",
    "write_bin",
]

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
    from socsched.models.pointpillars.layout import lay_out  # deferred: uses the classes above

    return lay_out(np.random.default_rng(seed))
