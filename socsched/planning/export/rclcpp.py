"""A plan as thread attributes of ROS 2 executors: the list that REP-2017 (ros-infrastructure/rep#385) reads from YAML.

Keys as in its prototype parser: name, core_affinity, scheduling_policy, priority; unknown keys are refused there.
`EventsCBGExecutor::DedicatedThreadOptions` (ros2/rclcpp#3247, a draft) is set in C++ and takes the same values.
"""

from __future__ import annotations

from socsched.planning.export.threads import Request, fixed_priorities, proof, quoted, remarks

POLICY = "FIFO"


def write(request: Request) -> str:
    """Return the YAML, a list of threads; UsageError for a plan of EDF, since the format has no budgets."""
    listed = fixed_priorities(request, "rclcpp")
    lines = [f"# {line}" for line in remarks(request, listed)]
    lines += [
        "# REP-2017 (a draft): export ROS_THREAD_ATTRS_FILE=THIS_FILE. DedicatedThreadOptions of rclcpp#3247, a draft:",
        "# name, SchedulingPolicy::Fifo, priority and cpu_affinity = core_affinity of the same thread.",
    ]
    for thread in listed:
        name = request.names.get(thread.task, thread.task) + thread.name.removeprefix(thread.task)
        lines += [f"# {proof(request, thread.task)}", f"- name: {quoted(name)}", f"  scheduling_policy: {POLICY}"]
        lines += [f"  priority: {thread.priority}", f"  core_affinity: {list(thread.processors)}"]
    return "\n".join(lines) + "\n"
