"""AMALTHEA models of the WATERS 2019 challenge, written from the figures of its model (tests/data/waters2019.json).

The structure is that of the model in the MobSTr data set: tasks that prepare, trigger a kernel, wait and take its
result; copies as runnables without ticks; latency of memory per core, a data rate for the GPU.
"""

from __future__ import annotations

from typing import Any

HZ = {"A57": 2.0e9, "Denver": 2.0e9, "GPU_def": 1.5e9}


def ticks(wcet: dict[str, float], acet: dict[str, float]) -> str:
    rows = "".join(
        f'<extended key="{unit}?type=ProcessingUnitDefinition"><value xsi:type="am:DiscreteValueStatistics" '
        f'lowerBound="0" upperBound="{round(us * HZ[unit] / 1e6)}" average="{acet[unit] * HZ[unit] / 1e6}"/></extended>'
        for unit, us in wcet.items()
    )
    return f'<items xsi:type="am:Ticks">{rows}</items>'


def runnable(name: str, reads: list[str], writes: list[str], work: str = "") -> str:
    def access(labels: list[str], kind: str) -> str:
        return "".join(f'<items xsi:type="am:LabelAccess" data="{n}?type=Label" access="{kind}"/>' for n in labels)

    graph = f"<activityGraph>{access(reads, 'read')}{work}{access(writes, 'write')}</activityGraph>"
    return f'<runnables name="{name}">{graph}</runnables>'


def call(name: str) -> str:
    return f'<items xsi:type="am:RunnableCall" runnable="{name}?type=Runnable"/>'


def task(name: str, stimulus: str, items: str) -> str:
    group = f'<items xsi:type="am:Group" name="CallSequence">{items}</items>'
    return f'<tasks name="{name}" stimuli="{stimulus}?type=Stimulus"><activityGraph>{group}</activityGraph></tasks>'


def waters(model: dict[str, Any], more: str = "") -> str:
    """Return the challenge as a model; labels of a task without names in the data are one of its size."""
    tasks, runnables, labels, stimuli, limits = [], [], dict[str, int](model["labels_bytes"]), [], []

    def sized(name: str, size: int) -> list[str]:
        if size:
            labels[name] = size
        return [name] if size else []

    for entry in model["tasks"]:
        name, period = entry["task"], entry["period_us"]
        stimuli.append(
            f'<stimuli xsi:type="am:PeriodicStimulus" name="{name}_timer"><recurrence value="{period}" unit="us"/>'
            "</stimuli>"
        )
        owner = entry.get("wrapper", name)
        if entry["deadline_us"] is not None:
            limits.append(
                f'<requirements xsi:type="am:ProcessRequirement" name="d{name}" process="{owner}?type=Task"><limit '
                f'limitType="UpperLimit" metric="ResponseTime"><limitValue value="{entry["deadline_us"]}" unit="us"/>'
                "</limit></requirements>"
            )
        if entry["kind"] == "cpu":
            runnables.append(
                runnable(f"{name}_f", entry["reads"], entry["writes"], ticks(entry["wcet_us"], entry["acet_us"]))
            )
            tasks.append(task(name, f"{name}_timer", call(f"{name}_f")))
            continue
        offload = entry["async_offload_overhead_us"]
        work = {part: ticks(entry[f"{part}_us"], entry[f"{part}_acet_us"]) for part in ("pre", "post", "kernel")}
        pre = sized(f"{name}_in", entry["pre_read_bytes"]), sized(f"{name}_out", entry["pre_write_bytes"])
        post = sized(f"{name}_back", entry["post_read_bytes"]), sized(f"{name}_result", entry["post_write_bytes"])
        down, up = sized(f"{name}_h2d", entry["h2d_bytes"]), sized(f"{name}_d2h", entry["d2h_bytes"])
        runnables += [
            runnable(f"{name}_pre", *pre, work["pre"]),
            runnable(f"{name}_offload", [], [], ticks(offload, offload)),
            runnable(f"{name}_post", *post, work["post"]),
            runnable(f"{name}_host_to_device", down, down),
            runnable(f"{name}_Function", [], [], work["kernel"]),
            runnable(f"{name}_device_to_host", up, up),
        ]
        trigger = f'<items xsi:type="am:InterProcessTrigger" stimulus="{name}_stim?type=InterProcessStimulus"/>'
        wait = '<items xsi:type="am:WaitEvent" waitingBehaviour="active"><eventMask events="x"/></items>'
        items = call(f"{name}_pre") + call(f"{name}_offload") + trigger + wait + call(f"{name}_post")
        tasks.append(task(owner, f"{name}_timer", items))
        inner = "".join(call(f"{name}_{part}") for part in ("host_to_device", "Function", "device_to_host"))
        tasks.append(task(name, f"{name}_stim", inner))
        stimuli.append(f'<stimuli xsi:type="am:InterProcessStimulus" name="{name}_stim"/>')
    sizes = "".join(f'<labels name="{name}"><size value="{size}" unit="B"/></labels>' for name, size in labels.items())
    software = f"<swModel>{''.join(tasks + runnables)}{sizes}</swModel>"
    constraints = f"<constraintsModel>{''.join(limits)}{more}</constraintsModel>"
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<am:Amalthea xmlns:am="http://app4mc.eclipse.org/amalthea/2.0.0" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">\n'
        f"{software}\n{hardware()}\n<stimuliModel>{''.join(stimuli)}</stimuliModel>\n{constraints}\n</am:Amalthea>\n"
    )


def hardware() -> str:
    """Return the units: latencies of 16, 40 and 5 cycles, the GPU at 20 GB/s."""
    text = '<definitions xsi:type="am:CacheDefinition" name="L2"><lineSize value="64" unit="B"/></definitions>'
    modules = ""
    for name, kind, cycles in (("Denver", "CPU", 16), ("A57", "CPU", 40), ("GPU_def", "GPU", 5)):
        text += f'<definitions xsi:type="am:ProcessingUnitDefinition" name="{name}" puType="{kind}"/>'
        text += f'<domains name="{name}_f"><defaultValue value="{HZ[name] / 1e9}" unit="GHz"/></domains>'
        rate = '<dataRate value="20" unit="GBPerSecond"/>' if kind == "GPU" else ""
        latency = "".join(f'<{way}Latency xsi:type="am:Constant" value="{cycles}"/>' for way in ("read", "write"))
        modules += (
            f'<modules xsi:type="am:ProcessingUnit" name="{name}0" frequencyDomain="{name}_f?type=FrequencyDomain" '
            f'definition="{name}?type=ProcessingUnitDefinition"><accessElements>{latency}{rate}</accessElements></modules>'
        )
    return f'<hwModel>{text}<structures structureType="System" name="JetsonTX2">{modules}</structures></hwModel>'
