"""Callbacks, communications and path latencies of a CARET trace, by babeltrace2 alone.

Run by `tools.verify.caret` under an interpreter that has python3-bt2; it imports nothing of socsched.  Definitions are
those of CARET_analyze: a callback takes from callback_start to callback_end on its thread; a communication takes from
rclcpp_publish to the start of the callback that took the message with the same source time stamp; a path goes back from
every execution of its last callback: to the publisher of the message taken, or, where a node hands data over in a
variable, to the writing callback's last execution that had ended.
"""

import itertools
import json
import sys

import bt2


def events(folder):
    """Yield (time in ns, name, thread, fields) of every event, in the order of time."""
    for message in bt2.TraceCollectionMessageIterator(folder):
        if type(message) is bt2._EventMessageConst:
            event = message.event
            fields = dict(event.payload_field.items())
            thread = int(event.common_context_field["vtid"])
            yield message.default_clock_snapshot.ns_from_origin, event.name.partition(":")[2], thread, fields


def follow(folder):
    """Return count of events, callbacks (address -> label) and executions, each with its message and publications."""
    count, nodes, topics, subscriptions, timers, callbacks = 0, {}, {}, {}, {}, {}
    open_, pending, taken, published, runs, stamps = {}, {}, {}, {}, [], []
    for time, name, thread, f in events(folder):
        count += 1
        if name == "rcl_node_init":
            nodes[int(f["node_handle"])] = str(f["namespace"]).rstrip("/") + "/" + str(f["node_name"])
        elif name == "rcl_publisher_init":
            topics[int(f["publisher_handle"])] = str(f["topic_name"])
        elif name == "rcl_subscription_init":
            label = (nodes[int(f["node_handle"])], str(f["topic_name"]))
            subscriptions[int(f["subscription_handle"])] = label
        elif name == "rclcpp_subscription_init":
            subscriptions[int(f["subscription"])] = subscriptions[int(f["subscription_handle"])]
        elif name == "rclcpp_subscription_callback_added":
            callbacks[int(f["callback"])] = subscriptions[int(f["subscription"])]
        elif name == "rclcpp_timer_callback_added":
            timers[int(f["timer_handle"])] = int(f["callback"])
        elif name == "rclcpp_timer_link_node":
            callbacks[timers[int(f["timer_handle"])]] = (nodes[int(f["node_handle"])], "timer")
        elif name == "dispatch_subscription_callback":
            taken[thread] = int(f["source_stamp"])
        elif name == "callback_start":
            run = {"callback": int(f["callback"]), "start": time, "end": None, "stamp": taken.pop(thread, None)}
            open_[thread] = run
        elif name == "callback_end" and thread in open_:
            run = open_.pop(thread)
            run["end"] = time
            runs.append(run)
        elif name == "rclcpp_publish":
            pending[thread] = (time, topics[int(f["publisher_handle"])], open_.get(thread))
        elif name == "dds_bind_addr_to_stamp" and thread in pending:
            published[int(f["source_stamp"])] = pending.pop(thread)
            stamps.append(int(f["source_stamp"]))
    return count, callbacks, runs, published


def main():
    """Write the figures as JSON: `count`, `callbacks`, `communications` and the ends of every instance of a path."""
    folder, hops = sys.argv[1], json.loads(sys.argv[2])
    count, callbacks, runs, published = follow(folder)
    latencies, communications = {}, []
    for run in runs:
        label = callbacks.get(run["callback"])
        if label is None:
            continue
        latencies.setdefault("@".join(label), []).append(run["end"] - run["start"])
        if run["stamp"] in published:
            time, topic, _ = published[run["stamp"]]
            communications.append([topic, run["start"] - time])
    paths = []
    by_label = {}
    for run in runs:
        by_label.setdefault("@".join(callbacks.get(run["callback"], ("", ""))), []).append(run)
    for last in by_label.get(hops[-1], []):
        run = last
        for before, name in reversed(list(itertools.pairwise(hops))):
            if before.partition("@")[0] == name.partition("@")[0]:
                done = [r for r in by_label[before] if r["end"] <= run["start"]]
                run = max(done, key=lambda r: r["end"]) if done else None
            else:
                found = published.get(run["stamp"])
                run = found[2] if found and found[2] and found[2]["end"] is not None else None
            if run is None:
                break
        if run is not None:
            paths.append([run["start"], last["end"]])
    json.dump({"count": count, "callbacks": latencies, "communications": communications, "paths": paths}, sys.stdout)


if __name__ == "__main__":
    main()
