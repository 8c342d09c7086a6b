"""Objects in a street, as solids built on a frame whose origin lies on the ground."""

from __future__ import annotations

import numpy as np

from tools.train.lidar import Cylinder, Ellipsoid, Frame, Material, Solid

GLASS = Material(0.12, loss=0.6)
RUBBER = Material(0.06, loss=0.2)
CLOTH = Material(0.35)
DARK_CLOTH = Material(0.15)
SKIN = Material(0.5)
METAL = Material(0.35, loss=0.05)
SIGN = Material(1.5)
REFLECTOR = Material(1.6)
SPOKES = Material(0.25, loss=0.7)
BARK = Material(0.3)
LEAVES = Material(0.4, loss=0.1, depth=0.6)
FACADE = Material(0.35, loss=0.08)
FENCE = Material(0.3, loss=0.25)
CARS = (
    # cabin's rear and front, roof's insets there, height of the bonnet: saloon, hatchback, estate, off-roader, minivan
    (-0.46, 0.24, 0.16, 0.16, 0.58),
    (-0.49, 0.22, 0.06, 0.17, 0.60),
    (-0.49, 0.22, 0.04, 0.15, 0.58),
    (-0.49, 0.20, 0.04, 0.10, 0.62),
    (-0.49, 0.34, 0.03, 0.19, 0.60),
)
"""Body dimensions as shares of length (of height for the bonnet)."""


def car(frame: Frame, width: float, length: float, height: float, look: float) -> list[Solid]:
    """Return a car within width x length x height metres: body, slanted cabin of glass, roof, wheels.

    `look` from 0 to 1 chooses body and paint; dark paint sends some pulses past the LiDAR.
    """
    rear, front, back, brow, bonnet = CARS[int(look * 997) % len(CARS)]
    paint = 0.06 + 0.6 * (look * 61 % 1)
    lacquer = Material(paint, loss=0.05 + 0.35 * max(0.0, 0.25 - paint) / 0.25)
    glass = Material(GLASS.reflectivity, loss=0.4 + 0.5 * (look * 131 % 1))
    body, side, top = bonnet * height, 0.47 * width, 0.38 * width
    cabin = (rear * length, front * length, -side, side)
    roof = ((rear + back) * length, (front - brow) * length, -top, top)
    sill, cut = 0.14 * height, 0.12 * width + 0.12 * width * (look * 37 % 1)
    belt = (-length / 2, length / 2, -width / 2, width / 2)
    waist = (-0.49 * length, 0.49 * length, -0.46 * width, 0.46 * width)
    return [
        *_lights(frame, width, length, height, look),
        frame.block(length, width, sill, 0.4 * height, lacquer, cut=cut),
        frame.prism(belt, waist, 0.4 * height, body, lacquer, cut),
        frame.prism(cabin, roof, body, 0.93 * height, glass, 0.1 * width),
        frame.prism(roof, roof, 0.93 * height, height, lacquer, 0.1 * width),
        *(frame.block(0.6, 0.98 * width, 0.0, 0.4 * height, RUBBER, at=axle * length) for axle in (-0.32, 0.32)),
    ]


def _lights(frame: Frame, width: float, length: float, height: float, look: float) -> list[Solid]:
    """Return number plates and lamps, which are retroreflective."""
    low, lamp = (0.24 + 0.2 * (look * 17 % 1)) * height, (0.4 + 0.14 * (look * 29 % 1)) * height
    found: list[Solid] = []
    for end in (-1, 1):
        if look * (83 + end) % 1 < 0.75:
            found.append(frame.block(0.03, 0.5, low, low + 0.11, REFLECTOR, at=end * (length / 2 - 0.012)))
        for side in (-1, 1):
            x, y, z = frame.point(end * (length / 2 - 0.13), side * (0.5 * width - 0.17), lamp)
            found.append(Ellipsoid((x, y, z), 0.13, 0.09, REFLECTOR))
    return found if look * 211 % 1 < 0.85 else found[:1]


def van(frame: Frame, width: float, length: float, height: float, look: float) -> list[Solid]:
    """Return a delivery van: box body, short slanted nose, wheels."""
    lacquer, nose = Material(0.2 + 0.5 * look, loss=0.05), (0.28 * length, length / 2, -width / 2, width / 2)
    screen = (0.28 * length, 0.34 * length, -0.44 * width, 0.44 * width)
    return [
        frame.block(0.8 * length, width, 0.12 * height, height, lacquer, at=-0.1 * length, cut=0.05),
        frame.prism(nose, nose, 0.12 * height, 0.5 * height, lacquer, 0.15),
        frame.prism(nose, screen, 0.5 * height, 0.93 * height, GLASS, 0.1),
        *(frame.block(0.7, 0.98 * width, 0.0, 0.3 * height, RUBBER, at=axle * length) for axle in (-0.33, 0.33)),
    ]


def truck(frame: Frame, width: float, length: float, height: float, look: float) -> list[Solid]:
    """Return a lorry or bus: cab, load above the wheels."""
    paint = Material(0.2 + 0.5 * look, loss=0.05)
    return [
        frame.block(1.9, width, 0.4, 0.85 * height, paint, at=length / 2 - 0.95, cut=0.1),
        frame.block(length - 2.2, width, 0.25 * height, height, paint, at=-1.1),
        *(frame.block(1.0, 0.96 * width, 0.0, 1.0, RUBBER, at=axle * length) for axle in (-0.35, -0.25, 0.36)),
    ]


def pedestrian(frame: Frame, width: float, length: float, height: float, look: float) -> list[Solid]:
    """Return a person within width x length x height metres, legs apart along the heading, arms at the sides."""
    cloth = DARK_CLOTH if look * 97 % 1 < 0.4 else CLOTH
    step, side = length / 2 - 0.12, width / 2 - 0.06
    legs = [frame.point(step, 0.09, 0), frame.point(-step, -0.09, 0)]
    arms = [frame.point(-0.6 * step, side, 0), frame.point(0.6 * step, -side, 0)]
    return [
        *(Cylinder(x, y, z, z + 0.3 * height, 0.08, cloth) for x, y, z in legs),
        Cylinder(*frame.point(0, 0, 0)[:2], frame.z + 0.25 * height, frame.z + 0.5 * height, 0.15, cloth),
        *(Cylinder(x, y, z + 0.42 * height, z + 0.8 * height, 0.06, CLOTH) for x, y, z in arms),
        Ellipsoid(frame.point(0, 0, 0.65 * height), 0.19, 0.22 * height, CLOTH),
        Ellipsoid(frame.point(0, 0, 0.92 * height), 0.1, 0.08 * height, SKIN),
    ]


def cyclist(frame: Frame, width: float, length: float, height: float, look: float) -> list[Solid]:
    """Return a rider on a bicycle within width x length x height metres, handlebars as wide as the box."""
    wheel, cloth = 0.19 * length, DARK_CLOTH if look * 97 % 1 < 0.4 else CLOTH
    seat, lean = frame.point(-0.08 * length, 0, 0), 0.1 + 0.1 * look
    axles = wheel - length / 2, length / 2 - wheel
    return [
        *(frame.block(2 * wheel, 0.06, 0.0, 2 * wheel, SPOKES, at=axle) for axle in axles),
        frame.block(0.5 * length, 0.06, wheel, 0.5 * height, SPOKES),
        frame.block(0.08, width, 0.54 * height, 0.6 * height, METAL, at=0.2 * length),
        *([frame.block(0.04, 0.12, 0.3 * height, 0.36 * height, REFLECTOR, at=-0.34 * length)] if look < 0.7 else []),
        Cylinder(*seat[:2], seat[2] + 0.18 * height, seat[2] + 0.55 * height, 0.14, DARK_CLOTH),
        Ellipsoid(frame.point(-0.08 * length + lean, 0, 0.7 * height), 0.22, 0.2 * height, cloth),
        Ellipsoid(frame.point(-0.08 * length + 2 * lean, 0, 0.92 * height), 0.1, 0.08 * height, SKIN),
    ]


def tree(frame: Frame, trunk: float, crown: float, height: float) -> list[Solid]:
    """Return a tree: trunk of radius `trunk`, crown of radius `crown` whose top is `height` metres up."""
    tall = 0.35 * height
    return [
        Cylinder(frame.x, frame.y, frame.z, frame.z + height - tall, trunk, BARK),
        Ellipsoid(frame.point(0, 0, height - tall), crown, tall, LEAVES),
    ]


def bush(frame: Frame, radius: float, height: float) -> list[Solid]:
    """Return a round bush."""
    return [Ellipsoid(frame.point(0, 0, height / 2), radius, height / 2, LEAVES)]


def thicket(frame: Frame, length: float, height: float, look: float) -> list[Solid]:
    """Return an overgrown strip along the heading: bushes of all sizes up to `height`, selected by `look` (0 to 1)."""
    rng = np.random.default_rng(int(look * 2**32))
    grown: list[Solid] = []
    for forward in np.arange(-length / 2, length / 2, 1.4):
        wide, tall = rng.uniform(0.5, 1.5), height * rng.uniform(0.25, 1.0)
        at = frame.point(float(forward + rng.uniform(-0.7, 0.7)), float(rng.normal(0, 0.9)), tall / 2)
        grown.append(Ellipsoid(at, float(wide), float(tall) / 2, LEAVES))
    return grown


def pole(frame: Frame, height: float, girth: float = 0.09) -> list[Solid]:
    """Return a lamp post or bollard."""
    return [Cylinder(frame.x, frame.y, frame.z, frame.z + height, girth, METAL)]


def sign(frame: Frame, height: float, width: float, board: float) -> list[Solid]:
    """Return a sign post whose board, `width` across and `board` high, ends at `height`."""
    return [
        Cylinder(frame.x, frame.y, frame.z, frame.z + height, 0.04, METAL),
        frame.block(0.03, width, height - board, height, SIGN),
    ]


def bin_(frame: Frame, girth: float, height: float) -> list[Solid]:
    """Return a round bin, post box or advertising pillar of radius `girth`."""
    return [Cylinder(frame.x, frame.y, frame.z, frame.z + height, girth, METAL)]


def cabinet(frame: Frame, length: float, width: float, height: float) -> list[Solid]:
    """Return a box on the ground: a switch cabinet, container or bench."""
    return [frame.block(length, width, 0.0, height, FACADE)]


def house(frame: Frame, length: float, depth: float, height: float, look: float = 0.5) -> list[Solid]:
    """Return a house with bays, steps and columns on its fronts, `depth` / 2 metres to either side of the frame."""
    built: list[Solid] = [frame.block(length, depth, -0.5, height, FACADE)]
    rng = np.random.default_rng(int(look * 2**32))
    for _ in range(int(rng.integers(1, 5))):
        wide, out, tall = rng.uniform(0.3, 3.0), rng.uniform(0.1, 0.9), rng.choice((0.5, 1.0, 1.5, 2.5, 5.0))
        at = float(rng.uniform(-0.5, 0.5) * (length - wide))
        low = float(rng.choice((-0.5, -0.5, 2.2)))
        built.append(frame.block(float(wide), depth + 2 * float(out), low, max(low, 0.0) + float(tall), FACADE, at=at))
    return built


def fence(frame: Frame, length: float, height: float) -> list[Solid]:
    """Return a garden fence along the heading."""
    return [frame.block(length, 0.08, -0.2, height, FENCE)]


def wall(frame: Frame, length: float, height: float) -> list[Solid]:
    """Return a garden wall along the heading."""
    return [frame.block(length, 0.25, -0.2, height, FACADE)]


def rail(frame: Frame, length: float) -> list[Solid]:
    """Return a guard rail along the heading, on posts."""
    posts = range(-int(length / 8), int(length / 8) + 1)
    return [
        frame.block(length, 0.08, 0.45, 0.75, METAL),
        *(frame.block(0.1, 0.1, 0.0, 0.45, METAL, at=4.0 * post) for post in posts),
    ]


def hedge(frame: Frame, length: float, width: float, height: float) -> list[Solid]:
    """Return a clipped hedge along the heading."""
    return [frame.block(length, width, -0.2, height, LEAVES)]
