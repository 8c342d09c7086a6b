"""Shapes a LiDAR ray can meet; each computes where a bundle of rays from the origin enters and leaves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

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
