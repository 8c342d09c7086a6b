"""Apply exported configurations to the threads of a C program, read them back, and count deadline misses.

    python -m tools.verify.applied [--seconds 2]

needs a C compiler, chrt, taskset and the right to set real-time priorities (root).  Two tasks share CPU 0 under fixed
priorities: once all deadlines are met, once every frame of the lower task is late.  Their threads get the settings of
`plan --export autoware` and of `--export linux`; the number of late frames must equal that of the simulator.  Exit code
1 when a setting or a number differs, 3 when something is missing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from socsched.planning.export import autoware
from socsched.planning.export.linux import ExportRequest, Thread, linux, threads
from socsched.planning.plan import Plan
from socsched.sim.simulate import simulate
from tests.sim.builders import engine, plan, task

MS = 1_000_000
SOURCE = Path(__file__).with_name("threads.c")
Apply = Callable[[Plan, Sequence[Thread], dict[str, int], Path], None]


def two_tasks(low_ms: int, policy: str = "fp") -> Plan:
    """Return a plan of a task of 12 ms in every 20 ms and one of `low_ms` in every 80 ms with a deadline of 40 ms."""
    tasks = [
        task("high", 12 * MS, period_ns=20 * MS, deadline_ns=20 * MS, priority=0, engine="cpu"),
        task("low", low_ms * MS, period_ns=80 * MS, deadline_ns=40 * MS, priority=1, engine="cpu"),
    ]
    return plan(tasks, [engine("cpu", policy=policy)], policy=policy)


def compiled(folder: Path) -> Path:
    """Return the program, compiled into `folder`."""
    binary = folder / "threads"
    subprocess.run(["cc", "-O1", "-Wall", "-pthread", "-o", str(binary), str(SOURCE)], check=True)
    return binary


class Running:
    """The program with a thread for each task of a plan, waiting to be released; `tids` by task."""

    def __init__(self, binary: Path, made: Plan, length_ns: int) -> None:
        words = [str(length_ns)]
        for item in made.tasks:
            words += [item.name, *(str(ns) for ns in (item.wcet_ns, item.period_ns, item.deadline_ns))]
        self.process = subprocess.Popen([str(binary), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tids = self._table(len(made.tasks))

    def _table(self, rows: int) -> dict[str, int]:
        assert self.process.stdout
        found = (self.process.stdout.readline().split() for _ in range(rows))
        return {name: int(number) for name, number in found}

    def misses(self) -> dict[str, int]:
        """Release the threads and return the number of late frames by task."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found = self._table(len(self.tids))
        self.process.wait()
        return found

    def close(self) -> None:
        """End the program."""
        self.process.kill()
        self.process.communicate()


def by_autoware(made: Plan, listed: Sequence[Thread], tids: dict[str, int], folder: Path) -> None:
    """Apply the exported YAML as its configurator does; a deadline thread stays unpinned."""
    file = folder / "threads.yaml"
    file.write_text(autoware.write(ExportRequest(made)))
    for thread in autoware.load(file):
        tid = str(tids[thread.name])
        if thread.policy == "deadline":
            times = [f"--sched-{key}={getattr(thread, f'{key}_ns')}" for key in ("runtime", "deadline", "period")]
            _call("chrt", "--deadline", *times, "--pid", "0", tid)
        else:
            _call("taskset", "--cpu-list", "--pid", ",".join(map(str, thread.processors)), tid)
            _call("chrt", "--fifo", "--pid", str(thread.priority), tid)


def by_linux(made: Plan, listed: Sequence[Thread], tids: dict[str, int], folder: Path) -> None:
    """Apply the exported shell script task by task."""
    script = folder / "deploy.sh"
    script.write_text(linux(ExportRequest(made)))
    for name, tid in tids.items():
        _call("sh", str(script), "apply", name, str(tid))


def read_back(name: str, tid: int) -> Thread:
    """Return the settings of a thread as chrt and taskset report them."""
    shown = _call("chrt", "--pid", str(tid))
    numbers = _call("taskset", "--cpu-list", "--pid", str(tid)).rpartition(":")[2].strip()
    cpus: list[int] = []
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    if "SCHED_DEADLINE" in shown:
        times = re.search(r"parameters: (\d+)/(\d+)/(\d+)", shown)
        assert times
        return Thread(name, "deadline", (), *(int(ns) for ns in times.groups()))
    priority = re.search(r"priority: (\d+)", shown)
    assert priority
    return Thread(name, "fifo" if "SCHED_FIFO" in shown else "other", tuple(cpus), priority=int(priority[1]))


def predicted(made: Plan, length_ns: int) -> dict[str, int]:
    """Return the number of late frames by task in a simulation, of frames whose deadline is within `length_ns`."""
    late = {item.name: 0 for item in made.tasks}
    for job in simulate(made, length_ns).jobs:
        if job.deadline_ns <= length_ns:
            late[job.task] += job.finish_ns < 0 or job.finish_ns > job.deadline_ns
    return late


def _call(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Compare settings and late frames for each export and load, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each run")
    length = int(parser.parse_args().seconds * 1e9)
    if not all(map(shutil.which, ("cc", "chrt", "taskset"))) or os.geteuid():
        print("needs a C compiler, chrt, taskset and root", file=sys.stderr)
        return 3
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        binary = compiled(Path(place))
        for low in (10, 20):
            made = two_tasks(low)
            listed = threads(ExportRequest(made))
            for form, apply in (("autoware", by_autoware), ("linux", by_linux)):
                running = Running(binary, made, length)
                try:
                    apply(made, listed, running.tids, Path(place))
                    same = [read_back(thread.name, running.tids[thread.name]) for thread in listed] == listed
                    counted = running.misses()
                finally:
                    running.close()
                expected = predicted(made, length)
                failed += not same or counted != expected
                print(f"{form}, low {low} ms: settings {'equal' if same else 'DIFFER'}, late {counted}, "
                      f"simulated {expected}")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
