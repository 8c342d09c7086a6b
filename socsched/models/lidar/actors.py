"""What stands in a street, as solids built on a frame whose origin lies on the ground."""

from __future__ import annotations

from socsched.models.lidar.solids import Cylinder, Ellipsoid, Frame, Material, Solid

GLASS = Material(0.12, loss=0.6)
RUBBER = Material(0.06, loss=0.2)
CLOTH = Material(0.35)
SKIN = Material(0.5)
METAL = Material(0.35, loss=0.05)
SPOKES = Material(0.25, loss=0.7)
BARK = Material(0.3)
LEAVES = Material(0.4, loss=0.1, depth=0.8)
FACADE = Material(0.35, loss=0.08)
FENCE = Material(0.3, loss=0.25)


def car(frame: Frame, width: float, length: float, height: float, paint: float) -> list[Solid]:
    """Return a saloon car within width x length x height metres: body, slanted cabin of glass, roof, wheels."""
    body, lacquer = 0.55 * height, Material(paint, loss=0.1)
    rear, front, side, top = -0.46 * length, 0.24 * length, 0.46 * width, 0.40 * width
    cabin = (rear, front, -side, side)
    roof = (rear + 0.09 * length, front - 0.13 * length, -top, top)
    return [
        frame.block(length, width, 0.16 * height, body, lacquer),
        frame.prism(cabin, roof, body, 0.94 * height, GLASS),
        frame.prism(roof, roof, 0.94 * height, height, lacquer),
        *(frame.block(0.6, 0.98 * width, 0.0, 0.25 * height, RUBBER, at=axle * length) for axle in (-0.32, 0.32)),
    ]


def pedestrian(frame: Frame, height: float, stride: float) -> list[Solid]:
    """Return a person of `height` metres with the legs `stride` metres apart along the heading."""
    legs = [frame.point(step, left, 0) for step, left in ((stride / 2, 0.1), (-stride / 2, -0.1))]
    return [
        *(Cylinder(x, y, z, z + 0.48 * height, 0.08, CLOTH) for x, y, z in legs),
        Ellipsoid(frame.point(0, 0, 0.65 * height), 0.21, 0.22 * height, CLOTH),
        Ellipsoid(frame.point(0, 0, 0.93 * height), 0.09, 0.07 * height, SKIN),
    ]


def cyclist(frame: Frame, length: float, height: float) -> list[Solid]:
    """Return a rider on a bicycle `length` metres long, `height` metres to the top of the head."""
    wheel = 0.19 * length
    x, y, z = frame.point(0, 0, 0)
    axles = wheel - length / 2, length / 2 - wheel
    return [
        *(frame.block(2 * wheel, 0.06, 0.0, 2 * wheel, SPOKES, at=axle) for axle in axles),
        frame.block(0.5 * length, 0.06, wheel, 0.5 * height, SPOKES),
        Cylinder(x, y, z + 0.2 * height, z + 0.55 * height, 0.14, CLOTH),
        Ellipsoid(frame.point(0.1, 0, 0.7 * height), 0.22, 0.2 * height, CLOTH),
        Ellipsoid(frame.point(0.2, 0, 0.93 * height), 0.1, 0.07 * height, SKIN),
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


def pole(frame: Frame, height: float, girth: float = 0.09) -> list[Solid]:
    """Return a lamp post or sign post."""
    return [Cylinder(frame.x, frame.y, frame.z, frame.z + height, girth, METAL)]


def house(frame: Frame, length: float, depth: float, height: float) -> list[Solid]:
    """Return a house with a bay, its front `depth` / 2 metres to one side of the frame's line."""
    return [
        frame.block(length, depth, -0.5, height, FACADE),
        frame.block(0.25 * length, depth + 1.2, -0.5, 0.5 * height, FACADE, at=0.2 * length),
    ]


def fence(frame: Frame, length: float, height: float) -> list[Solid]:
    """Return a garden fence along the heading."""
    return [frame.block(length, 0.08, -0.2, height, FENCE)]


def hedge(frame: Frame, length: float, width: float, height: float) -> list[Solid]:
    """Return a clipped hedge along the heading."""
    return [frame.block(length, width, -0.2, height, LEAVES)]
