"""Delays by a path's own sources in closed form, against a sum over their frames."""

from __future__ import annotations

from random import Random

import pytest

from socsched.schedulability.path_windows import NEVER, Rival, _at, frames


def rival(draw: Random) -> Rival:
    """Return a random rival with small times."""
    latest = draw.choice((NEVER, -NEVER, draw.randint(-30, 30)))
    blocks = tuple((run, draw.randint(1, 9), draw.choice((-NEVER, draw.randint(-5, 25)))) for run in range(2))
    wcet = draw.randint(0, 12)
    return Rival(
        "r", wcet, draw.randint(0, 2), draw.randint(1, 15), draw.randint(-30, 30), wcet + draw.randint(0, 40), latest,
        blocks[: draw.randint(0, 2)], draw.random() < 0.4, draw.choice((None, 0, 1, -1)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_a_delay_is_the_sum_over_the_frames_of_every_rival(seed: int) -> None:
    draw = Random(seed)
    for _ in range(200):
        rivals, window = [rival(draw) for _ in range(draw.randint(1, 3))], draw.randint(1, 60)
        total, blocked = 0, [0, 0]
        for each in rivals:
            for _, at in frames(each, 0, window):
                if at <= each.latest:
                    total += min(each.wcet, at + each.finish, window - at) + each.switch
                else:
                    for run, time, begin in each.blocks:
                        blocked[run] = max(blocked[run], time if at < begin else 0)
        sets = [0, blocked[0], blocked[1], sum(blocked)]
        assert _at(rivals, window, 2) == [total + value for value in sets], (rivals, window)
        assert _at(rivals, window, 2, counted=False) == sets, (rivals, window)
        assert _at(rivals, window, 0) == [total]
