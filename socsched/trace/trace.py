"""The common trace format of the simulator and the executor; times are ns from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from socsched.trace.columns import Instant, Job, Slice

if TYPE_CHECKING:
    from socsched.trace.columns import Columns

__all__ = ["Instant", "Job", "Slice", "Trace"]


class Trace:
    """The full record of one simulation or run of a plan: lists filled by a run, or columns of a simulation.

    `releases[name]` lists the release time of every frame of a sensor or timer; `counters[name]` lists (time, value)
    steps: power_mw, bandwidth_gbps, queue depths.  `details[frame]` holds the results of a run for a frame.

    For a trace made from columns (`from_columns`) the lists are created on first access, for reading only: changes to
    their records do not change the columns.  Assigning a whole list turns the trace into one of lists.
    """

    __slots__ = (
        "_columns",
        "_counters",
        "_instants",
        "_jobs",
        "_releases",
        "_slices",
        "details",
        "duration_ns",
        "kind",
        "seed",
    )
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        kind: str,
        duration_ns: int,
        seed: int,
        jobs: list[Job] | None = None,
        slices: list[Slice] | None = None,
        instants: list[Instant] | None = None,
        releases: dict[str, list[int]] | None = None,
    ) -> None:
        self.kind, self.duration_ns, self.seed = kind, duration_ns, seed
        self._columns: Columns | None = None
        self._jobs: list[Job] | None = [] if jobs is None else jobs
        self._slices: list[Slice] | None = [] if slices is None else slices
        self._instants: list[Instant] | None = [] if instants is None else instants
        self._releases: dict[str, list[int]] | None = {} if releases is None else releases
        self._counters: dict[str, list[tuple[int, float]]] | None = {}
        self.details: dict[int, dict[str, Any]] = {}

    @classmethod
    def from_columns(
        cls,
        kind: str,
        duration_ns: int,
        seed: int,
        columns: Columns,
        details: dict[int, dict[str, Any]] | None = None,
    ) -> Trace:
        """Return a trace backed by `columns`, which are kept, not copied."""
        trace = cls(kind, duration_ns, seed)
        trace.details = {} if details is None else details
        trace._columns = columns
        trace._jobs = trace._slices = trace._instants = trace._releases = trace._counters = None
        return trace

    @property
    def columns(self) -> Columns:
        """Return the trace as columns; those of a trace of lists are rebuilt each time, since the lists may grow."""
        if self._columns is not None:
            return self._columns
        from socsched.trace.convert import to_columns

        return to_columns(self.jobs, self.slices, self.instants, self.releases, self.counters)

    @property
    def jobs(self) -> list[Job]:
        """Return all jobs in the order of activation."""
        if self._jobs is None:
            from socsched.trace.convert import jobs_of

            self._jobs = jobs_of(self.columns)
        return self._jobs

    @jobs.setter
    def jobs(self, jobs: list[Job]) -> None:
        self._unfold()
        self._jobs = jobs

    @property
    def slices(self) -> list[Slice]:
        """Return all intervals in which a job held lanes."""
        if self._slices is None:
            from socsched.trace.convert import slices_of

            self._slices = slices_of(self.columns)
        return self._slices

    @slices.setter
    def slices(self, slices: list[Slice]) -> None:
        self._unfold()
        self._slices = slices

    @property
    def instants(self) -> list[Instant]:
        """Return all instants."""
        if self._instants is None:
            from socsched.trace.convert import instants_of

            self._instants = instants_of(self.columns)
        return self._instants

    @instants.setter
    def instants(self, instants: list[Instant]) -> None:
        self._unfold()
        self._instants = instants

    @property
    def releases(self) -> dict[str, list[int]]:
        """Return the release times of every sensor and timer."""
        if self._releases is None:
            from socsched.trace.convert import releases_of

            self._releases = releases_of(self.columns)
        return self._releases

    @releases.setter
    def releases(self, releases: dict[str, list[int]]) -> None:
        self._unfold()
        self._releases = releases

    @property
    def counters(self) -> dict[str, list[tuple[int, float]]]:
        """Return the steps of every counter."""
        if self._counters is None:
            from socsched.trace.convert import counters_of

            self._counters = counters_of(self.columns)
        return self._counters

    @counters.setter
    def counters(self, counters: dict[str, list[tuple[int, float]]]) -> None:
        self._unfold()
        self._counters = counters

    def _unfold(self) -> None:
        """Create all lists and drop the columns."""
        if self._columns is not None:
            self._everything()
            self._columns = None

    def _everything(self) -> tuple[Any, ...]:
        times = (self.kind, self.duration_ns, self.seed)
        return (*times, self.jobs, self.slices, self.instants, self.releases, self.counters, self.details)

    def __eq__(self, other: object) -> bool:
        return self._everything() == other._everything() if isinstance(other, Trace) else NotImplemented

    def __repr__(self) -> str:
        counts = f"{len(self.jobs)} jobs, {len(self.slices)} slices, {len(self.instants)} instants"
        return f"Trace({self.kind!r}, {self.duration_ns} ns, seed {self.seed}: {counts})"
