"""Import of other tools' profiles, models and traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform
    from socsched.graph.network import Network
    from socsched.interchange.costs import Imported


def import_profile(
    files: Sequence[str | Path],
    platform: str | Path | Platform,
    *,
    pipeline: str | Path | Pipeline | None = None,
    mode: str = "",
    precision: str = "",
    engines: Mapping[str, str] | None = None,
    stages: Mapping[str, str] | None = None,
    skip: int = 0,
) -> Imported:
    """Return measured costs from profiles of other tools.

    `engines`: engine kind or provider of the source -> engine of the platform; `stages`: file stem or range -> stage.
    `mode` and `precision` are needed where the files do not state them (without a mode the default one is assumed).
    `pipeline`: its networks' layers expand ranges and give the cuts.  `skip`: first jobs of each recording left out.
    Raises InputError for files that cannot be used, UsageError for choices that are missing or do not fit.
    """
    from socsched.api.loading import load_pipeline, load_platform
    from socsched.interchange import costs

    networks: tuple[Network, ...] = ()
    if pipeline is not None:
        from socsched.models.registry import get_model

        models = (get_model(stage.model, stage.params) for stage in load_pipeline(pipeline).stages if stage.model)
        networks = tuple(model.network() for model in models if model.network is not None)
    choices = costs.Choices(precision, mode, engines or {}, stages or {}, skip)
    return costs.import_profile([Path(file) for file in files], load_platform(platform), choices, networks)
