"""Pieces of AMALTHEA models as text: runnables, tasks, and a small board."""

from __future__ import annotations

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
