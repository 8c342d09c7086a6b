"""The journal that the executor would write of a run with a given trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from socsched.files import file_digest
from socsched.runtime.journal import _JOB, FORMAT, PLAN
from socsched.trace.trace import Trace


def write_journal(path: Path, trace: Trace) -> Path:
    """Write the journal of a trace, with releases before the jobs they began, in lines of a few rows."""
    head = {"format": FORMAT, "kind": trace.kind, "seed": trace.seed, "duration_ns": trace.duration_ns}
    if (plan := path.with_name(PLAN)).is_file():
        head["plan"] = file_digest(plan)
    rows: dict[str, list[list[Any]]] = {
        "jobs": [[i, *(getattr(job, name) for name in _JOB)] for i, job in enumerate(trace.jobs)],
        "slices": [[s.engine, s.lanes, s.job, s.name, s.start_ns, s.end_ns] for s in trace.slices],
        "instants": [[n.time_ns, n.kind, n.subject, n.frame, n.text] for n in trace.instants],
    }
    lines: list[dict[str, Any]] = [head]
    if trace.releases or trace.counters:
        lines.append({"releases": trace.releases, "counters": trace.counters})
    lines += [{name: part[at : at + 32]} for name, part in rows.items() for at in range(0, len(part), 32)]
    path.write_text("".join(json.dumps(line, separators=(",", ":"), default=dict) + "\n" for line in lines))
    return path
