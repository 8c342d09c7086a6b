"""PREMA (Choi & Rhu, HPCA 2020): eight requests of random networks, arrivals and priorities on one NPU."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from socsched.planning.plan import Plan
from socsched_literature.studies.policies import antt, fairness, interval, stp
from tools.literature.claims._plans import NETWORKS, engine, kernels, mean_responses, plan, simulate, task
from tools.literature.claims.claim import Claim

RUNS = 60
WORKLOAD = (
    "60 draws of 8 requests within half their work: 9 networks as REEF profiled them, batches of 1, 4, 16 that take "
    "1, 3, 10 times as long, three priorities"
)
PAPER = "Choi & Rhu, HPCA 2020"
POLICIES = {
    "FCFS": "np-fifo", "RRB": "rr", "HPF": "np-fp", "SJF": "np-sjf", "TOKEN": "np-token", "PREMA np": "np-prema",
    "HPF preemptive": "xsched-hpf:level=3", "TOKEN preemptive": "token", "PREMA": "prema",
    "PREMA checkpoint": "prema:mechanism=checkpoint", "PREMA kill": "prema:mechanism=kill",
    "PREMA strict": "prema:strict=yes", "PREMA threshold 3": "prema:threshold=3:strict=yes:estimate=total:drain=share",
}  # fmt: skip


def draw(seed: int) -> Plan:
    """Return a workload: requests as tasks with a single job."""
    rng = Random(f"prema:{seed}")
    wanted = [(rng.choice(NETWORKS), rng.choice((1, 3, 10)), rng.choice(("hard", "firm", "soft"))) for _ in range(8)]
    work = [sum(time for _, time in kernels(name)) * times for name, times, _ in wanted]
    made = []
    for number, (name, times, level) in enumerate(wanted):
        made.append(
            task(
                f"{number}", [(label, time * times) for label, time in kernels(name)], criticality=level,
                priority=("hard", "firm", "soft").index(level), offset_ns=rng.randrange(sum(work) // 2),
            )
        )  # fmt: skip
    return plan(made, [engine("npu", "npu", quantum_ns=250_000)])


def measured() -> dict[str, dict[str, list[float]]]:
    """Return ANTT, STP, fairness and satisfaction (within 4 times alone) of every policy, one value a draw."""
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(RUNS):
        made = draw(seed)
        alone = [float(t.cost_ns) for t in made.tasks]
        weights = [{"hard": 9, "firm": 3, "soft": 1}[t.criticality] for t in made.tasks]
        for name, policy in POLICIES.items():
            together = mean_responses(simulate(made, policy))
            row = found.setdefault(name, {})
            row.setdefault("antt", []).append(antt(together, alone))
            row.setdefault("stp", []).append(stp(together, alone))
            row.setdefault("fair", []).append(fairness(together, alone, weights))
            met = sum(t <= 4 * a for t, a in zip(together, alone, strict=True))
            row.setdefault("sla", []).append(met / len(alone))
    return found


def claims() -> list[Claim]:
    """Return PREMA's claims with the results here."""
    found = measured()
    mean = {name: {key: interval(values)[0] for key, values in row.items()} for name, row in found.items()}

    def shown(*names: str) -> str:
        return ", ".join(f"{n} {mean[n]['antt']:.2f} ± {interval(found[n]['antt'])[1]:.2f}" for n in names)

    def ordered(*names: str) -> bool:
        return all(mean[a]["antt"] < mean[b]["antt"] for a, b in pairwise(names))

    gain = mean["FCFS"]["antt"] / mean["PREMA"]["antt"]
    throughput = mean["PREMA"]["stp"] / mean["FCFS"]["stp"]
    kept = mean["PREMA"]["sla"] / mean["FCFS"]["sla"]
    strict = ordered("PREMA np", "TOKEN", "HPF", "FCFS")
    preemptive = ordered("PREMA", "TOKEN preemptive", "HPF preemptive", "FCFS")
    why = "TOKEN and HPF go by priorities, which ANTT does not see, and which are drawn without regard to length"
    return [
        Claim("PREMA", PAPER, "PREMA serves with lower ANTT than TOKEN, HPF and FCFS, without preemption", WORKLOAD,
              "PREMA < TOKEN < HPF < FCFS", shown("PREMA np", "TOKEN", "HPF", "FCFS", "RRB", "SJF"), strict,
              "" if strict else why),
        Claim("PREMA", PAPER, "the same with preemption", WORKLOAD, "PREMA < TOKEN < HPF < FCFS",
              shown("PREMA", "TOKEN preemptive", "HPF preemptive", "FCFS"), preemptive, "" if preemptive else why),
        Claim("PREMA", PAPER, "several times lower ANTT than non-preemptive FCFS", WORKLOAD, "7.8 times",
              f"{gain:.1f} times", gain >= 2, "" if gain >= 2 else "the draws wait less than the paper's"),
        Claim("PREMA", PAPER, "more throughput (STP) than FCFS", WORKLOAD, "1.4 times", f"{throughput:.2f} times",
              throughput > 1, "" if throughput > 1 else "progress is shifted, not gained"),
        Claim("PREMA", PAPER, "several times more requests within their agreement than FCFS", WORKLOAD,
              "4.8 times", f"{kept:.2f} times ({mean['PREMA']['sla']:.0%} against {mean['FCFS']['sla']:.0%} within 4 "
              "times alone)", kept > 2,
              "" if kept > 2 else "FCFS meets more agreements here than in the paper, whose load is not published"),
        Claim("PREMA", PAPER, "choosing between draining and a checkpoint is no worse than always a checkpoint, and "
              "far better than killing", WORKLOAD, "dynamic, checkpoint, kill",
              shown("PREMA", "PREMA checkpoint", "PREMA kill"),
              mean["PREMA"]["antt"] <= 1.05 * mean["PREMA checkpoint"]["antt"]
              and mean["PREMA"]["antt"] < mean["PREMA kill"]["antt"],
              "within 5 %; readings of open details: " + shown("PREMA strict", "PREMA threshold 3")),
    ]  # fmt: skip
