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


def summary(unit: str = "GPU Compute Time") -> str:
    figures = "min = 20.7 ms, max = 22.1 ms, mean = 21 ms, median = 20.9 ms, percentile(90%) = 21.1 ms"
    return (
        "[05/10/2024-12:25:00] [I] === Performance summary ===\n"
        "[05/10/2024-12:25:00] [I] Throughput: 47.4646 qps\n"
        f"[05/10/2024-12:25:00] [I] Latency: {figures.replace('20.9', '25.9')}, percentile(99%) = 29.0 ms\n"
        f"[05/10/2024-12:25:00] [I] {unit}: {figures}, percentile(99%) = 22.0 ms\n"
        "[05/10/2024-12:25:00] [I] Total GPU Compute Time: 2.1 s\n"
    )


def command(options: str) -> str:
    return f"&&&& RUNNING TensorRT.trtexec [TensorRT v8502] # /usr/bin/trtexec --onnx=m.onnx {options}\n"


def table(rows: list[tuple[str, float]], form: str, runs: int = 100, total: bool = True) -> str:
    """Write rows (name, mean in ms) as --dumpProfile prints them: TensorRT 7, 8.5 or 8.6."""
    whole, said = sum(ms for _, ms in rows), "[I] "
    listed = [*rows, ("Total", whole)] if total else rows
    lines = [f"=== Profile ({runs} iterations ) ==="]
    if form == "8.6":
        lines.append("   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer")
        lines += [
            f"{ms * runs:11.2f} {ms:12.4f} {ms * 0.9:12.4f} {ms / whole * 100:9.1f}   {name}" for name, ms in listed
        ]
    else:
        median = form == "8.5"
        lines.append("  Layer   Time (ms)   Avg. Time (ms)" + ("   Median Time (ms)" if median else "") + "   Time %")
        for name, ms in listed:
            middle = f"{ms * 0.9:18.4f}" if median else ""
            lines.append(f"{name:>40} {ms * runs:11.2f} {ms:16.4f} {middle} {ms / whole * 100:8.1f}")
    return "".join(f"{said}{line}\n" for line in [*lines, ""])


LAYER_ROWS = [("Reformatting CopyNode for Input Tensor 0 to conv 1", 0.02), ("conv 1 + relu", 1.5), ("fc 0", 0.25)]


def as_table(columns: str, rows: list[tuple[str, ...]], separated: bool = False) -> str:
    """Write rows as `nsys stats` does: columns as wide as their widest cell over dashes, or comma-separated values."""
    names = columns.split("|")
    if separated:
        plain = [names, *([cell.replace(",", "") for cell in row] for row in rows)]
        return "".join(",".join(row) + "\n" for row in plain) + "\n"
    widths = [max(len(row[place]) for row in (names, *rows)) for place in range(len(names))]
    lines = [[name.center(width) for name, width in zip(names, widths, strict=True)], ["-" * width for width in widths]]
    for row in rows:
        right = [cell[:1].isdigit() for cell in row]
        cells = zip(row, widths, right, strict=True)
        lines.append([cell.rjust(width) if number else cell.ljust(width) for cell, width, number in cells])
    return "".join(" " + "  ".join(line) + "\n" for line in lines) + "\n"


PROJECTION = (
    "Range|Style|Total Proj Time (ns)|Total Range Time (ns)|Range Instances|Proj Avg (ns)|Proj Med (ns)|Proj Min (ns)|"
    "Proj Max (ns)|Proj StdDev (ns)|Total GPU Ops"
)
PROJECTED_ROWS: list[tuple[str, ...]] = [
    (":detect", "PushPop", "12,000,000", "15,000,000", "4", "3,000,000.0", "2,900,000.0", "2,800,000", "3,600,000",
     "100,000.0", "40"),
    (":my plan", "PushPop", "400,000", "500,000", "4", "100,000.0", "100,000.0", "90,000", "110,000", "1000.0", "4"),
]  # fmt: skip
PROJECTED = " ** NVTX GPU Projection Summary (nvtx_gpu_proj_sum):\n\n" + as_table(PROJECTION, PROJECTED_ROWS)
KERNELS = " ** CUDA GPU Kernel Summary ({0}):\n\n" + as_table(
    "Time (%)|Total Time (ns)|Instances|Avg (ns)|Med (ns)|Min (ns)|Max (ns)|StdDev (ns)|GridXYZ|BlockXYZ|Name",
    [
        ("75.0", "30,000,000", "40", "750,000.0", "750,000.0", "700000", "800000", "1.0", " 125    1    1",
         "  32    1    1", "void conv<float, int>(…)"),
        ("25.0", "10,000,000", "20", "500,000.0", "500,000.0", "500000", "500000", "0.0", "   1    1    1",
         "  32    1    1", "relu"),
    ],
)  # fmt: skip
OLD_RKNN = """Layer ID    Name                                         Operator            Uid       Time(us)
0           MobilenetV1/MobilenetV1/Conv2d_0/Relu6_1     TENSOR_TRANS        60        361
            _RKNN_mark_perm_60_0
2           MobilenetV1/MobilenetV1/Conv2d_0/Relu6_1     CONVOLUTION         1         920
            _2
Total Time(us): 1281
FPS(800MHz): 780.64
"""
RKNN_15 = """ID   OpType           DataType Target InputShape  OutputShape  DDR Cycles     NPU Cycles     Total Cycles   Time(us)       MacUsage(%)    WorkLoad(0/1/2)-ImproveTherical        Task Number    Lut Number     RW(KB)         FullName
1    InputOperator    UINT8    CPU    \\           (1,3,9,9)    0              0              0              7              \\              0.0%/0.0%/0.0% - Up:0.0%               0              0              147.00         InputOperator:data
2    ConvRelu         INT8     NPU    (1,3,9,9),(8)  (1,8,9,9)  94150          10584          94150          428            2.47           {0} - Up:0.0%             3              0              543.75
3    Conv             INT8     NPU    (1,8,9,9)   (1,8,9,9)    94150          10584          94150          72             2.47           {0} - Up:0.0%             3              0              543.75         Conv:c2
Total Operator Elapsed Time(us): 507
"""  # noqa: E501
RANKING = """Operator Time-Consuming Ranking:
OpType           Call Number     CPU Time(us)    NPU Time(us)    Total Time(us)    Time Ratio(%)
ConvRelu         36              0               9338            9338              66.0
Softmax          1               248             0               248               1.75
OutputOperator   1               33              0               33                0.23
"""
RANKING_2 = """           Operator Time Consuming Ranking Table
---------------------------------------------------------------------------------------------------
OpType             CallNumber   CPUTime(us)  GPUTime(us)  NPUTime(us)  TotalTime(us)  TimeRatio(%)
---------------------------------------------------------------------------------------------------
ConvRelu           36           0            0            9338         9338           66.0%
Softmax            1            248          0            0            248            1.75%
OutputOperator     1            33           0            0            33             0.23%
"""
