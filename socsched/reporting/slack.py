"""The slack of every chain: how far its bound stays below its deadline, against what a guard asks for."""

from __future__ import annotations

from dataclasses import dataclass

from socsched.planning.plan import Plan
from socsched.units import format_duration


@dataclass(frozen=True, slots=True)
class Slack:
    """The slack of a chain and the one required (ns); None where the chain has no bound."""

    chain: str
    slack_ns: int | None
    required_ns: int

    @property
    def short(self) -> bool:
        """Return whether there is less slack than required."""
        return self.slack_ns is None or self.slack_ns < self.required_ns

    def told(self) -> str:
        """Return the slack in words."""
        has = "no bound" if self.slack_ns is None else f"slack {format_duration(self.slack_ns)}"
        return f"{self.chain}: {has}, required {format_duration(self.required_ns)}"


def slack_of(plan: Plan, part: float, least_ns: int) -> tuple[Slack, ...]:
    """Return the slack of every chain, of which `part` of its deadline and `least_ns` are required."""
    return tuple(
        Slack(
            chain.name,
            None if chain.bound_ns is None else chain.deadline_ns - chain.bound_ns,
            max(round(part * chain.deadline_ns), least_ns),
        )
        for chain in plan.chains
    )
