"""Small profiles in the forms of other tools, for tests and as seeds of the fuzzer."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

XAVIER = "jetson-agx-xavier"
DATA = Path(__file__).parents[1] / "data" / "haxconn"


def read(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def trtexec(path: Path, split: str) -> Path:
    """Write the rows of a split in the form of trtexec --exportProfile."""
    found = read("googlenet_trtexec_rows.json")["splits"][split]
    names = [name for _, name, _ in read("layer_names.json")["layers"]["googlenet"]]
    first = names.index(found["dla_from"] or "loss3/classifier")
    block = "{{{}}}".format(",".join(names[first : names.index("loss3/classifier") + 1]))
    rows = [
        {"name": n.replace("{DLA}", block), "timeMs": ms * found["count"], "averageMs": ms} for n, ms in found["rows"]
    ]
    path.write_text(json.dumps([{"count": found["count"]}, *rows]))
    return path


def ort(path: Path, provider: str = "CUDAExecutionProvider") -> Path:
    events: list[dict[str, Any]] = [{"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 9}]
    for run_, scale in enumerate((10, 1, 2)):
        start = 1000 * (run_ + 1)
        events.append({"cat": "Session", "name": "model_run", "ts": start, "dur": 500})
        for place, (name, who) in enumerate((("a", provider), ("b", provider), ("c", "CPUExecutionProvider"))):
            args = {"op_name": "Conv", "provider": who, "node_index": str(place)}
            row = {"cat": "Node", "name": f"{name}_kernel_time", "ts": start + 10 * place + 1, "dur": 5 * scale}
            events.append(row | {"args": args})
            events.append({"cat": "Node", "name": f"{name}_fence_before", "ts": start, "dur": 1, "args": {}})
    path.write_text(json.dumps(events))
    return path


def torch_trace(path: Path, kernels: bool = True) -> Path:
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name"}]
    key = 0
    for job in range(3):
        start = 1000.0 * job
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": "detect", "pid": 1, "tid": 1, "ts": start, "dur": 100}
        )
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": "inner", "pid": 1, "tid": 1, "ts": start + 1, "dur": 50}
        )
        for kernel in range(2 if kernels else 0):
            key += 1
            args = {"correlation": key}
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 1.5}
            events.append(launch | {"ts": start + 5 + kernel, "args": args})
            begin = start + 200 + 40 * kernel
            events.append(
                {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": begin, "dur": 30, "args": args}
            )
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def nsys(path: Path, ranges: bool = True, graphs: bool = False) -> Path:
    with closing(sqlite3.connect(path)) as base:
        base.executescript(
            """CREATE TABLE StringIds(id INTEGER, value TEXT);
            CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
                                     globalTid INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, globalTid INTEGER,
                                                     correlationId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, correlationId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INTEGER, end INTEGER, correlationId INTEGER,
                                                         graphId INTEGER);
            INSERT INTO StringIds VALUES (5, 'head');"""
        )
        for job in range(4):
            start = 10_000 * job
            if ranges:
                base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, 5, 1)", (start, start + 500))
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 1, ?)", (start + 10, start + 20, job))
            table = "GRAPH_TRACE" if graphs else "KERNEL"
            more = ", 3" if graphs else ""
            base.execute(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES (?, ?, ?{more})",
                (start + 600, start + 1600 + job, job),
            )
        base.commit()
    return path


TRACE_CMD = """cpus=2
          <idle>-0     [000]    10.000100: sched_wakeup:         cam:41 [120] CPU:000
          <idle>-0     [000]    10.000200: sched_switch:         swapper/0:0 [120] R ==> cam:41 [120]
             cam-41    [000]    10.001200: sched_switch:         cam:41 [120] R ==> hog:50 [98]
             hog-50    [000]    10.001700: sched_switch:         hog:50 [98] S ==> cam:41 [120]
             cam-41    [000]    10.002200: sched_switch:         cam:41 [120] S ==> swapper/0:0 [120]
"""


HEAD = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier\n"
QNN = HEAD + "".join(
    f'UNKNOWN,BACKEND,{us + 300},US,BACKEND,ROOT,QNN (execute) time\n'
    f'UNKNOWN,BACKEND,{us},US,BACKEND,SUB-EVENT,Accelerator (execute) time\n'
    'UNKNOWN,NODE,600,CYCLES,BACKEND,SUB-EVENT,"Conv_token_1_2:OpId_7 (cycles)"\n'
    'UNKNOWN,NODE,200,CYCLES,BACKEND,SUB-EVENT,"relu:OpId_8 (cycles)"\n'
    "UNKNOWN,BACKEND,4,COUNT,BACKEND,SUB-EVENT,Number of HVX threads used\n"
    for us in (2900, 2000, 2100, 2000)
)  # fmt: skip


ROWS = """1  InputOperator  INT8  CPU  \\  (1,3,9,9)  0/0/0  {4}  0.0%/0.0%/0.0%  0  InputOperator:x
2  ConvRelu  INT8  NPU  (1,3,9,9),(8,3,3,3),(8)  (1,8,9,9)  10/300/300  {390}  0.3/0.0/0.0 100%/0%/0% 384 Conv:/c/Conv
3  Add  INT8  NPU  (1,8,9,9),...  (1,8,9,9)  700/0/700  {110}  \\  100.0%/0.0%/0.0%  12  Add:/a
4  Softmax  FLOAT16 CPU  (1,8,9,9)  (1,8,9,9)  0/0/0  {50}  \\  0.0%/0.0%/0.0%  3  Softmax:s
5  OutputOperator INT8  CPU  (1,8,9,9)  \\  0/0/0  {6}  \\  0.0%/0.0%/0.0%  3  OutputOperator:y
"""
TABLE = (
    "-----\n             Network Layer Information Table\n-----\nID   OpType DataType Target InputShape OutputShape "
)


def rknn(timed: bool) -> str:
    rows = re.sub(r"\{(\d+)\}", r"\1" if timed else "", ROWS)
    if timed:
        head = "NPU Current Frequency List:\n    - 1000000000\nCPU Current Frequency List:\n    - 1800000\n"
        end = "Total Operator Elapsed Per Frame Time(us): 560\n"
        return head + TABLE + "Cycles(DDR/NPU/Total) Time(us) FullName\n-----\n" + rows + "-----\n" + end
    text = TABLE + "Cycles(DDR/NPU/Total) RW(KB) FullName\n-----\n" + rows + "-----\n"
    return "".join(f"D RKNN: [12:00:00.000] {line}\n" for line in text.splitlines())


JTOP = """time,uptime,jetson_clocks,nvp model,CPU1,GPU,RAM,Temp GPU,Temp AO,Power CPU,Power TOT
2026-01-01 10:00:00,1:00,ON,MAXN,20,80,0.4,48.5,-256,1000,12000
2026-01-01 10:00:01,1:01,ON,MAXN,OFF,60,0.4,51.5,-256,1000,14000
"""


BAG_ROWS = [(1, 1_000_000 * (50 + 10 * n), b"1234") for n in range(4)]


def database(
    file: Path, rows: Sequence[tuple[int, int, bytes]] = BAG_ROWS, names: tuple[str, ...] = ("/imu", "/text")
) -> Path:
    """Write messages (topic, time in ns, data) as rosbag2 stores them in SQLite."""
    with closing(sqlite3.connect(file)) as base:
        base.execute("CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT)")
        base.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)")
        kinds = ("sensor_msgs/msg/Imu", "std_msgs/msg/String")
        base.executemany(
            "INSERT INTO topics VALUES(?, ?, ?, 'cdr')",
            [(number, name, kind) for number, (name, kind) in enumerate(zip(names, kinds, strict=False), 1)],
        )
        base.executemany("INSERT INTO messages(topic_id, timestamp, data) VALUES(?, ?, ?)", rows)
        base.commit()
    return file
