"""Distribution of a value's magnitudes, and the eight-bit step of least error."""

from __future__ import annotations

import numpy as np

from socsched.compiler.quantize.fixed_point import Array, Scale

BINS = 4096
_CANDIDATES = 128
_SMALLEST = 1 / 64
"""Least clipping bound tried, as a share of the largest magnitude."""


class Histogram:
    """Counts of magnitudes other than zero in equal bins from 0; the range doubles when larger ones arrive."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.top, self.largest, self.negative = 0.0, 0.0, False

    def add(self, array: Array) -> None:
        """Count all finite elements of an array."""
        flat = np.asarray(array, np.float32).reshape(-1)
        flat = flat[flat != 0]
        flat = flat[np.isfinite(flat)]
        if not flat.size:
            return
        self.negative |= bool(flat.min() < 0)
        magnitudes = np.abs(flat)
        self.largest = max(self.largest, float(magnitudes.max()))
        if not self.top:
            self.top = self.largest
        while self.largest > self.top:
            self.counts[: BINS // 2] = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts[BINS // 2 :] = 0
            self.top *= 2
        index = np.minimum(magnitudes * np.float32(BINS / self.top), BINS - 1).astype(np.int32)
        self.counts += np.bincount(index, minlength=BINS)

    def scale(self, signed: bool | None = None) -> Scale:
        """Return the scale of least squared error; unsigned unless a negative element was seen or `signed` is set.

        A bound clips elements beyond it (error: the excess) and rounds the rest (error: step^2 / 12 on average); the
        candidates are bounds between 1/64 of the largest magnitude and all of it.  Zero is always exact.
        """
        signed = self.negative if signed is None else signed
        levels = 127 if signed else 255
        if not self.largest:
            return Scale(1.0 / levels, signed)
        centres = (np.arange(BINS) + 0.5) * (self.top / BINS)
        best, least = self.largest, np.inf
        for bound in np.geomspace(self.largest * _SMALLEST, self.largest, _CANDIDATES):
            excess = np.maximum(np.minimum(centres, self.largest) - bound, 0)
            error = float((self.counts * np.where(excess > 0, excess**2, (bound / levels) ** 2 / 12)).sum())
            if error < least:
                best, least = float(bound), error
        return Scale(best / levels, signed)
