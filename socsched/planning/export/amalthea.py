"""A plan as an AMALTHEA model (.amxmi) of Eclipse APP4MC 2.0: tasks, ticks, labels, units, stimuli, limits, mapping.

A tick is a nanosecond: every unit runs at 1 GHz, and a task's ticks on its engine's unit are its WCET (upper bound) and
its time alone (average).  A task with predecessors is triggered by an inter-process stimulus; where it waits for
several, the stimulus has the custom property `socsched.join`, since the metamodel knows no such condition.  `reads` are
labels.  Chains are event chains with a latency limit.  Not carried: precisions, segments, traffic, energy, offsets.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import quote_plus

from socsched.planning.export.linux import ExportRequest
from socsched.planning.plan import Plan, PlannedEngine, Task

AM = "http://app4mc.eclipse.org/amalthea/2.0.0"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
XMI = "http://www.omg.org/XMI"
JOIN = "socsched.join"
_TYPE = f"{{{XSI}}}type"
_KINDS = {"cpu": "CPU", "gpu": "GPU"}


def write(request: ExportRequest) -> str:
    """Return the model."""
    plan = request.plan
    for prefix, space in (("am", AM), ("xsi", XSI), ("xmi", XMI)):
        ET.register_namespace(prefix, space)
    root = ET.Element(f"{{{AM}}}Amalthea", {f"{{{XMI}}}version": "2.0"})
    used = [engine for engine in plan.engines if any(task.engine == engine.id for task in plan.tasks)]
    _software(root, plan)
    _hardware(root, plan, used)
    _system(root, used)
    _stimuli(root, plan)
    _events(root, plan)
    _constraints(root, plan)
    _mapping(root, plan, used)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add(parent: ET.Element, tag: str, kind: str = "", **attributes: str) -> ET.Element:
    return ET.SubElement(parent, tag, ({_TYPE: f"am:{kind}"} if kind else {}) | attributes)


def _ref(name: str, kind: str) -> str:
    return f"{quote_plus(name)}?type={kind}"


def _triggered(plan: Plan, task: Task) -> bool:
    """Return whether a task is started by other tasks; one after a sensor alone has the sensor's period."""
    return not task.timer and any(other.name in task.after for other in plan.tasks)


def _software(root: ET.Element, plan: Plan) -> None:
    model = ET.SubElement(root, "swModel")
    for task in plan.tasks:
        kind = "InterProcessStimulus" if _triggered(plan, task) else "PeriodicStimulus"
        stimulus = _ref(_stimulus(plan, task), kind)
        element = _add(model, "tasks", name=task.name, stimuli=stimulus, preemption=_preemption(plan, task))
        graph = _add(element, "activityGraph")
        calls = _add(graph, "items", "Group", name="CallSequence", ordered="true")
        _add(calls, "items", "RunnableCall", runnable=_ref(f"{task.name}_run", "Runnable"))
        for later in [one for one in plan.tasks if not one.timer and task.name in one.after]:
            _add(calls, "items", "InterProcessTrigger", stimulus=_ref(f"{later.name}_stim", "InterProcessStimulus"))
    shared = {name for task in plan.tasks for name in task.reads}
    for task in plan.tasks:
        graph = _add(_add(model, "runnables", name=f"{task.name}_run"), "activityGraph")
        for name in task.reads:
            _add(graph, "items", "LabelAccess", data=_ref(f"{name}_out", "Label"), access="read")
        ticks = _add(_add(graph, "items", "Ticks"), "extended", key=_ref(task.engine, "ProcessingUnitDefinition"))
        bounds = {"lowerBound": "0", "upperBound": str(task.wcet_ns), "average": f"{float(task.cost_ns)}"}
        _add(ticks, "value", "DiscreteValueStatistics", **bounds)
        if task.name in shared:
            _add(graph, "items", "LabelAccess", data=_ref(f"{task.name}_out", "Label"), access="write")
    for name in sorted(shared):
        _add(_add(model, "labels", name=f"{name}_out"), "size", value="0", unit="B")


def _preemption(plan: Plan, task: Task) -> str:
    engine = next(engine for engine in plan.engines if engine.id == task.engine)
    return {"full": "preemptive", "none": "non_preemptive"}.get(engine.preemption, "cooperative")


def _stimulus(plan: Plan, task: Task) -> str:
    return f"{task.name}_stim" if _triggered(plan, task) else f"{task.name}_timer"


def _hardware(root: ET.Element, plan: Plan, used: Sequence[PlannedEngine]) -> None:
    model = ET.SubElement(root, "hwModel")
    for engine in used:
        kind = _KINDS.get(engine.kind, "Accelerator")
        _add(model, "definitions", "ProcessingUnitDefinition", name=engine.id, puType=kind)
    system = _add(model, "structures", name=plan.platform, structureType="System")
    for engine in used:
        for lane in range(engine.lanes):
            where = {"frequencyDomain": _ref("ticks", "FrequencyDomain")}
            where["definition"] = _ref(engine.id, "ProcessingUnitDefinition")
            _add(system, "modules", "ProcessingUnit", name=f"{engine.id}.{lane}", **where)
    domain = _add(model, "domains", "FrequencyDomain", name="ticks", clockGating="false")
    _add(domain, "defaultValue", value="1.0", unit="GHz")


def _system(root: ET.Element, used: Sequence[PlannedEngine]) -> None:
    model = ET.SubElement(root, "osModel")
    for engine in used:
        system = _add(model, "operatingSystems", name=f"{engine.id}_os")
        definition = _ref(engine.policy, "SchedulerDefinition")
        _add(system, "taskSchedulers", name=f"{engine.id}_scheduler", definition=definition)
    for policy in sorted({engine.policy for engine in used}):
        _add(model, "schedulerDefinitions", name=policy, processParameters=_PRIORITY)
    _add(model, "schedulingParameterDefinitions", name="priority", type="Integer", many="false", mandatory="true")


_PRIORITY = "priority?type=SchedulingParameterDefinition"


def _stimuli(root: ET.Element, plan: Plan) -> None:
    model = ET.SubElement(root, "stimuliModel")
    for task in plan.tasks:
        name = _stimulus(plan, task)
        if not _triggered(plan, task):
            timer = _add(model, "stimuli", "PeriodicStimulus", name=name)
            _add(timer, "recurrence", value=str(task.period_ns), unit="ns")
            continue
        stimulus = _add(model, "stimuli", "InterProcessStimulus", name=name)
        if sum(other.name in task.after for other in plan.tasks) > 1:
            join = _add(stimulus, "customProperties", key=JOIN)
            _add(join, "value", "BooleanObject", value="true")


def _events(root: ET.Element, plan: Plan) -> None:
    model = ET.SubElement(root, "eventModel")
    for task in plan.tasks:
        for verb in ("activate", "terminate"):
            _add(
                model,
                "events",
                "ProcessEvent",
                name=f"{task.name}_{verb}",
                eventType=verb,
                entity=_ref(task.name, "Task"),
            )


def _constraints(root: ET.Element, plan: Plan) -> None:
    model = ET.SubElement(root, "constraintsModel")
    tasks = {task.name for task in plan.tasks}

    def ends(first: str, last: str) -> dict[str, str]:
        one, other = f"{first}_activate", f"{last}_terminate"
        return {"stimulus": _ref(one, "ProcessEvent"), "response": _ref(other, "ProcessEvent")}

    for chain in plan.chains:
        path = [name for name in chain.path if name in tasks]
        if not path:
            continue
        element = _add(model, "eventChains", name=chain.name, **ends(path[0], path[-1]))
        for first, last in pairwise(path):
            segment = _add(element, "items", "EventChainContainer")
            _add(segment, "eventChain", name=f"{chain.name}: {first} to {last}", **ends(first, last))
        scope = _ref(chain.name, "EventChain")
        name = f"{chain.name}_latency"
        limit = _add(model, "timingConstraints", "EventChainLatencyConstraint", name=name, scope=scope, type="Reaction")
        _add(limit, "maximum", value=str(chain.deadline_ns), unit="ns")


def _mapping(root: ET.Element, plan: Plan, used: Sequence[PlannedEngine]) -> None:
    model = ET.SubElement(root, "mappingModel")
    for engine in used:
        units = " ".join(_ref(f"{engine.id}.{lane}", "ProcessingUnit") for lane in range(engine.lanes))
        _add(
            model,
            "schedulerAllocation",
            scheduler=_ref(f"{engine.id}_scheduler", "TaskScheduler"),
            responsibility=units,
        )
    for task in plan.tasks:
        units = " ".join(_ref(f"{task.engine}.{lane}", "ProcessingUnit") for lane in task.lanes)
        scheduler = _ref(f"{task.engine}_scheduler", "TaskScheduler")
        where = _add(model, "taskAllocation", task=_ref(task.name, "Task"), scheduler=scheduler, affinity=units)
        _add(_add(where, "schedulingParameters", key=_PRIORITY), "value", "IntegerObject", value=str(task.priority))
