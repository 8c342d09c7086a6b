"""Helpers shared by all detector decoders: scores from logits, and selection of the best without a full sort."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from socsched.models.elementary import exponential


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
