"""What an engine relies on: recording never blocks, never raises, loses nothing silently; life and death in order."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from fake_agent import FakeAgent
from statsbus import Publisher
from statsbus.link import Link

STEP = {"inter_token_latencies_iter": [0.01] * 256}
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run_python(folder, program):
    """A process of its own that publishes to the folder's endpoints."""
    return subprocess.Popen(
        # Python 3.12 and later warn of any fork beside a thread; what the children do here shows that ours is safe.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": ROOT, "STATSBUS_ENGINES": f"ipc://{folder}/engines"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_of(agent, process, timeout_s=20.0):
    """Exit code and stderr, while the agent goes on."""
    agent.until(lambda: process.poll() is not None, timeout_s)
    out, err = process.communicate()
    return process.returncode, out, err


# ---- threads, numbers, flush


def test_many_threads_record_and_every_record_counts_once_in_its_threads_order(healing_agent, publish):
    publisher = publish([{"dp_rank": str(n)} for n in range(8)])

    def record(source):
        for n in range(3000):
            publisher.step(source, None, {"n": n})

    with healing_agent.serving():
        threads = [threading.Thread(target=record, args=(source,)) for source in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert publisher.flush(20.0)
    records = healing_agent.records[publisher.id]
    assert sorted(records) == list(range(1, 24_001)) and not any(healing_agent.lost.values())
    for source in range(8):
        mine = [r[3]["iteration_stats"]["n"] for _, r in sorted(records.items()) if r[1] == source]
        assert mine == list(range(3000))


def test_flush_waits_for_the_agent_to_have_applied_all(agent, publish):
    publisher = publish()
    assert publisher.flush(0.0), "nothing is recorded, so nothing is missing"
    for _ in range(5):
        publisher.step(0, None, STEP)
    assert not publisher.flush(0.05)
    agent.until(lambda: agent.of("hello"))
    agent.say(publisher.id, "applied", agent.lineage, [1, 3])
    agent.until(lambda: agent.of("mark"))
    assert not publisher.flush(0.05) and publisher.backlog()[0] == 2
    agent.say(publisher.id, "applied", agent.lineage, [1, 5])
    assert publisher.flush(5.0) and publisher.backlog()[0] == 0
    publisher.step(0, None, STEP)
    assert not publisher.flush(0.05)


def test_an_agent_that_comes_late_gets_what_the_ring_holds(folder, publish):
    publisher = publish(ring_records=100)
    for n in range(1, 251):
        publisher.step(0, None, {"n": n})
    deadline = time.monotonic() + 5
    while publisher.counts()["dropped"] < 150 and time.monotonic() < deadline:
        time.sleep(0.01)
    agent = FakeAgent(folder, heals=True)
    try:
        with agent.serving():
            publisher.step(0, None, {"n": 251})
            assert publisher.flush(10.0)
        assert sorted(agent.records[publisher.id]) in (list(range(151, 252)), list(range(152, 252)))
        assert publisher.counts()["dropped"] in (150, 151)
        assert agent.ranges(publisher.id) == [1, 251]
    finally:
        agent.close()


def test_a_restarted_agent_is_greeted_with_the_mark_and_can_carry_on(folder, publish):
    publisher = publish()
    first = FakeAgent(folder, heals=True)
    with first.serving():
        for _ in range(10):
            publisher.step(0, None, STEP)
        assert publisher.flush(10.0)
    first.close()
    deadline = time.monotonic() + 5
    while publisher.counts()["subscribed"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not publisher.counts()["subscribed"], "nothing is kept in queues for an agent that is gone"
    for _ in range(10):
        publisher.step(0, None, STEP)
    second = FakeAgent(folder)
    try:
        hello = second.until(lambda: second.of("hello"))[0]
        assert hello.payload["mark"] == [first.lineage, [1, 10]]
        second.say(publisher.id, "ask", 11, 20)
        second.until(lambda: second.of("end"))
        assert set(second.records[publisher.id]) >= set(range(11, 21))
    finally:
        second.close()


def test_messages_lost_on_the_way_are_had_again(folder, publish):
    import random

    chance = random.Random(7)
    agent = FakeAgent(folder, heals=True, drop=lambda m: m.kind == "rec" and not m.is_replay and chance.random() < 0.5)
    try:
        publisher = publish(batch_s=0.002)
        with agent.serving():
            for n in range(300):
                publisher.step(0, None, {"n": n})
                time.sleep(0.0005)
            assert publisher.flush(20.0)
        assert sorted(agent.records[publisher.id]) == list(range(1, 301))
    finally:
        agent.close()


# ---- never blocks, bounded


def test_without_an_agent_recording_goes_on_and_memory_is_bounded(publish):
    publisher = publish(ring_records=1000, ring_bytes=1 << 20)
    longest = 0.0
    for _ in range(50_000):
        start = time.perf_counter()
        publisher.step(0, {"num_running_reqs": 1}, STEP)
        longest = max(longest, time.perf_counter() - start)
    counts = publisher.counts()
    ledger = publisher._ledger
    assert counts["recorded"] == 50_000
    assert counts["ring_bytes"] <= 1 << 20 and ledger.pending_bytes <= (1 << 20) // 4 + 10_000
    assert longest < 1.0
    publisher.flush(0.0)
    assert publisher.counts()["dropped"] == 50_000 - publisher.counts()["ring_records"]


def test_a_stalled_agent_costs_no_time_and_gets_the_ring_when_it_comes_back(healing_agent, publish):
    publisher = publish(batch_s=0.002, ring_bytes=4 << 20)
    healing_agent.until(lambda: healing_agent.of("hello"))
    start = time.monotonic()
    for n in range(20_000):  # 46 MB: more than queues and ring hold
        publisher.step(0, None, STEP)
        if n % 200 == 0:
            time.sleep(0.001)
    assert time.monotonic() - start < 10
    assert publisher.counts()["ring_bytes"] <= 4 << 20
    with healing_agent.serving():
        assert publisher.flush(20.0)
    assert healing_agent.ranges(publisher.id) == [1, 20_000]
    assert len(healing_agent.records[publisher.id]) >= publisher.counts()["ring_records"] - 1


def test_without_its_thread_a_publisher_stays_bounded_and_tries_again(folder, monkeypatch, caplog):
    real = Link.start

    def cannot(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Link, "start", cannot)
    publisher = Publisher([{}], engines=f"ipc://{folder}/engines", ring_records=1000, ring_bytes=1 << 20)
    for _ in range(5000):
        publisher.step(0, None, STEP)
    assert publisher.counts()["recorded"] == 5000 and publisher.counts()["ring_bytes"] <= 1 << 20
    assert publisher._ledger.pending_bytes <= (1 << 20) // 4 + 10_000
    assert publisher.counts()["faults"] > 0 and len(caplog.records) == 1
    monkeypatch.setattr(Link, "start", real)
    for _ in range(500):
        publisher.step(0, None, STEP)
    assert publisher._link is not None
    publisher.close(timeout_s=0.0)


def test_records_do_not_each_wake_the_thread(agent, publish, monkeypatch):
    wakes = []
    wake = Link.wake
    monkeypatch.setattr(Link, "wake", lambda self: (wakes.append(1), wake(self))[1])
    publisher = publish(batch_s=0.05)
    agent.until(lambda: agent.of("hello"))
    for _ in range(2000):
        publisher.step(0, None, STEP)
    agent.until(lambda: len(agent.records.get(publisher.id, ())) == 2000)
    assert len(wakes) <= 2


def test_an_idle_publisher_costs_next_to_nothing(agent, publish):
    publish(beat_s=1.0)
    agent.until(lambda: agent.of("hello"))
    start = time.process_time()
    time.sleep(1.5)
    assert time.process_time() - start < 0.015


def test_an_endpoint_that_cannot_be_is_no_fault_of_the_engine(caplog):
    publisher = Publisher([{}], engines="ipc:///nowhere/" + "x" * 200, replay="tcp://")
    for _ in range(10):
        publisher.step(0, None, STEP)
    deadline = time.monotonic() + 5
    while not publisher.counts()["network_faults"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert publisher.counts()["network_faults"] and publisher.counts()["recorded"] == 10
    publisher.close(timeout_s=0.0)


# ---- never raises


class Unprintable:
    __slots__ = ()

    def __str__(self):
        raise RuntimeError("no text")


def cyclic():
    loop = {}
    loop["self"] = loop
    return loop


@pytest.mark.parametrize("bad", [2**70, "\ud800", Unprintable(), cyclic()], ids=["int", "str", "object", "cycle"])
def test_a_field_that_cannot_be_encoded_costs_that_field_only(agent, publish, bad, caplog):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    for _ in range(2):
        publisher.step(0, {"num_running_reqs": 1, "bad": bad}, {"n": [1, bad, 2]})
    publisher.step(0, {"num_running_reqs": 2}, None)
    agent.until(lambda: len(agent.records.get(publisher.id, ())) == 3)
    scheduler, iteration = (agent.records[publisher.id][1][3][k] for k in ("scheduler_stats", "iteration_stats"))
    assert scheduler["num_running_reqs"] == 1
    assert iteration["n"] == [1, 2] or iteration["n"][::2] == [1, 2]
    assert publisher.counts()["salvaged"] == publisher.counts()["faults"] == 2
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.step(7, {}, {}),
        lambda p: p.step("0", {}, {}),
        lambda p: p.step([], {}, {}),
        lambda p: p.step(None, {}, {}),
        lambda p: p.step(0, {}, {}, time="soon"),
        lambda p: p.step(0, {}, {}, time=float("nan")),
        lambda p: p.event(0, {"sleep": {}}, time=float("inf")),
        lambda p: p.event(0, None),
        lambda p: p.event(0, {"sleep": 1}),
        lambda p: p.event(0, {1: {}}),
        lambda p: p.event(9, {"sleep": {}}),
        lambda p: p.observe(0, None),
        lambda p: p.observe(0, [("x", None)]),
        lambda p: p.observe(0, [(1, None, 2)]),
        lambda p: p.observe(0, [("x", None, "many")]),
        lambda p: p.observe(0, [("x", None, [1, None])]),
        lambda p: p.observe(0, [("x", 5, 1)]),
        lambda p: p.observe(3, [("x", None, 1)]),
    ],
)
def test_a_wrong_call_is_counted_sends_nothing_and_does_not_raise(publish, call):
    publisher = publish()
    call(publisher)
    assert publisher.counts()["recorded"] == 0 and publisher.counts()["faults"] >= 1


def test_true_as_a_source_travels_as_its_index(agent, publish):
    publisher = publish([{}, {"dp_rank": "1"}])
    agent.until(lambda: agent.of("hello"))
    publisher.step(True, {}, {})
    agent.until(lambda: agent.records.get(publisher.id))
    assert type(agent.records[publisher.id][1][1]) is int


def test_a_logging_handler_that_raises_does_not_reach_the_engine(publish, monkeypatch):
    def cannot(*_):
        raise OSError("disk full")

    publisher = publish()
    monkeypatch.setattr(logging.getLogger("statsbus"), "warning", cannot)
    publisher.step(9, {}, {})
    assert publisher.counts()["faults"] == 1


def test_a_thread_that_cannot_be_woken_costs_no_record_and_raises_nothing(healing_agent, publish, monkeypatch):
    publisher = publish()

    def cannot():
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(publisher._link, "wake", cannot)
    for n in range(3):
        publisher._ledger.set_awake(False)
        publisher.step(0, {"n": n}, None)
        publisher._ledger.set_awake(False)
        publisher.later(publisher.step, 0, {"n": n}, None)
    monkeypatch.undo()
    with healing_agent.serving():
        assert publisher.flush(10.0)
    assert publisher.counts()["recorded"] == 6 and publisher.counts()["salvaged"] == 0
    assert publisher.counts()["faults"] > 0


# ---- the end


def test_close_says_that_the_sources_ended_in_order(healing_agent, publish):
    publisher = publish([{"dp_rank": "0"}, {"dp_rank": "1"}])
    for _ in range(10):
        publisher.step(0, None, STEP)
    with healing_agent.serving():
        assert publisher.close(timeout_s=10.0)
        healing_agent_last = lambda: healing_agent.of("beat")[-1:]  # noqa: E731
        deadline = time.monotonic() + 5
        while not (healing_agent_last() and healing_agent_last()[0].payload.get("ended")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    final = healing_agent.of("beat")[-1]
    assert final.payload["live"] == [] and final.payload["ended"] == [0, 1] and final.number == 11
    assert healing_agent.ranges(publisher.id) == [1, 10]


def test_a_source_that_ends_says_so_at_once_and_may_come_back(agent, publish):
    publisher = publish([{"replica": "0"}, {"replica": "1"}], beat_s=30.0)
    agent.until(lambda: agent.of("hello"))
    publisher.end(1)
    agent.until(lambda: agent.of("beat"))
    assert agent.of("beat")[-1].payload["live"] == [0] and agent.of("beat")[-1].payload["ended"] == [1]
    publisher.resume(1)
    agent.until(lambda: len(agent.of("beat")) > 1)
    assert agent.of("beat")[-1].payload["live"] == [0, 1] and "ended" not in agent.of("beat")[-1].payload


def test_a_hello_tells_no_gauges_of_a_source_that_ended(agent, publish):
    publisher = publish([{"replica": "0"}, {"replica": "1"}])
    for source in (0, 1):
        publisher.step(source, {"num_running_reqs": 1}, None)
        publisher.observe(source, [("z", None, 1)])
    publisher.end(1)
    publisher.update(config={"a": 1})
    agent.until(lambda: any(m.payload["config"] for m in agent.of("hello")))
    assert [(latest[1], latest[2]) for latest in agent.of("hello")[-1].payload["latest"]] == [("step", 0), ("obs", 0)]


def test_sources_that_end_early_and_often_do_not_delay_the_beat(agent, publish):
    publisher = publish([{"replica": str(i)} for i in range(20)], beat_s=0.2)
    agent.until(lambda: agent.of("hello"))
    for i in range(1, 20):
        publisher.end(i)
        seen = len(agent.of("beat"))
        agent.until(lambda n=seen: len(agent.of("beat")) > n)
    seen = len(agent.of("beat"))
    agent.until(lambda: len(agent.of("beat")) > seen, timeout_s=2.0)


def test_close_without_an_end_leaves_the_agent_with_silence(healing_agent, publish):
    publisher = publish()
    publisher.step(0, None, STEP)
    with healing_agent.serving():
        assert publisher.close(ended=False, timeout_s=10.0)
    healing_agent.settle(0.2)
    assert healing_agent.ranges(publisher.id) == [1, 1]
    assert not any(m.payload.get("ended") for m in healing_agent.of("beat"))


def test_a_closed_publisher_takes_calls_and_does_nothing(publish):
    publisher = publish()
    publisher.step(0, None, STEP)
    assert publisher.close(timeout_s=0.1) is False
    assert publisher.close(timeout_s=0.1) is False
    for _ in range(10):
        publisher.step(0, None, STEP)
        publisher.step(0, None, {"bad": 2**70})
        publisher.event(None, {"sleep": {}})
    publisher.end(0)
    assert publisher.flush(5.0) is False
    counts = publisher.counts()
    assert counts["recorded"] == 1 and counts["after_close"] == 20


def test_threads_may_close_at_the_same_time(publish):
    publisher = publish()
    threads = [threading.Thread(target=publisher.close, kwargs={"timeout_s": 0.1}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_close_returns_soon_when_no_agent_listens_and_when_one_hangs(agent, publish):
    publisher = publish()
    publisher.step(0, None, STEP)
    agent.until(lambda: agent.of("hello"))
    start = time.monotonic()
    assert publisher.close(timeout_s=0.2) is False
    assert time.monotonic() - start < 3


def test_no_descriptor_and_no_thread_stays_behind(folder):
    def made_and_closed():
        Publisher([{}], engines=f"ipc://{folder}/engines").close(timeout_s=0.0)

    made_and_closed()
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(5):
        made_and_closed()
    gc.collect()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) <= (before[0] + 2, before[1])


def test_a_process_that_only_lives_a_moment_still_delivers(healing_agent, folder):
    process = run_python(
        folder,
        """
        import statsbus
        publisher = statsbus.Publisher([{"model_name": "m"}])
        for n in range(100):
            publisher.step(0, None, {"n": n})
        """,
    )
    code, _, err = end_of(healing_agent, process)
    assert (code, err) == (0, "")
    healing_agent.settle(0.1)
    (publisher,) = healing_agent.records
    assert healing_agent.ranges(publisher) == [1, 100]
    assert healing_agent.of("beat")[-1].payload["ended"] == [0]


def test_an_interpreter_ends_cleanly_while_threads_record(folder, healing_agent):
    process = run_python(
        folder,
        """
        import statsbus, threading, time
        publisher = statsbus.Publisher([{}])
        def record():
            while True:
                publisher.step(0, {"n": 1}, {"n": [0.1] * 100})
        for _ in range(3):
            threading.Thread(target=record, daemon=True).start()
        time.sleep(0.3)
        """,
    )
    code, _, err = end_of(healing_agent, process)
    assert (code, err) == (0, "")


def test_an_interpreter_without_an_agent_ends_soon(folder):
    start = time.monotonic()
    process = run_python(folder, "import statsbus; p = statsbus.Publisher([{}]); p.step(0, {}, {})")
    assert process.communicate(timeout=20)[1] == "" and process.returncode == 0
    assert time.monotonic() - start < 8


def test_a_forked_child_is_a_publisher_of_its_own_and_both_count_once(healing_agent, folder):
    process = run_python(
        folder,
        """
        import os, sys, threading, time, statsbus
        publisher = statsbus.Publisher([{"model_name": "m"}])
        stop = threading.Event()
        def record():
            while not stop.is_set():
                publisher.step(0, None, {"who": "parent"})
                time.sleep(0.001)
        thread = threading.Thread(target=record)
        thread.start()
        parent = publisher.id
        children = []
        for _ in range(3):
            time.sleep(0.05)
            child = os.fork()
            if child == 0:
                assert publisher.id != parent and publisher.counts()["recorded"] == 0
                for n in range(50):
                    publisher.step(0, {"n": n}, {"who": "child"})
                assert publisher.flush(10.0), publisher.counts()
                publisher.close()
                os._exit(0)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        stop.set()
        thread.join()
        assert codes == [0, 0, 0], codes
        assert publisher.id == parent and publisher.flush(10.0)
        print(publisher.counts()["recorded"])
        """,
    )
    code, out, err = end_of(healing_agent, process, 40.0)
    assert (code, err) == (0, "")
    assert len(healing_agent.records) == 4 and not any(healing_agent.lost.values())
    whole = {
        p: {r[3]["iteration_stats"]["who"] for r in records.values()} for p, records in healing_agent.records.items()
    }
    assert sorted(map(sorted, whole.values())) == [["child"]] * 3 + [["parent"]]
    for publisher, who in whole.items():
        count = 50 if who == {"child"} else int(out)
        assert healing_agent.ranges(publisher) == [1, count]
    pids = {m.publisher: m.payload["pid"] for m in healing_agent.of("hello")}
    assert len(set(pids.values())) == 4


def test_a_forked_child_that_records_nothing_ends_quietly(healing_agent, folder):
    process = run_python(
        folder,
        """
        import os, statsbus
        publisher = statsbus.Publisher([{}])
        publisher.step(0, {}, {})
        child = os.fork()
        if child == 0:
            raise SystemExit(0)  # through atexit and finalization, unlike os._exit
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert publisher.flush(10.0)
        """,
    )
    code, _, err = end_of(healing_agent, process)
    assert (code, err) == (0, "")
    assert len({m.publisher for m in healing_agent.messages}) == 1


# ---- what is named wrongly


@pytest.mark.parametrize("endpoints", [{"engines": "/tmp/x"}, {"engines": "/tmp/x", "replay": "ipc:///y"}, {"engines": "ipc:///tmp/engines", "replay": "/tmp/x"}])
def test_a_path_without_a_scheme_is_no_endpoint(endpoints):
    with pytest.raises(ValueError, match="'/tmp/x' is no endpoint: it starts with neither ipc:// nor tcp://"):
        Publisher([{}], **endpoints)


def test_a_source_that_there_is_not_is_named(publish, caplog):
    publisher = publish([{}, {}])
    publisher.observe(2, [("a", None, 1)])
    assert publisher.counts()["faults"] == 1
    assert "there is no source 2: this publisher has 2, counted from 0" in caplog.text


def test_an_update_that_is_refused_changes_nothing(agent, publish):
    publisher = publish(config={"a": 1})
    agent.until(lambda: agent.of("hello"))
    with pytest.raises(ValueError):
        publisher.update(config={"a": 2}, families=[{"name": f"x{i}", "type": "gauge"} for i in range(1025)])
    with pytest.raises(ValueError):
        publisher.update(config={"a": 3}, info=[(7, "x", {})])
    assert publisher.add_source({"dp_rank": "1"}) == 1
    hello = agent.until(lambda: [m for m in agent.of("hello") if len(m.payload["sources"]) == 2])[0].payload
    assert hello["config"] == {"a": 1} and hello["families"] == []


def test_numbers_that_the_wire_has_no_room_for_are_left_out_of_the_configuration(agent, publish):
    publish(config={"seed": 2**64, "low": -(2**63) - 1, "most": 2**64 - 1, "least": -(2**63), "deep": {"seed": 2**200}})
    hello = agent.until(lambda: agent.of("hello"))[0].payload
    assert hello["config"] == {"most": 2**64 - 1, "least": -(2**63), "deep": {}}
