"""WATERS 2019 as its own model states it: mobstr.amxmi (original) of the MobSTr data set at 32e2830, EPL-2.0.

Figures, names and the order of items are those of the model, typed in; `amalthea_writer` writes the same application
from the figures of tests/data/waters2019.json, whose units and label sizes were worked out separately.
"""

from __future__ import annotations

from amalthea_writer import call, runnable, task

TASKS = {"OS_Overhead": (100, "OS_Ops_Function"), "Lidar_Grabber": (33, "Lidar_Function"),
         "DASM": (5, "DASM_Function"),
         "CANbus_polling": (10, "CAN_Function"), "EKF": (15, "EKF_Function"),
         "Planner": (15, "Planner_Function")}  # fmt: skip
OFFLOADED = {"SFM": (33, "SFM", "SFM_stim"), "Localization": (400, "Localization", "Localization_stim"),
             "Lane_detection": (66, "Lane_Detection", "Lane_detection_stim"),
             "Detection": (200, "Detection", "detection_stim")}  # fmt: skip
CAR = ("x_car_host", "y_car_host", "yaw_car_host")
RUNNABLES: dict[str, tuple[str, str, dict[str, tuple[int, int]]]] = {
    # name: labels read, labels written, ticks (upper bound, average) on Denver, A57, GPU_def
    "OS_Ops_Function": ("", "", {"Denver": (100000000, 100000000), "A57": (100000000, 100000000)}),
    "Lidar_Function": ("Cloud_map_host", "Cloud_map_host Occupancy_grid_host",
                       {"Denver": (21736000, 20348070), "A57": (27320000, 23520000)}),
    "CAN_Function": ("", "Vehicle_status_host", {"Denver": (1199744, 999744), "A57": (1199360, 999360)}),
    "EKF_Function": (f"Vehicle_status_host {' '.join(CAR)}", f"{' '.join(CAR)} vel_car yaw_rate",
                     {"Denver": (8858959, 8398959), "A57": (9519340, 8799340)}),
    "Planner_Function": ("Lane_boundaries_host Occupancy_grid_host Vehicle_status_host Matrix_SFM_host "
                         f"Bounding_box_host {' '.join(CAR)} vel_car yaw_rate", "speed_objective steer_objective",
                         {"Denver": (24873529, 20273529), "A57": (26483822, 22743822)}),
    "DASM_Function": ("speed_objective steer_objective", "speed_objective steer_objective",
                      {"Denver": (2599996, 2399996), "A57": (3719990, 3219990)}),
    "Detection_Preprocessing": ("Image_host", "Image_host", {"Denver": (6354526, 5853824), "A57": (7379120, 6921260)}),
    "Detection_Postprocessing": ("Bounding_box_host", "Bounding_box_host",
                                 {"Denver": (1816000, 1416000), "A57": (2040000, 1840000)}),
    "Localization_Function": ("", "", {"Denver": (589615742, 562615742), "A57": (774839355, 754439355),
                                       "GPU_def": (186000000, 180000000)}),
    "Lane_Detection_Function": ("", "", {"Denver": (84475648, 80075648), "A57": (102089120, 98689120),
                                         "GPU_def": (41000000, 39750000)}),
    "Lane_Detection_Preprocessing": ("Image_lane_lines_host", "Image_lane_lines_host",
                                     {"Denver": (7051367, 6551424), "A57": (7951921, 7178560)}),
    "Lane_Detection_Postprocessing": ("Lane_boundaries_host", "Lane_boundaries_host",
                                      {"Denver": (8199496, 7399142), "A57": (8513680, 7561630)}),
    "SFM_Function": ("", "", {"A57": (59003000, 53775310), "Denver": (55623380, 49534130),
                              "GPU_def": (11850000, 10800000)}),
    "SFM_Preprocessing": ("Image_SFM_host", "Image_SFM_host",
                          {"Denver": (6355142, 5751424), "A57": (7459318, 6977531)}),
    "SFM_Postprocessing": ("Matrix_SFM_host", "Image_SFM_host",
                           {"Denver": (7064516, 6363125), "A57": (8347392, 7213436)}),
    "Localization_Preprocessing": ("Cloud_map_host Vehicle_status_host", "Cloud_map_host Vehicle_status_host",
                                   {"Denver": (16431488, 9231488), "A57": (17878720, 11078720)}),
    "Localization_Postprocessing": (" ".join(CAR), " ".join(CAR),
                                    {"Denver": (12599994, 8399994), "A57": (17399985, 10599985)}),
    "Detection_Function": ("", "", {"GPU_def": (174000000, 165000000)}),
    "AsyncOffloadingCosts": ("", "", {"Denver": (5000, 5000), "A57": (5000, 5000)}),
    "Detection_host_to_device": ("Image_host", "Image_device", {}),
    "Detection_device_to_host": ("Bounding_box_device", "Bounding_box_host", {}),
    "Lane_Detection_host_to_device": ("Image_lane_lines_host", "Image_lane_lines_device", {}),
    "Lane_Detection_device_to_host": ("Lane_boundaries_device", "Lane_boundaries_host", {}),
    "SFM_host_to_device": ("IMU_data_host Image_SFM_host", "Image_SFM_device IMU_data_device", {}),
    "SFM_device_to_host": ("Matrix_SFM_device", "Matrix_SFM_host", {}),
    "Localization_host_to_device": ("Cloud_map_host Vehicle_status_host", "Cloud_map_device Vehicle_status_device", {}),
    "Localization_device_to_host": ("x_car_device y_car_device yaw_car_device", " ".join(CAR), {}),
}  # fmt: skip
LABELS = {
    "1500 kB": "Cloud_map_host Cloud_map_device",
    "500 kB": "Occupancy_grid_host",
    "1 kB": "Vehicle_status_host Vehicle_status_device x_car_host y_car_host yaw_car_host x_car_device y_car_device "
    "yaw_car_device vel_car yaw_rate steer_objective speed_objective",
    "142 MB": "NN_weights",
    "24 kB": "Matrix_SFM_host Matrix_SFM_device",
    "2 MB": "Image_lane_lines_host Image_lane_lines_device Image_host Image_device Image_SFM_host Image_SFM_device",
    "750 kB": "Bounding_box_host Bounding_box_device",
    "256 B": "IMU_data_host IMU_data_device Lane_boundaries_host Lane_boundaries_device",
}
LIMITS = {"DASM": 5, "CANbus_polling": 10, "Planner": 12, "EKF": 15, "Lidar_Grabber": 33, "PRE_SFM_gpu_POST": 33,
          "PRE_Lane_detection_gpu_POST": 200, "PRE_Detection_gpu_POST": 66,
          "PRE_Localization_gpu_POST": 400}  # fmt: skip
"""Limits on response times in ms; the original model gives Detection's and Lane_detection's to each other."""
UNITS = {"A57": ("CPU", 4, 40), "Denver": ("CPU", 2, 16), "GPU_def": ("GPU", 1, 5)}


def model() -> str:
    """Return the model: software, hardware, stimuli and limits, in its own order of items."""
    tasks = [task(name, f"periodic_{period}ms", call(run)) for name, (period, run) in TASKS.items()]
    mask = '<eventMask events="e?type=OsEvent"/>'
    for name, (period, run, stimulus) in OFFLOADED.items():
        waits = "passive" if name == "Detection" else "active"
        items = call(f"{run}_Preprocessing")
        items += f'<items xsi:type="am:InterProcessTrigger" stimulus="{stimulus}?type=InterProcessStimulus"/>'
        items += f'<items xsi:type="am:WaitEvent" waitingBehaviour="{waits}">{mask}</items>'
        items += call("AsyncOffloadingCosts") if name == "Detection" else ""
        items += f'<items xsi:type="am:ClearEvent">{mask}</items>' + call(f"{run}_Postprocessing")
        tasks.append(task(f"PRE_{name}_gpu_POST", f"periodic_{period}ms", items))
    for name, (_, run, stimulus) in OFFLOADED.items():
        parts = "".join(call(f"{run}_{part}") for part in ("host_to_device", "Function", "device_to_host"))
        done = f'<items xsi:type="am:SetEvent" process="PRE_{name}_gpu_POST?type=Task">{mask}</items>'
        tasks.append(task(name, stimulus, parts + done))
    found = []
    for name, (reads, writes, ticks) in RUNNABLES.items():
        rows = "".join(
            f'<extended key="{unit}?type=ProcessingUnitDefinition"><value xsi:type="am:DiscreteValueStatistics" '
            f'lowerBound="0" upperBound="{most}" average="{float(mean)}"/></extended>'
            for unit, (most, mean) in ticks.items()
        )
        work = f'<items xsi:type="am:Ticks">{rows}</items>' if rows else ""
        found.append(runnable(name, reads.split(), writes.split(), work))
    labels = "".join(
        f'<labels name="{name}"><size value="{size.split()[0]}" unit="{size.split()[1]}"/></labels>'
        for size, names in LABELS.items()
        for name in names.split()
    )
    periods = sorted({period for period, *_ in [*TASKS.values(), *OFFLOADED.values()]})
    stimuli = "".join(f'<stimuli xsi:type="am:InterProcessStimulus" name="{s}"/>' for *_, s in OFFLOADED.values())
    stimuli += "".join(
        f'<stimuli xsi:type="am:PeriodicStimulus" name="periodic_{p}ms"><recurrence value="{p}" unit="ms"/></stimuli>'
        for p in periods
    )
    limits = "".join(
        f'<requirements xsi:type="am:ProcessRequirement" name="d{name}" process="{name}?type=Task"><limit '
        f'xsi:type="am:TimeRequirementLimit" limitType="UpperLimit" metric="ResponseTime"><limitValue value="{ms}" '
        'unit="ms"/></limit></requirements>'
        for name, ms in LIMITS.items()
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<am:Amalthea xmlns:am="http://app4mc.eclipse.org/amalthea/2.0.0" '
        'xmlns:xmi="http://www.omg.org/XMI" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmi:version="2.0">'
        f"<swModel>{''.join(tasks + found)}{labels}</swModel>{_hardware()}<stimuliModel>{stimuli}</stimuliModel>"
        f"<constraintsModel>{limits}</constraintsModel></am:Amalthea>"
    )


def _hardware() -> str:
    text = "".join(
        f'<definitions xsi:type="am:ProcessingUnitDefinition" name="{name}" puType="{kind}"/>'
        for name, (kind, _, _) in UNITS.items()
    )
    text += '<definitions xsi:type="am:CacheDefinition" name="CPU_L2"><lineSize value="64" unit="B"/></definitions>'
    modules, domains = "", ""
    for name, (kind, count, cycles) in UNITS.items():
        rate = '<dataRate value="20" unit="GBPerSecond"/>' if kind == "GPU" else ""
        latency = "".join(
            f'<{way}Latency xsi:type="am:DiscreteValueConstant" value="{cycles}"/>' for way in ("read", "write")
        )
        for core in range(count):
            modules += (
                f'<modules xsi:type="am:ProcessingUnit" name="{name}{core}" definition="{name}?type='
                f'ProcessingUnitDefinition" frequencyDomain="{name}_Domain?type=FrequencyDomain"><accessElements>'
                f"{latency}{rate}</accessElements></modules>"
            )
        domains += f'<domains xsi:type="am:FrequencyDomain" name="{name}_Domain"><defaultValue value='
        domains += f'"{1.5 if kind == "GPU" else 2.0}" unit="GHz"/></domains>'
    system = f'<structures name="JetsonTX2" structureType="System">{modules}</structures>'
    return f"<hwModel>{text}{system}{domains}</hwModel>"
