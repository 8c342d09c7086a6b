"""Where a pipeline's known times were measured: engines and modes must exist on described platforms."""

from __future__ import annotations

import difflib

from socsched.descriptor.catalog import find_platform, platform_names
from socsched.descriptor.platform import Platform
from socsched.descriptor.source import read
from socsched.descriptor.validation import Tree


def check_places(file: str) -> None:
    """Raise DescriptorError for costs that name an engine or a mode their platform does not have.

    A platform that no file describes may be any text; a near-miss of a described name is reported.
    """
    document = read(file)
    root = Tree(document, (), document.data)
    for stage in root.at("stages").items():
        for cost in stage.at("costs").items():
            platform = find_platform(cost.at("platform").text)
            if platform is None:
                _check_spelling(cost.at("platform"))
            else:
                _check_place(cost, platform)
    document.check()


def _check_spelling(name: Tree) -> None:
    """Report a name within a letter or two of a known platform; any other name means undescribed hardware."""
    near = difflib.get_close_matches(name.text, platform_names(), n=1, cutoff=0.9)
    if near and name.text not in platform_names():
        name.report(f"no platform is called {name.text!r}; did you mean {near[0]!r}?")


def _check_place(cost: Tree, platform: Platform) -> None:
    engines = {name for engine in platform.engines for name in (engine.id, engine.kind)}
    engine, mode = cost.at("engine"), cost.at("mode")
    if engine.text not in engines:
        engine.unknown(f"engine of {platform.name}", engines)
    try:
        platform.mode(mode.text)
    except KeyError:
        mode.unknown(f"power mode of {platform.name}", [m.name for m in platform.modes])
