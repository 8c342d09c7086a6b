"""The street surface: carriageway, adjacent pavements or verges, kerbs, lane paint, a crossing street."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from socsched.models.lidar.solids import Crossing, Floats

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
