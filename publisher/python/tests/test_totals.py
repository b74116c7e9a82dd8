"""Totals of cumulative families: what is recorded of them, and what a hello tells to an agent that has lost its state."""

from __future__ import annotations

import msgspec
import pytest
from statsbus import Publisher
from statsbus.ledger import LOOK_BACK, Ledger

PAUSE = {"le": [0.1, 0.5], "buckets": [3, 4, 6], "sum": 7.25}
FAMILIES = [
    {"name": "x_total", "type": "counter", "cumulative": True},
    {"name": "pause", "type": "histogram", "buckets": [0.1, 0.5], "cumulative": True},
    {"name": "y_total", "type": "counter"},
]


def test_a_distribution_travels_as_it_is(healing_agent, publish):
    publisher = publish(families=FAMILIES)
    publisher.observe(0, [("x_total", None, 5), ("pause", {"kind": "gc"}, PAUSE)])
    healing_agent.until(lambda: healing_agent.records.get(publisher.id))
    record = healing_agent.records[publisher.id][1]
    assert record[3] == [["x_total", None, 5], ["pause", {"kind": "gc"}, PAUSE]]
    described = {family["name"]: family for family in healing_agent.of("hello")[-1].payload["families"]}
    assert described["x_total"]["cumulative"] and described["pause"]["cumulative"] and "cumulative" not in described["y_total"]


@pytest.mark.parametrize("bad", [{}, {**PAUSE, "more": 1}, {**PAUSE, "sum": "1"}, {**PAUSE, "le": ["0.1"]}, {**PAUSE, "buckets": 3}])
def test_what_is_no_distribution_is_a_fault(agent, publish, bad):
    publisher = publish(families=FAMILIES)
    publisher.observe(0, [("pause", None, bad)])
    assert publisher.counts()["faults"] == 1 and publisher.counts()["recorded"] == 0


def test_a_hello_tells_the_latest_totals(healing_agent, publish):
    publisher = publish(families=FAMILIES)
    for total in (1, 2, 3):
        publisher.observe(0, [("x_total", None, total)])
        publisher.observe(0, [("y_total", None, 1)])
        publisher.observe(0, [("process_cpu_seconds_total", None, total)])
    healing_agent.until(lambda: len(healing_agent.records.get(publisher.id, ())) == 9)
    publisher.update(config={"a": 1})
    healing_agent.until(lambda: any(message.payload["config"] for message in healing_agent.of("hello")))
    latest = healing_agent.of("hello")[-1].payload["latest"]
    told = {entry[4][0][0]: (entry[0], entry[4][0][2]) for entry in latest}  # rising: of two of a family the last
    assert told == {"x_total": (7, 3), "process_cpu_seconds_total": (9, 3)}


def test_a_hello_tells_the_last_totals_that_the_mark_holds():
    ledger = Ledger(10000, 1 << 20)
    key = (("obs", 0, "x_total"),)

    def observe(total):
        ledger.pending.append((key, msgspec.msgpack.encode(("obs", 0, 1.0, [("x_total", None, total), ("y_total", None, 1)]))))

    for total in range(1, 6):  # numbers 1, 3, 5, 7, 9, others between them
        observe(total)
        ledger.pending.append((0, msgspec.msgpack.encode(("step", 0, 1.0, {}))))
    ledger.absorb()
    numbers = lambda: [number for number, _ in ledger.latest()]  # noqa: E731
    assert numbers() == [9, 10]
    ledger.apply((b"L" * 16, [1, 6]))
    assert numbers() == [5, 9, 10]
    ledger.apply((b"L" * 16, [1, 3, 8, 8]))
    assert numbers() == [3, 9, 10]
    ledger.apply((b"L" * 16, [1, 10]))
    assert numbers() == [9, 10]
    ledger.apply((b"L" * 16, [2, 2]))  # none of it
    assert numbers() == [9, 10]
    ledger.pending.extend([(0, b"x")] * LOOK_BACK)
    observe(6)
    ledger.absorb()
    for held, wanted in ((8 + LOOK_BACK, [9]), (9 + LOOK_BACK, [])):  # no further back than that
        ledger.apply((b"L" * 16, [1, held]))
        assert numbers() == [*wanted, 10 + LOOK_BACK, 11 + LOOK_BACK]


def test_descriptions_that_no_agent_would_take_are_refused(tmp_path):
    with pytest.raises(ValueError, match="a gauge cannot be cumulative"):
        Publisher([{}], engines=f"ipc://{tmp_path}/engines", families=[{"name": "z", "type": "gauge", "cumulative": True}])
    with pytest.raises(ValueError, match="counted_by takes more than 256 bytes"):
        Publisher([{"counted_by": "é" * 129}], engines=f"ipc://{tmp_path}/engines")
    Publisher([{"counted_by": "é" * 128}], engines=f"ipc://{tmp_path}/engines").close(timeout_s=0)
