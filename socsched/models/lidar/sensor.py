"""A rotating LiDAR: beam directions, range limit, noise and intensity; and the crop to a camera's view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from socsched.models.arrays import aligned_zeros
from socsched.models.lidar.ground import Street
from socsched.models.lidar.solids import Crossing, Floats, Solid


@dataclass(frozen=True, slots=True)
class Lidar:
    """Beam elevations (degrees, top first), firings per turn, mounting height (m), range limits and noise (m).

    Defaults are Velodyne's HDL-64E as KITTI mounted it: upper 32 beams from +2 degrees in steps of 1/3, lower 32 from
    -8.83 in steps of 1/2, 120 m for a reflectivity of 0.80 and 50 m for 0.10, accuracy 2 cm (HDL-64E S2 user's manual,
    specifications); 10 turns per second, 1.73 m above ground (Geiger et al., IJRR 2013). 1.3 million points per second
    over 64 beams and 10 turns give 0.18 degrees per firing; KITTI's scans hold up to 478 of them within 81.5 degrees.
    `lift` is how far the emitters lie above the frame's origin (the manual's vertical offsets, 0.1 to 0.2 m), so that
    near returns of a beam appear at a higher elevation; `wobble` is the spread of a firing's azimuth in degrees.
    """

    elevations: tuple[float, ...] = (
        *(2 - i / 3 for i in range(32)),
        *(-8.83 - i / 2 for i in range(32)),
    )
    firings: int = 2100
    height: float = 1.73
    nearest: float = 0.9
    reach: tuple[tuple[float, float], tuple[float, float]] = ((0.10, 50.0), (0.80, 120.0))
    noise: float = 0.02
    lift: float = 0.19
    wobble: float = 0.01

    def range_limit(self, reflectivity: Floats) -> Floats:
        """Return the range limit for a surface reflectivity: the power law through the two points of `reach`."""
        (dark, near), (bright, far) = self.reach
        power = np.log(far / near) / np.log(bright / dark)
        limit: Floats = np.minimum(near * (np.maximum(reflectivity, 1e-6) / dark) ** power, far)
        return limit


@dataclass(frozen=True, slots=True)
class Camera:
    """A pinhole camera used to crop a scan: focal length, principal point and image size in pixels, position in m.

    Defaults are KITTI's left colour camera, 0.27 m ahead of and 0.08 m below the LiDAR (Geiger et al., IJRR 2013,
    calibration of the object benchmark): about 81 degrees wide, 15 degrees down.
    """

    focal: float = 721.5
    centre: tuple[float, float] = (609.6, 172.9)
    size: tuple[int, int] = (1242, 375)
    ahead: float = 0.27
    below: float = 0.08

    def sees(self, points: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
        """Return which points [..., 3] in the LiDAR frame fall into the image."""
        depth = points[..., 0] - self.ahead
        with np.errstate(divide="ignore", invalid="ignore"):
            column = self.centre[0] - self.focal * points[..., 1] / depth
            row = self.centre[1] - self.focal * (points[..., 2] + self.below) / depth
        inside = (column >= 0) & (column < self.size[0]) & (row >= 0) & (row < self.size[1])
        seen: npt.NDArray[np.bool_] = inside & (depth > 0)
        return seen


HDL_64E, KITTI_CAMERA = Lidar(), Camera()
_HALF_VIEW = np.radians(45)
"""Firings beyond this azimuth never enter the default camera's image, so a cropped sweep need not trace them."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The points of one turn, float32 [N, 4], and the ray counts of every group of solids.

    `owner` [N] is the group a point lies on, -1 for the ground and ungrouped solids; `hits` counts the rays that end on
    each group, `rays` those that would if it stood alone.
    """

    points: npt.NDArray[np.float32]
    owner: npt.NDArray[np.int16]
    hits: npt.NDArray[np.intp]
    rays: npt.NDArray[np.intp]


@dataclass(slots=True)
class _Image:
    """The nearest surface met by every ray so far, [beams, firings]."""

    rays: Floats
    beams: Floats
    azimuths: Floats
    distance: Floats = field(init=False)
    cosine: Floats = field(init=False)
    reflectivity: Floats = field(init=False)
    loss: Floats = field(init=False)
    owner: npt.NDArray[np.int16] = field(init=False)

    def __post_init__(self) -> None:
        shape = self.rays.shape[:2]
        self.distance, self.cosine = np.full(shape, np.inf), np.zeros(shape)
        self.reflectivity, self.loss = np.zeros(shape), np.zeros(shape)
        self.owner = np.full(shape, -1, np.int16)

    def window(self, solid: Solid) -> tuple[npt.NDArray[np.intp], ...] | None:
        """Return the index grid of the rays that may meet the solid's bounding sphere, None if no ray can."""
        x, y, z = solid.centre
        ground, range_ = float(np.hypot(x, y)), float(np.sqrt(x * x + y * y + z * z))
        if ground <= solid.radius:
            return np.ix_(np.arange(len(self.beams)), np.arange(len(self.azimuths)))
        turn = np.abs((self.azimuths - np.arctan2(y, x) + np.pi) % (2 * np.pi) - np.pi)
        columns = np.flatnonzero(turn <= np.arcsin(solid.radius / ground))
        lift = np.abs(self.beams - np.arcsin(z / range_))
        rows = np.flatnonzero(lift <= np.arcsin(min(solid.radius / range_, 1.0)))
        return np.ix_(rows, columns) if len(rows) and len(columns) else None

    def lay(self, street: Street, rng: np.random.Generator) -> None:
        """Initialise with the ground, which every unobstructed downward ray meets."""
        met, self.reflectivity = street.cross(self.rays)
        bumps = 1 + rng.normal(0, street.rough, met.enter.shape) / abs(street.height) if street.rough else 1.0
        self.distance, self.cosine = met.enter * bumps, met.cosine
        self.loss = np.full(met.enter.shape, street.loss)

    def add(self, solid: Solid, rng: np.random.Generator, owner: int, alone: npt.NDArray[np.bool_] | None) -> None:
        """Intersect the rays with a solid; mark in `alone` every ray it would stop if it stood alone."""
        window = self.window(solid)
        if window is None:
            return
        met = solid.cross(self.rays[window])
        distance = _within_foliage(met, solid.material.depth, rng)
        closer = distance < self.distance[window]
        if alone is not None:
            alone[window] |= np.isfinite(distance)
        for image, value in (
            (self.distance, distance),
            (self.cosine, met.cosine),
            (self.reflectivity, np.full(distance.shape, solid.material.reflectivity)),
            (self.loss, np.full(distance.shape, solid.material.loss)),
            (self.owner, np.full(distance.shape, owner)),
        ):
            image[window] = np.where(closer, value, image[window])


def _within_foliage(met: Crossing, depth: float, rng: np.random.Generator) -> Floats:
    """Return where a pulse is reflected: at the surface, or with `depth` somewhere inside or not at all."""
    if depth == 0:
        return met.enter
    distance = met.enter + rng.exponential(depth, met.enter.shape)
    return np.where(distance < met.leave, distance, np.inf)


def survey(
    street: Street,
    groups: Sequence[Sequence[Solid]],
    rest: Sequence[Solid],
    rng: np.random.Generator,
    lidar: Lidar = HDL_64E,
    camera: Camera | None = KITTI_CAMERA,
) -> Survey:
    """Return one turn's points (x, y, z in m, intensity 0 to 1), cropped to the camera unless None.

    The emitters are stationary at the origin; points are given in the LiDAR's frame, `lidar.lift` below them.  Points
    are ordered by beam from the top, as in KITTI's files.
    """
    azimuths = -np.pi + 2 * np.pi * np.arange(lidar.firings) / lidar.firings
    if camera is not None:
        azimuths = azimuths[np.abs(azimuths) <= _HALF_VIEW]
    beams = np.radians(lidar.elevations)
    level, shape = np.cos(beams)[:, None], (len(beams), len(azimuths))
    turned = azimuths + np.radians(lidar.wobble) * np.clip(rng.standard_normal(shape), -3, 3)
    up = np.broadcast_to(np.sin(beams)[:, None], shape)
    image = _Image(np.stack([level * np.cos(turned), level * np.sin(turned), up], axis=-1), beams, azimuths)
    image.lay(street, rng)
    rays = np.zeros(len(groups), np.intp)
    for number, group in enumerate(groups):
        alone = np.zeros(shape, np.bool_)
        for solid in group:
            image.add(solid, rng, number, alone)
        rays[number] = np.count_nonzero(alone)
    for solid in rest:
        image.add(solid, rng, -1, None)
    hits = np.bincount(image.owner[image.owner >= 0], minlength=len(groups))
    points, owner = _returns(image, street, lidar, camera, rng)
    return Survey(points, owner, hits, rays)


def _returns(
    image: _Image, street: Street, lidar: Lidar, camera: Camera | None, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int16]]:
    """Return the points of sufficiently strong returns, with noise, and the groups they lie on."""
    shape = image.distance.shape
    texture = rng.lognormal(0, 0.25, shape)
    reflectivity = image.reflectivity * texture
    lost = rng.random(shape) < np.maximum(image.loss, street.loss)
    received = (image.distance >= lidar.nearest) & (image.distance <= lidar.range_limit(reflectivity)) & ~lost
    distance = np.where(received, image.distance, 0) + rng.normal(0, lidar.noise, shape)
    # rough surfaces reflect far more at grazing angles than Lambert's cosine; these shares, the fall with range and
    # the echoes recorded as 0 approximate KITTI, whose far returns mostly read 0
    intensity = reflectivity * (0.7 + 0.3 * image.cosine) / (1 + (distance / 45) ** 2) + rng.normal(0, 0.02, shape)
    if street.faint > 0:
        with np.errstate(over="ignore"):
            intensity[rng.random(shape) < 1 / (1 + np.exp((intensity - street.faint) / 0.02))] = 0
    points = image.rays * distance[..., None]
    points[..., 2] += lidar.lift + street.bend * points[..., 0] ** 2
    if camera is not None:
        received &= camera.sees(points)
    scan = aligned_zeros((int(np.count_nonzero(received)), 4), np.float32)
    scan[:, :3] = points[received]
    scan[:, 3] = np.round(np.clip(intensity[received], 0, 1), 2)
    return scan, image.owner[received]  # type: ignore[return-value]
