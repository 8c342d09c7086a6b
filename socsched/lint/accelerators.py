"""The engines of a platform that have operator rules, grouped by equal rules, at a version of their runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from socsched.descriptor.operator_rules import find_rules, load_rules
from socsched.descriptor.platform import Engine, Platform
from socsched.errors import UsageError


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Engines with equal rules and data types; `gap`: the runtime's version does not support them, for this reason."""

    engine: Engine
    names: tuple[str, ...]
    gap: str = ""
    source: str = ""

    @property
    def title(self) -> str:
        """Return the engines' names and the runtime with its version, as used in messages."""
        rules = self.engine.operators
        version = f" ({rules.runtime} {rules.version})" if rules.runtime else ""
        return ", ".join(self.names) + version

    @property
    def rules(self) -> str:
        """Return the name of the rules, the engine's own if they stand in the platform file."""
        return self.engine.operators.name or self.names[0]


def accelerators(platform: Platform, engines: Sequence[str] = (), version: str | None = None) -> list[Accelerator]:
    """Return the accelerators of `platform`: those named in `engines` (id or kind), else all that could take a network.

    An engine whose rules list no operator (an image resizer) takes declared functions alone, and is judged if named.

    `version` is that of their runtime, None: the version that the platform names.  Raises UsageError for an unknown
    engine, an engine without rules, and a version that is no version.
    """
    chosen = [engine for engine in platform.engines if not engines or {engine.id, engine.kind} & set(engines)]
    known = {name for engine in platform.engines for name in (engine.id, engine.kind)}
    for name in engines:
        if name not in known:
            raise UsageError(f"{platform.name} has no engine {name!r}", f"its engines: {', '.join(sorted(known))}")
    ruled = [e for e in chosen if e.operators.allowed or (engines and e.operators.allowed is not None)]
    if engines and not ruled:
        raise UsageError(f"{', '.join(engines)} has no operator rules", "it supports every operator")
    groups: list[Accelerator] = []
    for engine in ruled:
        found = at_version(engine, platform, version)
        for place, group in enumerate(groups):
            same = (group.engine.operators, group.engine.precisions) == (
                found.engine.operators,
                found.engine.precisions,
            )
            if same and group.gap == found.gap:
                groups[place] = replace(group, names=(*group.names, engine.id))
                break
        else:
            groups.append(found)
    return groups


def _rules(accelerator: Accelerator) -> tuple[object, ...]:
    engine = accelerator.engine
    return engine.operators, tuple(engine.precisions), accelerator.gap


def at_version(engine: Engine, platform: Platform, version: str | None) -> Accelerator:
    """Return an engine with the rules of a version of its runtime; UsageError for text that is no version."""
    if version is None or not engine.operators.name:
        return Accelerator(engine, (engine.id,))
    rules = load_rules(find_rules(engine.operators.name, Path(platform.file).parent))
    try:
        gap = rules.gap(version)
    except ValueError:
        raise UsageError(f"--runtime-version: expected numbers such as 8.6.2, got {version!r}") from None
    found = replace(engine, operators=rules.of_version(version))
    return Accelerator(found, (engine.id,), gap.note if gap else "", rules.title_of(gap) if gap else "")
