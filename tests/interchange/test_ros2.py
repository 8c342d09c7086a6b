"""ROS 2 traces: the CTF reader, callbacks and messages, pipelines, and results that explain themselves."""

from __future__ import annotations

import json
import re
import struct
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from ctf_writer import EVENTS, HUMBLE, chain, humble, write
from datafiles import DATA

from socsched.cli.root import run
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import SocschedError
from socsched.interchange.ctf import Event, Parser, read_trace
from socsched.interchange.ros2 import pipeline_of, read_graph, responses
from socsched.interchange.ros2 import plan_of as recorded_plan
from tools.verify import caret as verify


@pytest.fixture(scope="module")
def caret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("caret")
    with tarfile.open(DATA / "caret" / "end_to_end_sample.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def imported(caret: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    words = ["pipelines", "import", "ros2", str(caret / "trace"), "--architecture", str(caret / "architecture.yaml")]
    assert run([*words, "-o", str(folder / "sample.yaml"), "--results", str(folder / "result"), "-q"]) == 0
    return folder


def test_all_events_of_the_recorded_trace_are_read(caret: Path) -> None:
    trace = read_trace(caret / "trace")
    counts = Counter(event.name.partition(":")[2] for event in trace.events)
    assert len(trace.events) == 2880 and trace.lost == 0 and trace.env["hostname"] == "d3ba30345d96"
    wanted = {"callback_start": 480, "callback_end": 480, "dds_write": 405, "dispatch_subscription_callback": 333}
    assert wanted.items() <= counts.items() and counts["rclcpp_publish"] == 266
    times = [event.time_ns for event in trace.events]
    assert times == sorted(times) and {event.process for event in trace.events} == {25055}


def callback_times(events: tuple[Event, ...], callback: int) -> list[int]:
    """The durations of a callback by its own start and end, thread by thread."""
    opened: dict[int, int] = {}
    found: list[int] = []
    for event in events:
        if event.fields.get("callback") == callback and event.name == "ros2:callback_start":
            opened[event.thread] = event.time_ns
        if event.fields.get("callback") == callback and event.name == "ros2:callback_end":
            found.append(event.time_ns - opened.pop(event.thread))
    return sorted(found)


def test_callbacks_paths_and_times_are_those_of_caret(caret: Path, imported: Path) -> None:
    pipeline = load_pipeline(imported / "sample.yaml")
    stages = {stage.name: stage for stage in pipeline.stages}
    events = read_trace(caret / "trace").events
    timers = [e for e in events if e.name == "ros2:rclcpp_timer_callback_added"]
    links = {e.fields["timer_handle"]: e.fields["node_handle"] for e in events if "timer_link" in e.name}
    nodes = {e.fields["node_handle"]: e.fields["node_name"] for e in events if e.name == "ros2:rcl_node_init"}
    for timer in timers:
        name = str(nodes[links[timer.fields["timer_handle"]]]).replace("_", "-") + "-callback-0"
        execution = stages[name].execution
        assert execution and list(execution.values) == callback_times(events, timer.fields["callback"])
        assert stages[name].period_ns == 100_000_000
    assert stages["message-driven-node-callback-1"].after == ("drive-node-callback-0",)
    assert stages["message-driven-node-callback-1"].reads == ("message-driven-node-callback-0",)
    assert stages["timer-driven-node-callback-0"].reads == ("timer-driven-node-callback-1",)
    assert [(stage.queue, stage.overflow) for stage in pipeline.stages if stage.after] == [(10, "oldest")] * 5
    text = (imported / "sample.yaml").read_text()
    groups = [line for line in text.splitlines() if "mutually exclusive" in line]
    shared = sorted(sorted(line.split(" are ")[0].lstrip("# -").split(" and ")) for line in groups)
    assert shared == [[f"{node}-callback-{n}" for n in (0, 1)] for node in ("message-driven-node", "timer-driven-node")]
    (path,) = pipeline.chains
    names = [name.rsplit("-callback-", 1)[0] for name in path.path]
    order = ["sensor-dummy-node", "filter-node", "message-driven-node", "timer-driven-node", "actuator-dummy-node"]
    assert path.name == "target" and list(dict.fromkeys(names)) == order and path.assumed


def test_communication_latencies_are_from_publication_to_start(caret: Path) -> None:
    """CARET's definition: from rclcpp_publish to the start of the callback that took the same source time stamp."""
    events = read_trace(caret / "trace").events
    published: dict[int, tuple[int, int]] = {}
    pending: dict[int, tuple[int, int]] = {}
    wanted: Counter[int] = Counter()
    source: dict[int, tuple[int, int] | None] = {}
    topics = {e.fields["publisher_handle"]: e.fields["topic_name"] for e in events if "publisher_init" in e.name}
    for event in events:
        if event.name == "ros2:rclcpp_publish":
            pending[event.thread] = event.time_ns, event.fields["publisher_handle"]
        elif event.name == "ros2_caret:dds_bind_addr_to_stamp" and event.thread in pending:
            published[event.fields["source_stamp"]] = pending.pop(event.thread)
        elif event.name == "ros2:dispatch_subscription_callback":
            source[event.thread] = published.get(event.fields["source_stamp"])
        elif event.name == "ros2:callback_start":
            found = source.pop(event.thread, None)
            if found and topics[found[1]].startswith(("/topic", "/drive")):
                wanted[event.time_ns - found[0]] += 1
    graph = read_graph(caret / "trace")
    taken = [i for node in graph.nodes.values() for i in node.callback.instances if i.taken]
    assert Counter(i.start_ns - i.taken.time_ns for i in taken if i.taken) == wanted
    assert sum(wanted.values()) == 234


@pytest.mark.needs("babeltrace2")
def test_callbacks_communications_and_paths_equal_those_of_babeltrace2(caret: Path) -> None:
    rows = verify.compare(caret / "trace", caret / "architecture.yaml")
    assert [(row.what, sum(row.reference.values())) for row in rows] == [
        ("events", 2880),
        ("callback latencies", 381),
        ("communication latencies", 234),
        ("instances of path target", 47),
    ]
    assert all(row.equal for row in rows)


def test_why_report_and_compare_answer_for_the_recording(
    imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = imported / "result"
    assert run(["why", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (chain_,) = load_pipeline(imported / "sample.yaml").chains
    response = json.loads((folder / "result.json").read_text())["chains"]["target"]["response_time_ns"]["max"]
    assert response == chain_.deadline_ns, "the recording meets the deadline that was assumed from it"
    assert str(response) in json.dumps(found), "the slowest frame is explained"
    assert run(["compare", str(folder), str(folder), "-q"]) == 0
    page = tmp_path / "r.html"
    assert run(["report", str(folder), "-o", str(page), "--pipeline", str(imported / "sample.yaml"), "-q"]) == 0
    assert "A recording, neither planned nor proved" in page.read_text()


def test_newer_tracepoints_link_by_the_time_stamp_of_the_message(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "t", chain()))
    lidar, detector = graph.nodes["lidar-callback-0"], graph.nodes["perception-detector-callback-0"]
    assert (lidar.period_ns, lidar.jitter_ns) == (100, 5) and detector.after == lidar.name
    assert [i.end_ns - i.start_ns for i in detector.frames.values()] == [20, 21, 22, 23, 24]
    assert list(detector.frames) == list(lidar.frames) == list(range(5))
    pipeline = pipeline_of(graph, tmp_path / "t").pipeline("t.yaml")
    assert not pipeline.chains and any("no reads, no chains" in note for note in graph.notes)
    assert pipeline.stage(detector.name).costs[0].time_ns.value == 24


def test_a_topic_from_outside_is_a_sensor_and_losses_are_reported(tmp_path: Path) -> None:
    rows = [row for row in chain(6, 200) if row[2] not in ("rmw_publish", "rcl_publisher_init")]
    graph = read_graph(write(tmp_path / "t", rows, lost=3))
    assert graph.sources["scan"].period_ns == 201 and graph.nodes["perception-detector-callback-0"].after == "scan"
    notes = " ".join(graph.notes)
    assert "discarded 3 events" in notes and "publisher of /scan is not in the trace" in notes


NAMES = ["source-callback-0", "relay-callback-0", "sink-callback-0"]


@pytest.mark.parametrize("clock", [0, 5000, 10**18], ids=["same clock", "offset", "epoch"])
@pytest.mark.parametrize(("dds", "dropped"), [(True, ()), (True, (2, 5, 6)), (False, ())])
def test_traces_of_humble_are_linked_by_what_they_have(
    dds: bool, dropped: tuple[int, ...], clock: int, tmp_path: Path
) -> None:
    """By `dds:write` where it is recorded, else by order; the notes say which, and every frame follows its chain."""
    graph = read_graph(write(tmp_path / "t", humble(20, dds, clock, dropped), events=HUMBLE))
    assert list(graph.nodes) == NAMES and not graph.sources
    assert [node.after for node in graph.nodes.values()] == ["", *NAMES[:2]]
    for node in graph.nodes.values():
        assert sorted(node.frames) == list(range(20))
        assert all(instance.start_ns // 1000 % 1000 >= frame % 100 for frame, instance in node.frames.items())
    notes = " ".join(graph.notes)
    by_order = 40 if not dds else 2 * len(dropped)
    assert "of 40 messages that callbacks took" in notes and "and 0 are not linked" in notes
    assert (f"{40 - by_order} are linked by the time stamp of dds:write" in notes) == dds
    assert (f"{by_order} are linked by order" in notes) == bool(by_order)
    assert "not in the trace" not in notes


def test_takes_of_other_processes_are_not_linked_to_messages_with_other_stamps(tmp_path: Path) -> None:
    rows = humble(10, True)
    foreign = [
        (time, thread, name, [values[0], values[1], 77, 1] if name == "rmw_take" and values[0] == 122 else values)
        for time, thread, name, values in rows
    ]
    graph = read_graph(write(tmp_path / "t", foreign, events=HUMBLE))
    assert graph.nodes["relay-callback-0"].after == "topic-a" and "topic-a" in graph.sources
    assert any("No message that was taken on /topic_a could be linked" in note for note in graph.notes)


def test_executions_across_discarded_events_are_left_out_and_counted(tmp_path: Path) -> None:
    """Events are lost between packets: the end of one execution and the start of the next, which then look like one."""
    rows = chain(40, 100)
    head = [row for row in rows if row[0] < 1000]
    body = sorted((row for row in rows if row[0] >= 1000), key=lambda row: row[0])
    for begin, end in ((1507, 1540), (2000, 2119), (2503, 2704)):
        parts = [[r for r in body if r[0] < begin], [r for r in body if r[0] >= end]]
        missing = len(body) - len(parts[0]) - len(parts[1])
        packets = [([*head, *parts[0]], 0), (parts[1], missing)]
        graph = read_graph(write(tmp_path / f"t{begin}", [], events=EVENTS, packets=packets))
        lidar, detector = graph.nodes["lidar-callback-0"], graph.nodes["perception-detector-callback-0"]
        assert {i.end_ns - i.start_ns for i in lidar.callback.instances} == {12}
        durations = [i.end_ns - i.start_ns for i in detector.callback.instances]
        assert set(durations) <= set(range(20, 60)) and len(durations) >= 36
        note = next(note for note in graph.notes if "discarded" in note)
        assert f"discarded {missing} events" in note and "executions of callbacks across the gaps are left out" in note
        plan = recorded_plan(graph, "p", responses(graph))
        assert all(note in task.source for task in plan.tasks), "the result says so, too"


def test_paths_of_one_name_are_all_kept(caret: Path, tmp_path: Path) -> None:
    text = (caret / "architecture.yaml").read_text()
    found = re.search(r"^named_paths:(\n(?:[ -].*\n)+)", text, re.M)
    assert found
    (tmp_path / "a.yaml").write_text(text.replace(found[1], found[1] + found[1].lstrip("\n"), 1))
    one = read_graph(caret / "trace", caret / "architecture.yaml").paths
    two = read_graph(caret / "trace", tmp_path / "a.yaml").paths
    assert list(one) == ["target"] and list(two) == ["target", "target-2"] and two["target-2"] == one["target"]


def test_a_gap_on_another_processor_costs_nothing(tmp_path: Path) -> None:
    rows = chain(10, 100)
    folder = write(tmp_path / "t", rows)
    write(folder, [], packets=[([(1001, 9, "rcl_timer_init", [1, 1])], 0), ([(1950, 9, "rcl_timer_init", [2, 1])], 5)],
          cpu=0, stream="stream_1")  # fmt: skip
    graph = read_graph(folder)
    assert len(graph.nodes["lidar-callback-0"].callback.instances) == 10
    assert any("discarded 5 events: 0 executions" in note for note in graph.notes)


def test_equal_processes_and_handles_of_two_hosts_are_kept_apart(tmp_path: Path) -> None:
    """Containers have a process 7 each, whose handles may be equal."""
    for host in ("a", "b"):
        rows = [(t, thread, name, ["/" + host if v == "/scan" else v for v in values])
                for t, thread, name, values in chain(5, 100)]  # fmt: skip
        write(
            tmp_path / "t" / host,
            [(t, n, k, [f"{host}_{v}" if v == "lidar" else v for v in vs]) for t, n, k, vs in rows],
        )
    graph = read_graph(tmp_path / "t")
    assert len(graph.nodes) == 4 and len({node.after for node in graph.nodes.values() if node.after}) == 2
    assert all(len(node.callback.instances) == 5 for node in graph.nodes.values())
    assert len(graph.threads) == 4


def test_topics_that_differ_in_signs_are_sensors_of_their_own(tmp_path: Path) -> None:
    rows = [row for row in chain(6, 200) if row[2] not in ("rmw_publish", "rcl_publisher_init")]
    other = [
        (time, thread, name, [{21: 31, 22: 32, 23: 33, "/a/b": "/a_b"}.get(value, value) for value in values])
        for time, thread, name, values in (
            (t, n, k, ["/a/b" if v == "/scan" else v for v in vs]) for t, n, k, vs in rows
        )
        if "subscription" in name or values[:1] == [23] or name == "rmw_take"
    ]
    first = [(t, n, k, ["/a/b" if v == "/scan" else v for v in vs]) for t, n, k, vs in rows]
    second = [(t, n + 10 * (n > 1), k, vs) for t, n, k, vs in other]
    graph = read_graph(write(tmp_path / "t", sorted([*first, *second], key=lambda row: row[0])))
    assert sorted(source.topic for source in graph.sources.values()) == ["/a/b", "/a_b"]
    assert len(graph.sources) == 2


def test_a_latched_topic_from_outside_has_no_period_of_microseconds(tmp_path: Path) -> None:
    rows = [row for row in chain(60, 10**8) if row[2] not in ("rmw_publish", "rcl_publisher_init")]
    late = [row for row in rows if row[1] == 2][6:]
    graph = read_graph(write(tmp_path / "t", [row for row in rows if row not in late]))
    (source,) = graph.sources.values()
    assert len(source.times) == 2 and source.period_ns > 10**9
    assert any("no rate follows" in note and "over their number" in note for note in graph.notes)


def test_executions_stamped_by_another_clock_are_left_out(tmp_path: Path) -> None:
    rows = chain(10, 100)
    epoch = 1_700_000_000 * 10**9
    moved = [(time + epoch if time >= 1300 else time, *rest) for time, *rest in rows]
    graph = read_graph(write(tmp_path / "t", moved))  # type: ignore[arg-type]
    assert [len(node.callback.instances) for node in graph.nodes.values()] == [7, 7]
    assert any("6 executions are stamped by another clock" in note for note in graph.notes)


def test_every_stream_has_its_clock(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", chain(5))
    text = (folder / "metadata").read_text()
    clocks = "clock { name = boot; freq = 1000; offset_s = 7; offset = 3; };\n"
    text = text.replace("clock { name = monotonic", clocks + "clock { name = monotonic")
    (folder / "metadata").write_text(text)
    assert min(event.time_ns for event in read_trace(folder).events) == 5001
    (folder / "metadata").write_text(text.replace("map = clock.monotonic.value", "map = clock . boot . value"))
    assert min(event.time_ns for event in read_trace(folder).events) == 7_004_000_000


def test_gaps_in_a_timer_leave_out_frames(tmp_path: Path) -> None:
    rows = [row for row in chain(5) if not 1100 <= row[0] < 1200]
    graph = read_graph(write(tmp_path / "t", rows))
    assert list(graph.nodes["lidar-callback-0"].frames) == [0, 2, 3, 4]
    assert len(graph.nodes["lidar-callback-0"].releases) == 5


def test_the_order_of_bytes_is_that_of_the_trace(tmp_path: Path) -> None:
    """Fields in network order, as of addresses, do not make a trace big-endian; packets of metadata say theirs."""
    folder = write(tmp_path / "t", chain(5))
    text = (folder / "metadata").read_text()
    address = "typealias integer { size = 32; align = 8; signed = false; byte_order = be; } := address_t;\n"
    (folder / "metadata").write_text(address + text + address.replace("address_t", "other_t"))
    assert len(read_trace(folder).events) == len(chain(5))
    for order in "<>":
        content = 37 + len(text)
        head = struct.pack(f"{order}I16sIIIBBBBB", 0x75D11D57, bytes(16), 0, 8 * content, 8 * content, 0, 0, 0, 1, 8)
        (folder / "metadata").write_bytes(head + text.encode())
        assert len(read_trace(folder).events) == len(chain(5))


def test_lengths_may_be_in_the_header_of_an_event(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", chain(5))
    text = (folder / "metadata").read_text()
    changed = text.replace("uint32_t id; stamp_t timestamp;", "uint32_t id; stamp_t timestamp; uint32_t count;")
    changed = changed.replace(
        "event.context := struct {", "event.context := struct { uint8_t extra[stream.event.header.count];"
    )
    (folder / "metadata").write_text(changed)
    raw = (folder / "stream_0").read_bytes()
    out, names = b"", [name.partition(":")[2] for name in EVENTS]
    for time, thread, name, values in chain(5):
        fields = b"".join(
            value.encode() + b"\0" if kind == "s" else struct.pack(f"<{kind}", value)
            for kind, value in zip(EVENTS[f"ros2:{name}"].values(), values, strict=True)
        )
        out += struct.pack("<IQI", names.index(name), time, 2) + b"xy" + struct.pack("<ii", 7, thread) + fields
    size = (68 + len(out)) * 8
    head = raw[:24] + struct.pack("<QQQQQI", 0, 0, size, size + 64, 0, 3)
    (folder / "stream_0").write_bytes(head + out + bytes(8))
    assert len(read_trace(folder).events) == len(chain(5))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '\x1e{"type": "preamble", "version": 2}',
            "metadata:1:1: metadata: expected metadata of CTF 1.8, got that of CTF 2",
        ),
        ("nonsense;", r"metadata:1:1: metadata: expected a declaration"),
        ("trace { major = 1;", "ends too early"),
        ("typealias integer { size = 900; } := x;", "1 to 64 bits"),
        ("typealias integer { size = 8; align = 3; } := x;", "power of two"),
        ("typealias unknown := x;", "expected a type, got 'unknown'"),
        ("typealias " + "struct { " * 50, "nested at most"),
        ("struct a { string s[9999999]; };", "at most"),
        ("\x01 {", "expected a declaration"),
    ],
)
def test_faulty_metadata_gives_its_position(text: str, expected: str) -> None:
    with pytest.raises(SocschedError, match=expected):
        Parser(text, "metadata").parse()


@pytest.mark.parametrize("cut", [1, 30, 70, 500])
def test_damaged_streams_are_refused(cut: int, tmp_path: Path) -> None:
    folder = write(tmp_path / "t", chain())
    stream = folder / "stream_0"
    stream.write_bytes(stream.read_bytes()[:-cut])
    with pytest.raises(SocschedError, match="damaged stream"):
        read_graph(folder)
    stream.write_bytes(b"\xff" * 200)
    with pytest.raises(SocschedError, match="damaged stream"):
        read_graph(folder)


def test_faulty_sources_give_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["-o", str(tmp_path / "p.yaml")]
    assert run(["pipelines", "import", "ros2", str(tmp_path / "none"), *out]) == 2
    (tmp_path / "empty").mkdir()
    assert run(["pipelines", "import", "ros2", str(tmp_path / "empty"), *out]) == 2
    architecture = tmp_path / "a.yaml"
    architecture.write_text("nodes: 3\n")
    trace = write(tmp_path / "t", chain())
    assert run(["pipelines", "import", "ros2", str(trace), "--architecture", str(architecture), *out]) == 2
    assert run(["pipelines", "import", "amalthea", str(architecture), "--results", str(tmp_path / "r"), *out]) == 2
    err = capsys.readouterr().err
    assert "not a folder" in err and "no file named metadata" in err and "expected nodes and named_paths" in err
    assert "Traceback" not in err and not (tmp_path / "p.yaml").exists()
