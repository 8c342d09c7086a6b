"""`socsched study sharing`: compare ways to share an accelerator, on a pipeline or on measured profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from socsched.cli.options import NameOrPath, Numbers, Quantity, mode, output_folder, platform
from socsched.cli.output import Output, ready_to_write, terminal_width
from socsched.cli.verbs import decorated, output_options

if TYPE_CHECKING:
    from socsched_literature.sharing.profile import ShareLaw
    from socsched_literature.studies.sharing import Source


@click.command("sharing", short_help="Compare ways to share an accelerator.")
@click.argument("pipeline", type=NameOrPath("pipelines"), required=False)
@decorated(platform=platform(required=False))
@decorated(mode=mode())
@click.option("--engine", default="gpu", show_default=True, help="The engine of the platform that is shared.")
@click.option(
    "--profiles", type=click.Path(path_type=Path, dir_okay=False), help="Instead of PIPELINE: CSV of measured networks."
)
@click.option("--constants", type=click.Path(path_type=Path, dir_okay=False), help="CSV of interference constants.")
@click.option("--rate", "rates", multiple=True, metavar="NETWORK=1/S", help="With --profiles: requests a second.")
@click.option(
    "--law", type=click.Choice(["amdahl", "fixed", "fill"]), default="fixed", show_default=True,
    help="With --profiles: how latency grows on a share.",
)  # fmt: skip
@click.option("--systems", metavar="NAME[,...]", help="Ways to share; all of them by default.")
@click.option("--loads", type=Numbers(), default="0.5,1,2", show_default=True, help="Factors on the request rates.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Runs of each system and load.")
@click.option("--duration", type=Quantity("duration"), default="10s", show_default=True, help="Length of each run.")
@click.option(
    "--devices", type=click.IntRange(1, 1000), default=1, show_default=True, help="Number of identical accelerators."
)
@click.option(
    "--mechanism",
    default="mps",
    show_default=True,
    help="Mechanism that partitions the accelerator: mps or green-contexts.",
)
@click.option("--mig", default="", metavar="GPU", help="Geometry for MIG-Serving, such as a100-40gb or h100-80gb.")
@decorated(folder=output_folder())
@output_options
@click.pass_obj
def command(
    output: Output,
    pipeline: str | None,
    platform: str | None,
    mode: str | None,
    engine: str,
    profiles: Path | None,
    constants: Path | None,
    rates: tuple[str, ...],
    law: ShareLaw,
    systems: str | None,
    loads: tuple[float, ...],
    seeds: int,
    duration: int,
    devices: int,
    mechanism: str,
    mig: str,
    folder: Path | None,
) -> int:
    """Serve a workload on accelerators shared in several ways and show the requests answered in time.

    The stages of PIPELINE that --engine of a platform can run are requested, and due, once per period, in --mode or the
    default one; with --profiles, networks of a CSV file at given rates.  Load 2 doubles the request rates.  -o
    writes sharing.json and sharing.svg.  Exit code 0: compared.
    """
    from socsched.errors import EXIT_OK, UsageError
    from socsched_literature.sharing.deployment import mechanism as known_mechanism
    from socsched_literature.sharing.mig_serving import geometry
    from socsched_literature.studies import sharing
    from socsched_literature.studies.saved import save_study

    if (pipeline is None) == (profiles is None):
        raise UsageError("expected PIPELINE with -p PLATFORM, or --profiles", "see socsched study sharing --help")
    if known_mechanism(mechanism).partition != "logical":
        raise UsageError(
            f"{mechanism} cannot make parts of arbitrary size", "use mps or green-contexts; --mig names a geometry"
        )
    if mig:
        geometry(mig)
    if profiles is None and (constants or rates):
        raise UsageError("--constants and --rate go with --profiles", "the rates of a pipeline follow from its periods")
    ready_to_write(folder=folder)
    if profiles is not None:
        source = _measured(profiles, constants, rates, law)
    else:
        source = _planned(str(pipeline), platform, mode, engine)
    names = sharing.SYSTEMS if systems is None else tuple(name.strip() for name in systems.split(",") if name.strip())
    setting = sharing.Setting(devices, mechanism, mig)
    rows = sharing.study(source, names, loads, seeds, duration, setting, output.note)
    if folder:
        picture = sharing.figure(source, rows)
        for path in save_study(folder, "sharing", sharing.document(source, rows), picture):
            output.note(f"wrote {path}")

    def show() -> None:
        from socsched.reporting.terminal import console

        console(terminal_width()).print(sharing.view(source, rows))

    output.result(sharing.document(source, rows), show)
    return EXIT_OK


def _measured(profiles: Path, constants: Path | None, rates: tuple[str, ...], law: ShareLaw) -> Source:
    from socsched.errors import UsageError
    from socsched.units import parse_number
    from socsched_literature.studies import sharing

    asked: dict[str, float] = {}
    for text in rates:
        name, _, number = text.partition("=")
        try:
            asked[name] = parse_number(number)
        except ValueError:
            raise UsageError(f"--rate {text}: expected NETWORK=1/S, such as resnet50=60") from None
    return sharing.from_profiles(profiles, constants, asked, law)


def _planned(pipeline: str, platform: str | None, mode: str | None, engine: str) -> Source:
    from socsched.api.planning import get_mode
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.errors import UsageError
    from socsched_literature.studies import sharing

    if platform is None:
        raise UsageError("a pipeline needs a platform", "name one with -p")
    board = get_platform(platform)
    return sharing.from_pipeline(
        get_pipeline(pipeline), board, get_mode(board, None if mode == "auto" else mode), engine
    )
