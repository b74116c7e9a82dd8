"""Totals of cumulative families: what is recorded of them, and what a hello tells to an agent that has lost its state."""

from __future__ import annotations

import pytest
from statsbus import Publisher

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
    assert [(entry[0], entry[4]) for entry in latest] == [(7, [["x_total", None, 3]]), (9, [["process_cpu_seconds_total", None, 3]])]


def test_descriptions_that_no_agent_would_take_are_refused(tmp_path):
    with pytest.raises(ValueError, match="a gauge cannot be cumulative"):
        Publisher([{}], engines=f"ipc://{tmp_path}/engines", families=[{"name": "z", "type": "gauge", "cumulative": True}])
    with pytest.raises(ValueError, match="counted_by takes more than 256 bytes"):
        Publisher([{"counted_by": "é" * 129}], engines=f"ipc://{tmp_path}/engines")
    Publisher([{"counted_by": "é" * 128}], engines=f"ipc://{tmp_path}/engines").close(timeout_s=0)
