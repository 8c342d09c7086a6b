"""Shapes a LiDAR ray can meet; each computes where a bundle of rays from the origin enters and leaves it.

The street surface: carriageway, adjacent pavements or verges, kerbs, lane paint, a crossing street.

A rotating LiDAR: beam directions, range limit, noise and intensity; and the crop to a camera's view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from socsched.models.host import aligned_zeros

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Material:
    """Surface properties: mean diffuse reflectivity, share of pulses lost (glass, spokes), and `depth`.

    `depth` is the mean penetration (metres) of a pulse into foliage or the like before it is reflected; a pulse that
    passes through continues to the objects behind. 0 for closed surfaces.
    """

    reflectivity: float
    loss: float = 0.0
    depth: float = 0.0


@dataclass(frozen=True, slots=True)
class Crossing:
    """Per ray: distance to entry and exit in metres (entry inf on a miss) and cosine of the angle of incidence."""

    enter: Floats
    leave: Floats
    cosine: Floats


class Solid(Protocol):
    """A shape with a bounding sphere (for culling) and a ray test."""

    @property
    def material(self) -> Material:
        """Return the surface properties."""
        ...

    @property
    def centre(self) -> tuple[float, float, float]:
        """Return the centre of the bounding sphere, metres."""
        ...

    @property
    def radius(self) -> float:
        """Return the radius of the bounding sphere, metres."""
        ...

    def cross(self, rays: Floats) -> Crossing:
        """Return where rays [..., 3], unit vectors from the origin, cross the shape."""
        ...


def _crossing(enter: Floats, leave: Floats, cosine: Floats) -> Crossing:
    missed = ~((enter < leave) & (enter > 0))
    return Crossing(np.where(missed, np.inf, enter), leave, np.abs(cosine))


@dataclass(frozen=True, slots=True)
class Convex:
    """The points p with normals @ p <= offsets: boxes, slanted car cabins; unit `normals` [k, 3], `offsets` [k]."""

    normals: Floats
    offsets: Floats
    centre: tuple[float, float, float]
    radius: float
    material: Material

    def cross(self, rays: Floats) -> Crossing:
        """Clip rays against one plane after the other (Cyrus & Beck, 1978)."""
        slope = rays @ self.normals.T
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = self.offsets / slope
        enter = np.where(slope < 0, distance, -np.inf)
        # a ray parallel to a plane and outside it never enters
        leave = np.where(slope > 0, distance, np.where((slope == 0) & (self.offsets < 0), -np.inf, np.inf))
        face = enter.argmax(axis=-1)[..., None]
        first = np.take_along_axis(enter, face, -1)[..., 0]
        return _crossing(first, leave.min(axis=-1), np.take_along_axis(slope, face, -1)[..., 0])


@dataclass(frozen=True, slots=True)
class Ellipsoid:
    """An upright ellipsoid of revolution: centre, horizontal and vertical semi-axis, metres."""

    centre: tuple[float, float, float]
    horizontal: float
    vertical: float
    material: Material

    @property
    def radius(self) -> float:
        """Return the radius of the bounding sphere."""
        return max(self.horizontal, self.vertical)

    def cross(self, rays: Floats) -> Crossing:
        """Solve the quadratic of the ray in coordinates in which the ellipsoid is the unit sphere."""
        scale = np.array([self.horizontal, self.horizontal, self.vertical])
        direction, middle = rays / scale, np.array(self.centre) / scale
        a, b = (direction**2).sum(-1), direction @ middle
        root = np.sqrt(np.maximum(b * b - a * (middle @ middle - 1), 0))
        enter, leave = (b - root) / a, (b + root) / a
        normal = (direction * enter[..., None] - middle) / scale
        cosine = (normal * rays).sum(-1) / np.linalg.norm(normal, axis=-1)
        return _crossing(np.where(root > 0, enter, np.inf), leave, cosine)


@dataclass(frozen=True, slots=True)
class Cylinder:
    """An upright cylinder from `bottom` to `top` around (x, y), metres."""

    x: float
    y: float
    bottom: float
    top: float
    girth: float
    material: Material

    @property
    def centre(self) -> tuple[float, float, float]:
        """Return the middle of the axis."""
        return self.x, self.y, (self.bottom + self.top) / 2

    @property
    def radius(self) -> float:
        """Return the radius of the bounding sphere."""
        return float(np.hypot(self.girth, (self.top - self.bottom) / 2))

    def cross(self, rays: Floats) -> Crossing:
        """Intersect the span within the round wall with the span between the two end planes."""
        with np.errstate(divide="ignore", invalid="ignore"):
            a = rays[..., 0] ** 2 + rays[..., 1] ** 2
            b = rays[..., 0] * self.x + rays[..., 1] * self.y
            root = np.sqrt(np.maximum(b * b - a * (self.x**2 + self.y**2 - self.girth**2), 0))
            wall = np.where(root > 0, (b - root) / a, np.inf)
            ends = np.sort(np.stack([self.bottom / rays[..., 2], self.top / rays[..., 2]]), axis=0)
        enter, leave = np.maximum(wall, ends[0]), np.minimum((b + root) / a, ends[1])
        with np.errstate(invalid="ignore"):
            side = (enter * a - b) / self.girth
        return _crossing(enter, leave, np.where(wall >= ends[0], np.nan_to_num(side), rays[..., 2]))


@dataclass(frozen=True, slots=True)
class Frame:
    """A local frame for building solids: origin in metres and heading in radians from +x; axes forward, left, up."""

    x: float
    y: float
    z: float
    heading: float

    def point(self, forward: float, left: float, up: float) -> tuple[float, float, float]:
        """Return a local point in world coordinates."""
        cos, sin = float(np.cos(self.heading)), float(np.sin(self.heading))
        return self.x + forward * cos - left * sin, self.y + forward * sin + left * cos, self.z + up

    def prism(
        self,
        base: tuple[float, float, float, float],
        roof: tuple[float, float, float, float],
        bottom: float,
        top: float,
        material: Material,
        cut: float = 0.0,
    ) -> Convex:
        """Return the solid between two level rectangles (rear, front, right, left) at heights `bottom` and `top`.

        `cut` metres are taken off the corners of the base, seen from above, at 45 degrees.
        """
        rise = top - bottom
        # each side plane holds a base edge and the matching roof edge: outward normal tilted by the inset over the rise
        signs = ((-1, 0), (1, 0), (0, -1), (0, 1))
        rows = [(u, v, (u + v) * (low - high) / rise) for (u, v), low, high in zip(signs, base, roof, strict=True)]
        normals = np.array([*rows, (0, 0, 1), (0, 0, -1)], np.float64)
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        held = np.array([(u * u * low, v * v * low, bottom) for (u, v), low in zip(signs, base, strict=True)])
        held = np.vstack([held, (0, 0, top), (0, 0, bottom)])
        if cut > 0:
            corners = [(u, v, base[(u + 1) // 2], base[2 + (v + 1) // 2]) for u in (-1, 1) for v in (-1, 1)]
            normals = np.vstack([normals, [(u * 0.5**0.5, v * 0.5**0.5, 0) for u, v, _, _ in corners]])
            held = np.vstack([held, [(x - u * cut, y, 0) for u, _, x, y in corners]])
        cos, sin = np.cos(self.heading), np.sin(self.heading)
        turn = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
        world = normals @ turn
        origin = np.array([self.x, self.y, self.z])
        offsets = (normals * held).sum(1) + world @ origin
        lows, highs = np.minimum(base, roof), np.maximum(base, roof)
        box = np.array([[lows[0], lows[2], bottom], [highs[1], highs[3], top]])
        return Convex(world, offsets, self.point(*box.mean(0)), float(np.linalg.norm(box[1] - box[0]) / 2), material)

    def block(
        self,
        length: float,
        width: float,
        bottom: float,
        top: float,
        material: Material,
        at: float = 0.0,
        cut: float = 0.0,
    ) -> Convex:
        """Return a box `length` along the heading around local forward position `at`, corners `cut` as in `prism`."""
        base = (at - length / 2, at + length / 2, -width / 2, width / 2)
        return self.prism(base, base, bottom, top, material, cut)


Bools = npt.NDArray[np.bool_]
ASPHALT, PAVING, PAINT, KERB = 0.36, 0.42, 0.8, 0.45
"""Reflectivity near 900 nm as a LiDAR scales it, chosen so that intensities resemble KITTI's (median about 0.3)."""


@dataclass(frozen=True, slots=True)
class Street:
    """A straight street along x: centre line y, half width of the carriageway, kerb height, slopes along x and y.

    `height` is that of the carriageway below the origin; `phase` shifts the dashes of the lane paint (metres); `loss`
    is the share of pulses that do not return, `rough` the standard deviation of the surface (metres), `bend` the
    curvature of hill or dip along x (1/m, height grows with bend x^2), `faint` the intensity at which half of the
    echoes are recorded as 0.  `crossing` is the centre (x) and half width of a crossing street, if any.
    """

    middle: float
    half_width: float
    kerb: float = 0.12
    slope: tuple[float, float] = (0.0, 0.0)
    height: float = -1.73
    phase: float = 0.0
    loss: float = 0.03
    rough: float = 0.0
    bend: float = 0.0
    faint: float = 0.0
    crossing: tuple[float, float] | None = None

    def level(self, x: float, y: float) -> float:
        """Return the height of the surface at (x, y), kerbs included."""
        raised = 0.0 if bool(self._flat(np.asarray(x), np.asarray(y))) else self.kerb
        return self.height + self.slope[0] * x + self.slope[1] * y + raised

    def cross(self, rays: Floats) -> tuple[Crossing, Floats]:
        """Return where rays from the origin meet the street, and the reflectivity there; the bend is ignored."""
        road, pavement = self._plane(rays, 0.0), self._plane(rays, self.kerb)
        road = np.where(self._on_road(rays, road), road, np.inf)
        pavement = np.where(self._on_road(rays, pavement), np.inf, pavement)
        edge = self._edge(rays)
        distance = np.minimum(np.minimum(road, pavement), edge)
        tilt = np.array([-self.slope[0], -self.slope[1], 1]) / np.hypot(1, np.hypot(*self.slope))
        cosine = np.where(distance == edge, np.abs(rays[..., 1]), np.abs(rays @ tilt))
        return Crossing(distance, distance, cosine), self._paint(rays, distance, distance == road, distance == edge)

    def _plane(self, rays: Floats, raised: float) -> Floats:
        fall = rays[..., 2] - rays[..., 0] * self.slope[0] - rays[..., 1] * self.slope[1]
        with np.errstate(divide="ignore"):
            distance = (self.height + raised) / fall
        return np.where(fall < 0, distance, np.inf)

    def _flat(self, x: Floats, y: Floats) -> Bools:
        """Return whether positions are on the carriageway or on the crossing street."""
        flat: Bools = np.abs(y - self.middle) <= self.half_width
        if self.crossing is not None:
            flat = flat | (np.abs(x - self.crossing[0]) <= self.crossing[1])
        return flat

    def _on_road(self, rays: Floats, distance: Floats) -> Bools:
        reach = np.where(np.isfinite(distance), distance, 0)
        return self._flat(rays[..., 0] * reach, rays[..., 1] * reach)

    def _edge(self, rays: Floats) -> Floats:
        """Return the distance to the kerb face on the ray's side, inf where the ray passes over or under it."""
        side = self.middle + np.sign(rays[..., 1]) * self.half_width
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = side / rays[..., 1]
            x, z = rays[..., 0] * distance, rays[..., 2] * distance
            rise = z - self.height - self.slope[0] * x - self.slope[1] * side
            met = (rise >= 0) & (rise <= self.kerb) & (distance > 0)
            if self.crossing is not None:
                met &= np.abs(x - self.crossing[0]) > self.crossing[1]
            return np.where(met, distance, np.inf)

    def _paint(self, rays: Floats, distance: Floats, road: Bools, edge: Bools) -> Floats:
        """Return the reflectivity where rays end: 4 m dashes every 10 m on the centre line, lines at the sides."""
        reach = np.where(np.isfinite(distance), distance, 0)
        x, across = rays[..., 0] * reach + self.phase, np.abs(rays[..., 1] * reach - self.middle)
        painted = ((across < 0.08) & (x % 10 < 4)) | (np.abs(across - self.half_width + 0.4) < 0.08)
        return np.where(edge, KERB, np.where(road, np.where(painted, PAINT, ASPHALT), PAVING))


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
