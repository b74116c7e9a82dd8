"""Recording later, on the background thread: same records, same bounds, next to no cost where it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from statsbus import Publisher
from statsbus.ledger import DEFERRED
from statsbus.link import Link

STEP = {"inter_token_latencies_iter": [0.02] * 256}


def run_python(agent, program):
    env = {**os.environ, "STATSBUS_ENGINES": agent.engines, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)]
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


def later(publisher, n):
    publisher.later(publisher.step, 0, {"n": n}, STEP)


def numbers(agent, publisher):
    return [r[3]["scheduler_stats"]["n"] for _, r in sorted(agent.records.get(publisher.id, {}).items())]


def test_what_is_recorded_later_counts_once_and_in_order(healing_agent, publish):
    publisher = publish()
    for n in range(5000):
        later(publisher, n)
        while n % 500 == 0 and publisher._ledger.deferred:  # an engine pauses; in a loop that doesn't, two threads do it
            time.sleep(0.001)
    with healing_agent.serving():
        assert publisher.flush(20.0)
    assert numbers(healing_agent, publisher) == list(range(5000))
    assert publisher.counts()["recorded"] == 5000


def test_in_a_loop_without_a_pause_each_counts_once_and_the_last_is_last(healing_agent, publish):
    publisher = publish()
    for n in range(20_000):
        later(publisher, n)
    with healing_agent.serving():
        assert publisher.flush(20.0)
    found = numbers(healing_agent, publisher)
    assert sorted(found) == list(range(20_000)) and found[-1] == 19_999


def test_it_is_done_within_a_batch_also_when_the_thread_was_asleep(agent, publish):
    publisher = publish(batch_s=0.01, beat_s=30.0, hello_s=30.0)
    agent.until(lambda: agent.of("hello"))
    agent.settle(1.3)  # longer than the thread lingers
    later(publisher, 7)
    agent.until(lambda: numbers(agent, publisher) == [7], 5.0)


def test_calls_are_made_on_the_background_thread(agent, publish):
    publisher = publish()
    seen = []
    for _ in range(10):
        publisher.later(lambda: seen.append(threading.current_thread().name))
    agent.until(lambda: len(seen) == 10)
    assert set(seen) == {"statsbus"}


def test_a_call_that_raises_is_counted_and_stops_nothing(healing_agent, publish):
    publisher = publish()
    publisher.later(len)  # of nothing
    later(publisher, 1)
    healing_agent.until(lambda: numbers(healing_agent, publisher) == [1])
    assert publisher.counts()["faults"] == 1 and publisher.counts()["network_faults"] == 0
    ledger = publisher._ledger
    for _ in range(DEFERRED + 100):
        publisher.later(len)
    healing_agent.until(lambda: publisher.counts()["faults"] == 1 + DEFERRED + 100)
    assert not ledger.deferred


def test_many_threads_record_later_and_each_counts_once(healing_agent, publish):
    publisher = publish()

    def record(who):
        for n in range(500):
            later(publisher, who * 1000 + n)

    threads = [threading.Thread(target=record, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    with healing_agent.serving():
        for thread in threads:
            thread.join()
        assert publisher.flush(20.0)
    assert sorted(numbers(healing_agent, publisher)) == [who * 1000 + n for who in range(8) for n in range(500)]


def test_without_its_thread_what_waits_is_bounded(folder, monkeypatch):
    def cannot(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Link, "start", cannot)
    publisher = Publisher([{}], engines=f"ipc://{folder}/engines", ring_records=1000, ring_bytes=1 << 20)
    for n in range(DEFERRED + 5000):
        later(publisher, n)
        assert len(publisher._ledger.deferred) <= DEFERRED + 1
    assert publisher._ledger.pending_bytes <= (1 << 20) // 4 + 10_000
    assert publisher.counts()["recorded"] == DEFERRED + 5000
    publisher.close(timeout_s=0.0)


def test_what_waits_is_bounded_in_a_loop_that_leaves_the_thread_no_time(agent, publish):
    publisher = publish()
    most = 0
    for n in range(20_000):
        later(publisher, n)
        most = max(most, len(publisher._ledger.deferred))
    assert most <= DEFERRED + 16
    publisher.close(timeout_s=0.0)


def test_close_does_what_waits_and_drops_what_comes_after(healing_agent, publish):
    publisher = publish(batch_s=5.0)
    healing_agent.until(lambda: healing_agent.of("hello"))
    for n in range(100):
        later(publisher, n)
    with healing_agent.serving():
        assert publisher.close()
    assert numbers(healing_agent, publisher) == list(range(100))
    later(publisher, 100)
    assert publisher.counts()["after_close"] == 1 and not publisher._ledger.deferred


def test_flush_waits_for_a_call_that_is_being_made(healing_agent, publish):
    publisher = publish()
    is_called, may_record = threading.Event(), threading.Event()

    def record():
        is_called.set()
        may_record.wait(10)
        publisher.step(0, {"n": 1}, None)

    publisher.later(record)
    assert is_called.wait(10)
    flushed = []
    flushing = threading.Thread(target=lambda: flushed.append(publisher.flush(10.0)), daemon=True)
    flushing.start()
    flushing.join(0.1)
    may_record.set()
    with healing_agent.serving():
        flushing.join(10)
    assert flushed == [True] and numbers(healing_agent, publisher) == [1]


def test_what_is_called_later_may_end_a_source_and_flush(healing_agent, publish):
    publisher = publish([{}, {}])
    later(publisher, 1)
    publisher.later(publisher.end, 1)
    publisher.later(publisher.flush, 0.0)
    later(publisher, 2)
    healing_agent.until(lambda: numbers(healing_agent, publisher) == [1, 2])
    assert publisher._source_states() == ([0], [1]) and publisher.counts()["faults"] == 0


def test_a_source_ends_while_the_background_thread_adds_another(publish):
    publisher = publish([{}, {}])
    is_adding, may_add = threading.Event(), threading.Event()

    def add():
        is_adding.set()
        may_add.wait(10)
        publisher.add_source({"replica": "2"})

    publisher.later(add)
    assert is_adding.wait(10)
    later(publisher, 1)
    ending = threading.Thread(target=publisher.end, args=(1,), daemon=True)
    ending.start()
    ending.join(0.1)  # it waits for the other thread, or soon will
    may_add.set()
    ending.join(10)
    assert not ending.is_alive() and publisher._source_states() == ([0, 2], [1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_do_what_waits_in_its_parent(healing_agent, folder):
    code = """
        import os, statsbus
        publisher = statsbus.Publisher([{}], batch_s=5.0)
        assert publisher.flush(5.0)
        for n in range(100):
            publisher.later(publisher.step, 0, {"n": n}, None)
        child = os.fork()
        if child == 0:
            for n in range(3):
                publisher.later(publisher.step, 0, {"n": 1000 + n}, None)
            os._exit(0 if publisher.close() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert publisher.close()
    """
    process = run_python(healing_agent, code)
    healing_agent.until(lambda: process.poll() is not None, 30)
    assert (process.returncode, process.communicate()[1]) == (0, "")
    counts = sorted(
        [r[3]["scheduler_stats"]["n"] for _, r in sorted(records.items())] for records in healing_agent.records.values()
    )
    assert counts == [list(range(100)), [1000, 1001, 1002]]


def test_an_interpreter_that_ends_does_what_waits(healing_agent, folder):
    code = """
        import statsbus
        publisher = statsbus.Publisher([{}], batch_s=5.0)
        assert publisher.flush(5.0)
        for n in range(100):
            publisher.later(publisher.step, 0, {"n": n}, None)
    """
    process = run_python(healing_agent, code)
    healing_agent.until(lambda: process.poll() is not None, 30)
    assert (process.returncode, process.communicate()[1]) == (0, "")
    (records,) = healing_agent.records.values()
    assert [r[3]["scheduler_stats"]["n"] for _, r in sorted(records.items())] == list(range(100))


def test_it_costs_a_thread_a_fraction_of_encoding(publish):
    publisher = publish(batch_s=1.0)
    many = {"inter_token_latencies_iter": [0.02] * 1024}

    def best_of(call):
        spent = []
        for _ in range(7):
            publisher.flush(0.0)
            start = time.thread_time()
            for _ in range(200):
                call()
            spent.append(time.thread_time() - start)
        return min(spent)

    at_once = best_of(lambda: publisher.step(0, None, many))
    assert best_of(lambda: publisher.later(publisher.step, 0, None, many)) < at_once / 3
