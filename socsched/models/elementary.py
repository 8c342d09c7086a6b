"""Elementary functions made of IEEE 754's exactly rounded operations alone: the same bits on every machine.

numpy's own depend on the processor's vector units and the C library's on its version, by a unit in the last place.  C
code of the same operations (elementary.h of compiler/targets/gpu_functions) gives the same results, so that a
threshold or a tie falls the same way everywhere.  Errors are below two units in the last place of float64 for arguments
a detector meets.  All decoders take their scores from here.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_LN2 = (float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33"))
"""ln 2 in two parts; multiples of the first below 2^11 are exact."""
_QUARTER = (
    float.fromhex("0x1.921fb54400000p+0"),
    float.fromhex("0x1.0b4611a600000p-34"),
    float.fromhex("0x1.3198a2e037073p-69"),
)
"""pi / 2 in three parts; multiples of the first two below 2^20 are exact."""
_REDUCED = 1e5
"""Angles beyond are first reduced by the remainder of a rounded 2 pi, which is exact but for that rounding."""
_OCTANT = 0.4142135623730951
"""tan(pi / 8): above, the arctangent's argument is turned by pi / 4."""
_EXP = [1 / math.factorial(n) for n in range(14)]
_SIN = [(-1) ** n / math.factorial(2 * n + 1) for n in range(9)]
_COS = [(-1) ** n / math.factorial(2 * n) for n in range(9)]
_ARCTAN = [(-1) ** n / (2 * n + 1) for n in range(17)]
"""Taylor series, long enough for float64 within the reduced range (the last for float32: 4e-14)."""


def _series(factors: list[float], x: Floats) -> Floats:
    total = np.full_like(x, factors[-1])
    for factor in factors[-2::-1]:
        total = total * x + factor
    return total


def exponential(x: npt.ArrayLike) -> Floats:
    """Return e to the power of `x`; infinite above 710, 0 below -746, NaN for NaN."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        held = np.clip(x, -746.0, 710.0)
        whole = np.rint(held * _LOG2_E)
        rest = (held - whole * _LN2[0]) - whole * _LN2[1]
        power = np.ldexp(_series(_EXP, rest), np.nan_to_num(whole).astype(np.int32))
    result: Floats = np.where(x > 710, np.inf, np.where(x < -746, 0.0, power))
    return result


def sine_cosine(x: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return sine and cosine of finite angles `x` (rad)."""
    x = np.asarray(x, np.float64)
    x = np.where(np.abs(x) > _REDUCED, np.fmod(x, 2 * math.pi), x)
    quarters = np.rint(x * float.fromhex("0x1.45f306dc9c883p-1"))
    rest = ((x - quarters * _QUARTER[0]) - quarters * _QUARTER[1]) - quarters * _QUARTER[2]
    square = rest * rest
    sine, cosine = rest * _series(_SIN, square), _series(_COS, square)
    turn = quarters.astype(np.int64) & 3
    odd = (turn & 1) == 1
    sine, cosine = np.where(odd, cosine, sine), np.where(odd, sine, cosine)
    return np.where(turn & 2, -sine, sine), np.where((turn == 1) | (turn == 2), -cosine, cosine)


def angle_of(y: npt.ArrayLike, x: npt.ArrayLike) -> Floats:
    """Return the angle (rad) of the vector `x`, `y`, 0 for the origin; accurate to 4e-14."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    ax, ay = np.abs(x), np.abs(y)
    large, small = np.where(ax > ay, ax, ay), np.where(ax > ay, ay, ax)
    with np.errstate(all="ignore"):
        ratio = np.where(small == large, np.where(large > 0, 1.0, 0.0), small / large)
        turned = ratio > _OCTANT
        ratio = np.where(turned, (ratio - 1) / (ratio + 1), ratio)
        angle = np.where(turned, math.pi / 4, 0.0) + ratio * _series(_ARCTAN, ratio * ratio)
    angle = np.where(ay > ax, math.pi / 2 - angle, angle)
    angle = np.where(x < 0, math.pi - angle, angle)
    signed: Floats = np.copysign(angle, y)
    return signed


def length_of(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the lengths of the vectors `x`, `y` in float32, squared and added in float64."""
    wide = [part.astype(np.float64) for part in (x, y)]
    with np.errstate(all="ignore"):
        return np.sqrt(wide[0] * wide[0] + wide[1] * wide[1]).astype(np.float32)


def sigmoid(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return 1 / (1 + exp(-logits)) in double precision; 0 and 1 where that over- or underflows."""
    scores: npt.NDArray[np.float64] = 1 / (1 + exponential(-logits.astype(np.float64)))
    return scores


def logit(score: float) -> float:
    """Return the logit whose sigmoid is `score`, infinite for 1."""
    if score >= 1:
        return math.inf
    # below -745 the score is 0 in double precision, which is not above a threshold of 0
    return math.log(score / (1 - score)) if score > 0 else -745.0


def kth_largest(values: npt.NDArray[np.floating], floor: float, k: int) -> float:
    """Return the k-th largest of the values not below `floor`, -inf when there are fewer."""
    above = values[values >= floor]
    return float(np.partition(above, len(above) - k)[len(above) - k]) if len(above) >= k else -math.inf
