"""What goes over the wire is what schemas/engine-wire.md says. The fake agent checks each message's shape."""

from __future__ import annotations

import json
import os
import pathlib
import time

import msgspec
import pytest
from fake_agent import decode
from statsbus import Family, Publisher, Source, wire

EXAMPLES = pathlib.Path(__file__).parents[3] / "schemas" / "examples" / "engine"
SCHEDULER = {"num_running_reqs": 3, "kv_cache_usage": 0.25}
ITERATION = {"num_generation_tokens": 3, "inter_token_latencies_iter": [0.01, 0.02]}


def records_of(agent, publisher):
    return agent.records.get(publisher.id, {})


def test_a_hello_comes_when_an_agent_subscribes(agent, publish):
    publisher = publish(
        [Source(service_name="chat", model_name="m", role="decode", labels={"zone": "a"}), {"dp_rank": "1"}],
        config={"lora": {"max_loras": 1}, "argv": ["dropped"], "env": {"X": None}},
        buckets={"request_latency": (0.3, 1)},
        families=[Family(name="my_gauge", type="gauge", labels=["tier"], help="Mine", semantic="state_gauge")],
        info=[(None, "cache_config_info", {"block_size": 32})],
        engine=("vllm", "0.32.0"),
    )
    hello = agent.until(lambda: agent.of("hello"))[0].payload
    assert hello["publisher"] == publisher.id and hello["pid"] == os.getpid()
    with open("/proc/sys/kernel/random/boot_id") as file:
        assert hello["host"] == file.read().strip()
    assert 0 <= time.monotonic() - hello["time"] < 5
    assert hello["engine"] == {"name": "vllm", "version": "0.32.0"}
    assert hello["config"] == {"lora": {"max_loras": 1}, "env": {"X": None}}
    assert hello["buckets"] == {"request_latency": [0.3, 1.0]}
    assert [source["index"] for source in hello["sources"]] == [0, 1]
    assert hello["sources"][0]["labels"] == {"zone": "a"} and hello["sources"][1]["dp_rank"] == "1"
    assert hello["families"] == [
        {"name": "my_gauge", "type": "gauge", "help": "Mine", "labels": ["tier"], "semantic": "state_gauge"}
    ]
    assert hello["info"] == [[None, "cache_config_info", {"block_size": "32"}]]
    assert hello["mark"] is None and hello["latest"] == []


def test_records_are_numbered_from_one_and_decode_to_what_was_recorded(agent, publish):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    publisher.step(0, SCHEDULER, ITERATION, time=5)
    publisher.step(0, None, ITERATION, {"queries": 1}, time=6.5)
    publisher.event(None, {"sleep": {"sleep": 1, "level": 2}}, time=7.0)
    publisher.observe(0, [("my_gauge", {"tier": 1}, 2), ("my_hist", None, [0.1, 2])], time=8.0)
    agent.until(lambda: len(records_of(agent, publisher)) == 4)
    assert records_of(agent, publisher) == {
        1: ["step", 0, 5.0, {"scheduler_stats": SCHEDULER, "iteration_stats": ITERATION, "mm_cache_stats": None}],
        2: ["step", 0, 6.5, {"scheduler_stats": None, "iteration_stats": ITERATION, "mm_cache_stats": {"queries": 1}}],
        3: ["event", None, 7.0, {"sleep": {"sleep": 1, "level": 2}}],
        4: ["obs", 0, 8.0, [["my_gauge", {"tier": "1"}, 2], ["my_hist", None, [0.1, 2]]]],
    }


def test_a_record_without_a_time_gets_the_monotonic_clock(agent, publish):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    before = time.monotonic()
    publisher.step(0, SCHEDULER, None)
    agent.until(lambda: records_of(agent, publisher))
    assert before <= records_of(agent, publisher)[1][2] <= time.monotonic()


def test_records_of_one_batch_travel_as_one_message(agent, publish):
    publisher = publish(batch_s=0.2)
    agent.until(lambda: agent.of("hello"))
    for _ in range(2):
        publisher.step(0, None, ITERATION)  # the first after a pause leaves at once
        agent.until(lambda: agent.of("rec"))
    before = len(agent.of("rec"))
    for _ in range(100):
        publisher.step(0, None, ITERATION)
    agent.until(lambda: len(records_of(agent, publisher)) == 102)
    assert len(agent.of("rec")) - before <= 3


def test_without_batching_each_record_leaves_at_once(agent, publish):
    publisher = publish(batch_s=0.0)
    agent.until(lambda: agent.of("hello"))
    for n in range(1, 21):
        publisher.step(0, None, ITERATION)
        agent.until(lambda: len(records_of(agent, publisher)) == n)
    assert len(agent.of("rec")) == 20


def test_messages_stay_under_the_limits_of_bytes_and_records(agent, publish):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    big = {"values": [0.5] * 20_000}
    for _ in range(20):
        publisher.step(0, None, big)
    for _ in range(20_000):
        publisher.event(None, {"admission": {"reason": "r"}})
    publisher.step(0, None, {"values": [0.5] * 110_000})  # 990,000 bytes: alone in its message
    agent.until(lambda: len(records_of(agent, publisher)) == 20_021)  # the fake agent refuses larger messages
    assert max(m.size for m in agent.of("rec")) > 900_000


def test_a_record_over_the_message_limit_says_that_it_is_lost(agent, publish):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    publisher.step(0, None, ITERATION)
    publisher.step(0, SCHEDULER, {"values": [0.5] * 120_000})
    publisher.step(0, None, ITERATION)
    agent.until(lambda: set(records_of(agent, publisher)) == {1, 2, 3})
    assert records_of(agent, publisher)[2] == ["lost", None, 0.0, None]
    assert publisher.counts()["oversized"] == 1
    publisher.update(info=[])
    latest = agent.until(lambda: agent.of("hello")[1:])[-1].payload["latest"]
    assert latest == []  # nor does it hide what came before


def test_beats_say_the_next_number_and_the_live_sources(agent, publish):
    publisher = publish([{"dp_rank": "0"}, {"dp_rank": "1"}], beat_s=0.05)
    agent.until(lambda: agent.of("hello"))
    for _ in range(3):
        publisher.step(1, SCHEDULER, None)
    beat = agent.until(lambda: [m for m in agent.of("beat") if m.number == 4])[0]
    assert beat.payload["live"] == [0, 1] and "ended" not in beat.payload
    publisher.end(1)
    beat = agent.until(lambda: [m for m in agent.of("beat") if m.payload.get("ended")])[0]
    assert beat.payload["live"] == [0] and beat.payload["ended"] == [1]


def test_beats_come_also_when_nothing_happens(agent, publish):
    publish(beat_s=0.05)
    agent.until(lambda: len(agent.of("beat")) >= 5)


def test_the_hello_is_repeated_and_says_the_next_number(agent, publish):
    publisher = publish(hello_s=0.05)
    publisher.step(0, SCHEDULER, None)
    agent.until(lambda: any(m.number == 2 for m in agent.of("hello")))
    agent.until(lambda: len(agent.of("hello")) > 5)


def test_the_hello_is_given_on_request_on_the_replay_socket(agent, publish):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    agent.say(publisher.id, "hello")
    agent.until(lambda: [m for m in agent.of("hello") if m.is_replay])


def test_a_hello_holds_the_latest_of_each_gauge_input(agent, publish):
    families = [{"name": "gauge", "type": "gauge"}, {"name": "count", "type": "counter"}]
    publisher = publish([{"dp_rank": "0"}, {"dp_rank": "1"}], families=families)
    for n in range(3):
        publisher.step(0, {"n": n}, ITERATION, time=float(n))
    publisher.step(0, None, ITERATION)
    publisher.step(1, {"n": 9}, None, time=9.0)
    publisher.event(None, {"sleep": {"sleep": 0, "level": 0}}, time=1.0)
    publisher.observe(1, [("gauge", None, 1), ("count", None, 1)], time=2.0)
    publisher.observe(1, [("count", None, 1)], time=3.0)
    agent.until(lambda: any(m.number == 9 for m in agent.of("beat")))
    agent.say(publisher.id, "hello")
    hello = agent.until(lambda: [m for m in agent.of("hello") if m.is_replay])[0]
    step = {"scheduler_stats": {"n": 2}, "iteration_stats": ITERATION, "mm_cache_stats": None}
    assert hello.payload["latest"] == [
        [3, "step", 0, 2.0, step],
        [5, "step", 1, 9.0, {"scheduler_stats": {"n": 9}, "iteration_stats": None, "mm_cache_stats": None}],
        [6, "event", None, 1.0, {"sleep": {"sleep": 0, "level": 0}}],
        [7, "obs", 1, 2.0, [["gauge", None, 1], ["count", None, 1]]],
    ]


def test_a_hello_with_too_much_of_the_latest_leaves_out_the_largest(agent, publish):
    publisher = publish([{"dp_rank": str(n)} for n in range(6)])
    for source in range(6):
        publisher.step(source, {"n": 1}, {"values": [0.5] * (30_000 if source else 10)})
    agent.until(lambda: any(m.number == 7 for m in agent.of("beat")))
    agent.say(publisher.id, "hello")
    hello = agent.until(lambda: [m for m in agent.of("hello") if m.is_replay])[-1]
    assert 2 <= len(hello.payload["latest"]) < 6 and hello.payload["latest"][0][2] == 0
    assert publisher.counts()["latest_left_out"] == 6 - len(hello.payload["latest"])


def test_questions_are_answered_from_the_ring_and_then_ended(agent, publish):
    publisher = publish()
    for n in range(1, 30_001):
        publisher.step(0, None, {"n": n})
    agent.until(lambda: agent.of("hello"))
    agent.until(lambda: any(m.number == 30_001 for m in agent.of("hello") + agent.of("beat")))
    agent.messages.clear()
    agent.say(publisher.id, "ask", 5, 29_990)
    end = agent.until(lambda: agent.of("end"))[0]
    assert end.payload == [5, 29_990] and end.number == 1
    answers = [m for m in agent.of("rec") if m.is_replay]
    assert len(answers) > 3
    assert [m.number for m in answers] == [5] + [m.number + m.count for m in answers[:-1]]
    assert answers[-1].number + answers[-1].count == 29_991
    assert records_of(agent, publisher)[5][3]["iteration_stats"] == {"n": 5}


def test_a_question_for_numbers_that_are_gone_or_not_yet_given_is_only_ended(agent, publish):
    publisher = publish(ring_records=10)
    for n in range(1, 101):
        publisher.step(0, None, {"n": n})
    agent.until(lambda: any(m.number == 101 for m in agent.of("hello") + agent.of("beat")))
    agent.messages.clear()
    agent.say(publisher.id, "ask", 1, 50)
    end = agent.until(lambda: agent.of("end"))[0]
    assert end.payload == [1, 50] and end.number == 91 and not agent.of("rec")
    agent.say(publisher.id, "ask", 80, 1000)
    agent.until(lambda: len(agent.of("end")) == 2)
    assert [(m.number, m.count) for m in agent.of("rec")] == [(91, 10)]


def test_applied_is_kept_as_the_mark_echoed_and_told_in_the_hello(agent, publish):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    for _ in range(10):
        publisher.step(0, None, ITERATION)
    agent.until(lambda: len(records_of(agent, publisher)) == 10)
    agent.say(publisher.id, "applied", agent.lineage, [1, 4, 6, 10])
    mark = agent.until(lambda: agent.of("mark"))[0]
    assert mark.payload == [agent.lineage, [1, 4, 6, 10]] and mark.number == 11
    agent.say(publisher.id, "hello")
    hello = agent.until(lambda: [m for m in agent.of("hello") if m.is_replay])[0]
    assert hello.payload["mark"] == [agent.lineage, [1, 4, 6, 10]]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode(1),
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode(["what"]),
        msgspec.msgpack.encode(["ask", 1]),
        msgspec.msgpack.encode(["ask", "a", 2]),
        msgspec.msgpack.encode(["ask", 0, 2]),
        msgspec.msgpack.encode(["ask", 3, 2]),
        msgspec.msgpack.encode(["applied", "text", [1, 2]]),
        msgspec.msgpack.encode(["applied", b"short", [1, 2]]),
        msgspec.msgpack.encode(["applied", bytes(16), [1]]),
        msgspec.msgpack.encode(["applied", bytes(16), [1, 2, 3, 4]]),
        msgspec.msgpack.encode(["applied", bytes(16), [1, 999]]),
        msgspec.msgpack.encode(["applied", bytes(16), None]),
    ],
)
def test_what_an_agent_never_says_is_counted_and_changes_nothing(agent, publish, message):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    publisher.step(0, None, ITERATION)
    agent.until(lambda: records_of(agent, publisher))
    deadline = time.monotonic() + 5
    while publisher.counts()["bad_messages"] == 0 and time.monotonic() < deadline:
        agent.say_raw(publisher.id, message)
        agent.pump()
    assert publisher.counts()["bad_messages"] > 0
    assert not agent.of("mark") and not agent.of("end")
    agent.say(publisher.id, "applied", agent.lineage, [1, 1])
    agent.until(lambda: agent.of("mark"))


def test_a_source_added_later_is_announced_before_its_records(agent, publish):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    assert publisher.add_source({"dp_rank": "1"}) == 1
    publisher.step(1, SCHEDULER, None)
    agent.until(lambda: records_of(agent, publisher))
    kinds = [(m.kind, len(m.payload["sources"]) if m.kind == "hello" else 0) for m in agent.messages]
    assert kinds.index(("hello", 2)) < kinds.index(("rec", 0))


def test_an_update_is_announced(agent, publish):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    publisher.update(config={"lora": {"max_loras": 2}}, info=[(0, "x", {"a": 1})])
    hello = agent.until(lambda: [m for m in agent.of("hello") if m.payload["info"]])[0]
    assert hello.payload["config"] == {"lora": {"max_loras": 2}}


@pytest.mark.parametrize("kind", ["rec", "hello", "beat", "end", "mark"])
def test_the_fake_agent_takes_what_the_schema_shows(kind):
    example = json.loads((EXAMPLES / f"{kind}.json").read_text())
    header = wire.header(example["header"]["number"], example["header"]["count"])
    frames = [example["topic"].encode(), header, (EXAMPLES / f"{kind}.msgpack").read_bytes()]
    assert decode(frames, kind in ("end", "mark")).kind == kind


@pytest.mark.parametrize("name, answer", [("ask", "end"), ("applied", "mark"), ("hello-request", "hello")])
def test_what_the_schema_shows_of_the_agent_is_understood(agent, publish, name, answer):
    publisher = publish()
    agent.until(lambda: agent.of("hello"))
    for _ in range(43):
        publisher.step(0, None, ITERATION)
    agent.until(lambda: len(records_of(agent, publisher)) == 43)
    agent.say_raw(publisher.id, (EXAMPLES / f"{name}.msgpack").read_bytes())
    agent.until(lambda: [m for m in agent.of(answer) if m.is_replay])
    assert publisher.counts()["bad_messages"] == 0


@pytest.mark.parametrize(
    "wrong, reason",
    [
        ({"sources": []}, "at least one source"),
        ({"sources": [{"nodename": "x"}]}, "nodename"),
        ({"sources": [{"dp_rank": 0}]}, "dp_rank"),
        ({"sources": [{"labels": {"le": "1"}}]}, "'le'"),
        ({"sources": [{"labels": {"quantile": "1"}}]}, "'quantile'"),
        ({"sources": [{}] * 1025}, "at most 1024 sources"),
        ({"families": [{"name": "x", "type": "summary"}]}, "summary"),
        ({"info": [(7, "x", {})]}, "source"),
        ({"batch_s": -1}, "batch_s"),
        ({"config": {str(n): "x" * 1000 for n in range(1000)}}, "bytes"),
    ],
)
def test_a_description_that_no_agent_takes_is_refused_with_the_reason(folder, wrong, reason):
    arguments = {"sources": [{}], "engines": f"ipc://{folder}/engines", **wrong}
    with pytest.raises(ValueError, match=reason):
        Publisher(arguments.pop("sources"), **arguments)


@pytest.mark.parametrize(
    "engines, replay",
    [
        ("ipc:///run/statsbus/engines", "ipc:///run/statsbus/replay"),
        ("ipc:///run/engines/engines.sock", "ipc:///run/engines/replay.sock"),
        ("tcp://127.0.0.1:7101", "tcp://127.0.0.1:7102"),
        ("tcp://[::1]:7101", "tcp://[::1]:7102"),
    ],
)
def test_the_replay_endpoint_is_the_neighbour_of_the_engines(engines, replay):
    assert wire.endpoints(engines, None) == (engines, replay)


def test_endpoints_come_from_the_environment(monkeypatch):
    with pytest.raises(ValueError, match="STATSBUS_ENGINES"):
        wire.endpoints(None, None)
    monkeypatch.setenv("STATSBUS_ENGINES", "ipc:///x/engines")
    assert wire.endpoints(None, None) == ("ipc:///x/engines", "ipc:///x/replay")
    monkeypatch.setenv("STATSBUS_REPLAY", "ipc:///y")
    assert wire.endpoints(None, None) == ("ipc:///x/engines", "ipc:///y")
    assert wire.endpoints("tcp://h:1", "tcp://h:9") == ("tcp://h:1", "tcp://h:9")


@pytest.mark.parametrize("engines", ["ipc:///x/socket", "tcp://host"])
def test_no_neighbour_no_guess(engines):
    with pytest.raises(ValueError, match="STATSBUS_REPLAY"):
        wire.endpoints(engines, None)
