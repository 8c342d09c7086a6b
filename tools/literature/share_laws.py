"""How far laws of shares (`literature.sharing.profile`) are from what was measured on a GPU, and models of neighbours.

    python -m tools.literature.share_laws

Needs no GPU: it reads the file in literature/sharing that gpu_shares.py wrote.  Mean and worst error of the
time on a share relative to the measured one, over all networks, batches with counters and shares below the whole; f of
the laws is once the occupancy of SMs that have something to run (as the profiles that gpulet's authors published count
it), once that of all SMs, and with the published profiles of a 3080 (tests/data/gpulet).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import fmean, median

from socsched_literature.sharing import profile as measured
from socsched_literature.sharing.profile import (
    Interference,
    Profile,
    SharedBandwidth,
    ShareLaw,
    read_constants,
    read_profiles,
)
from tools.literature.claims._published import data

LAWS: tuple[ShareLaw, ...] = ("amdahl", "fixed", "fill", "measured")


def fills(found: measured.Measurements) -> Iterator[tuple[str, list[Profile]]]:
    """Yield each definition of f, and the measured networks with it."""
    own = measured.profiles()
    yield "occupancy of SMs in use", own
    everywhere = []
    for one in own:
        counters = found.counters[one.name]
        samples = tuple(
            replace(each, fill=min(1.0, counters[each.batch].achieved_of_all / counters[each.batch].theoretical))
            for each in one.samples
        )
        everywhere.append(replace(one, samples=samples))
    yield "occupancy of all SMs", everywhere
    yield (
        "published for a 3080, t0 too",
        [
            replace(one, samples=tuple(each for each in one.samples if each.batch in found.counters[one.name]))
            for one in read_profiles(data("gpulet", "3080_UTIL.CSV"))
            if one.name in found.counters
        ],
    )


def errors(found: measured.Measurements, profiles: list[Profile], law: ShareLaw) -> list[float]:
    """Return (predicted / measured - 1) of every point below the whole; shares are not rounded to percent."""
    off = []
    for profile in profiles:
        chosen = replace(profile, law=law)
        for sample in profile.samples:
            points = found.medians(profile.name, sample.batch)
            off += [
                chosen.stretched(sample, share) / sample.latency_ns * points[-1][1] / ms - 1
                for share, ms in points[:-1]
            ]
    return off


def neighbours(found: measured.Measurements) -> Iterator[tuple[str, Callable[[measured.Pair], float]]]:
    """Yield models of neighbours, each a function pair -> predicted factor."""

    def by(model: Interference) -> Callable[[measured.Pair], float]:
        return lambda pair: model.factor(
            measured.running(pair.me, pair.share), [measured.running(pair.you, pair.beside)]
        )

    yield "none", lambda pair: 1.0
    yield "bandwidth shared in proportion", by(SharedBandwidth())
    for gpu in ("2080ti", "3080"):
        constants = read_constants(data("gpulet", f"{gpu}_INT_MODEL_CONSTANT.CSV"))
        yield f"gpulet's constants of a {gpu}", by(constants)
    yield "its constants by least squares", by(measured.neighbours())
    without = {
        name: measured.neighbours([pair for pair in found.pairs if name not in (pair.me[0], pair.you[0])])
        for name in {pair.me[0] for pair in found.pairs}
    }
    yield "the same, me left out of the fit", lambda pair: by(without[pair.me[0]])(pair)


def main() -> int:
    """Print errors."""
    found = measured.measurements()
    print({key: found.source[key] for key in ("name", "date", "torch", "driver_version", "runs")})
    fit, between = measured.fit_errors(), measured.left_out_errors()
    print(f"the curves at {len(fit)} measured points: mean error {fmean(fit):.2%}, worst {max(fit):.1%}")
    print(f"between points (each left out in turn): mean {fmean(between):.1%}, worst {max(between):.1%}")
    again = [abs(times[f"{found.whole} again"][0] / times[str(found.whole)][0] - 1)
             for each in found.ms.values() for times in each.values()]  # fmt: skip
    print(f"the whole GPU measured twice: mean difference {fmean(again):.2%}, worst {max(again):.1%}")
    for what, profiles in fills(found):
        for law in LAWS:
            off = errors(found, profiles, law)
            sizes = [abs(one) for one in off]
            print(
                f"{what:32}{law:10}n {len(off):4}  mean error {fmean(sizes):6.1%}  median {median(sizes):6.1%}"
                f"  worst {max(off, key=abs):+7.1%}  bias {fmean(off):+6.1%}"
            )
    slower = [pair.together[0] / pair.alone[0] for pair in found.pairs]
    print(
        f"with a co-runner, {len(slower)} cases: median {median(slower):.3f}, mean {fmean(slower):.3f}, "
        f"most {max(slower):.3f}"
    )
    for title, model in neighbours(found):
        off = [model(pair) / one - 1 for pair, one in zip(found.pairs, slower, strict=True)]
        print(f"  {title:32} mean error {fmean(map(abs, off)):.1%}, worst {max(off, key=abs):+.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
