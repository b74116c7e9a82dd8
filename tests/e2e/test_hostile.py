"""Bad messages are refused and counted; nothing else happens, least of all to memory."""

from __future__ import annotations

import random
import resource
import socket
import struct
from contextlib import ExitStack
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemons import Cluster, Node, Process, samples, wait_for
from engine import Engine, array

encode = msgspec.msgpack.Encoder().encode
MIB = 1 << 20
OVERSIZED = 100  # messages; all before memory is looked at, since malloc keeps some of theirs
GOOD: list[Any] = ["step", 0, 1.0, {"iteration_stats": {"num_generation_tokens": 1}}]
BAD_FIELD: list[Any] = ["step", 0, 1.0, {"iteration_stats": {"num_generation_tokens": -1, "num_preempted_reqs": 1}}]


def resident_kib(process: Process) -> int:
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


class Hostile:
    """Messages that an agent must refuse, drawn with a seed. `next_number` keeps out of the way of good records' numbers."""

    def __init__(self, seed: int, publisher: str) -> None:
        self.draw = random.Random(seed)
        self.publisher = publisher
        good = array([encode(GOOD)] * 3)
        self.kinds: list[Callable[[], list[bytes]]] = [
            lambda: self.frames(payload=self.draw.randbytes(self.draw.randrange(200))),
            lambda: self.frames(payload=good[:self.draw.randrange(len(good))]),
            lambda: self.frames(payload=good + b"\xc0"),
            lambda: self.frames(payload=b"\xdd\xff\x00\x00\x00"),
            lambda: self.frames(payload=b"\xdf\xff\xff\xff\xff"),
            lambda: self.frames(payload=b"\xc6\xff\xff\xff\xff"),
            lambda: self.frames(payload=b"\xc1"),
            lambda: self.frames(payload=b""),
            lambda: self.frames(payload=array([encode(["step", 0, 1.0, {}]), nested(40)]), count=2),
            lambda: self.frames(payload=good, count=self.draw.choice([0, 1, 4, 9000, 0xFFFFFFFF])),
            lambda: self.frames(payload=good, header=self.draw.randbytes(self.draw.choice([0, 1, 8, 11, 13]))),
            lambda: self.frames(payload=good, first=self.draw.choice([0, 2**64 - 1, 2**64 - 2])),
            lambda: self.frames(payload=array([self.wrong_record()]), count=1),
            lambda: self.frames(kind="hello", payload=self.wrong_hello(), count=0),
            lambda: self.frames(kind="beat", payload=self.wrong_beat(), count=0),
            lambda: self.frames(publisher=self.draw.choice(["", "x" * 32, "A" * 32, "0" * 31, "0" * 33, "\xff" * 8])),
            lambda: [self.topic("rec"), b"\x00" * 12],
            lambda: [self.topic("rec")],
            lambda: [self.topic("rec"), b"\x00" * 12, good, good],
        ]

    def __iter__(self) -> Iterator[list[bytes]]:
        while True:
            yield self.draw.choice(self.kinds)()

    def oversized(self) -> list[bytes]:
        """One well-formed value, longer than a payload may be."""
        length = self.draw.randrange(MIB, 3 * MIB)
        return self.frames(payload=struct.pack(">BI", 0xC6, length) + bytes(length), count=1)

    def topic(self, kind: str, publisher: str | None = None) -> bytes:
        return f"statsbus1.{kind}.{self.publisher if publisher is None else publisher}".encode("latin-1")

    def frames(self, kind: str = "rec", payload: bytes = b"\x90", count: int = 3, first: int = 10**9, header: bytes | None = None,
               publisher: str | None = None) -> list[bytes]:
        return [self.topic(kind, publisher), struct.pack(">QI", first, count) if header is None else header, payload]

    def wrong_record(self) -> bytes:
        return encode(self.draw.choice([None, 7, "step", {}, [], ["step"], ["step", 0], ["step", 0, 1.0], [1, 0, 1.0, {}],
                                        ["step", "0", 1.0, {}], ["step", -1, 1.0, {}], ["step", 0, "1", {}], ["step", 0, None, {}],
                                        ["step", 0, 1.0, []], ["obs", 0, 1.0, {}], ["event", 0, 1.0, 5]]))

    def wrong_hello(self) -> bytes:
        hello: dict[str, Any] = {"publisher": self.publisher, "pid": 1, "host": "boot-1", "time": 1.0, "engine": {}, "sources": [{"index": 0}]}
        return encode(self.draw.choice([
            None, [], {}, {**hello, "publisher": "0" * 32}, {**hello, "publisher": 5}, {**hello, "sources": []}, {**hello, "sources": 1},
            {**hello, "sources": [1]}, {**hello, "sources": [{"index": "0"}]}, {**hello, "sources": [{"index": 0}, {"index": 0}]},
            {**hello, "sources": [{"index": i} for i in range(1025)]}, {**hello, "time": "now"}, {**hello, "config": [1]},
            {**hello, "mark": [b"short", [1, 2]]}, {**hello, "mark": [b"x" * 16, [5, 1]]}, {**hello, "mark": [b"x" * 16, [1, 2, 3]]},
            {**hello, "mark": 7}, {**hello, "buckets": [1]}, {**hello, "families": {}}, {**hello, "latest": {}}, {**hello, "info": 3},
        ]))

    def wrong_beat(self) -> bytes:
        return encode(self.draw.choice([None, [], {"time": "1", "live": [0]}, {"time": 1.0, "live": 0}, {"time": 1.0, "live": ["0"]},
                                        {"time": 1.0, "live": [0], "ended": {}}, {"live": [-1], "time": 1.0}]))


def refused(node: Node) -> float:
    return node.agent.sample("statsbus_agent_refusals_total") or 0


def send(node: Node, engine: Engine, count: int, seed: int) -> None:
    """Bad messages with a good record after every hundred."""
    for number, frames in zip(range(count), Hostile(seed, engine.publisher)):
        engine.raw_frames(frames)
        if number % 100 == 99:
            engine.records([GOOD])
            if number % 5000 == 4999:
                engine.drain()


def play_hostile(cluster: Cluster, warm_up: int, count: int) -> tuple[Node, int, int]:
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.records([GOOD])
        hostile = Hostile(0, engine.publisher)
        for _ in range(OVERSIZED):
            engine.raw_frames(hostile.oversized())
            engine.drain()
        send(node, engine, warm_up, seed=1)
        engine.flush(60)
        before = resident_kib(node.agent)
        for part in range(count // 20000):
            send(node, engine, 20000, seed=2 + part)
            engine.flush(60)
        engine.records([BAD_FIELD])
        engine.records([GOOD])
        engine.flush()
        after = resident_kib(node.agent)
        good = (warm_up + count) // 100 + 2
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == good, f"{good} good records count")
        assert cluster.hub.sample("vllm:num_preemptions_total") == 1
        assert refused(node) >= (warm_up + count) * 0.9
        too_large = node.agent.sample("statsbus_agent_refusals_total", reason="too_large") or 0
        assert too_large >= OVERSIZED / 2
    return node, before, after


@pytest.mark.long
def test_200_000_bad_messages_are_refused_and_memory_stays(cluster: Cluster) -> None:
    _, before, after = play_hostile(cluster, 20000, 200000)
    assert before < 64 * 1024, f"{before} KiB after {OVERSIZED} messages of some MiB"
    assert after - before < 1024, f"{before} KiB before, {after} KiB after"


@pytest.mark.sanitized
def test_20_000_bad_messages_are_refused(cluster: Cluster) -> None:
    play_hostile(cluster, 0, 20000)


@pytest.mark.sanitized
def test_messages_over_the_limits_are_refused_and_their_answers_count_as_lost(cluster: Cluster) -> None:
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.records([GOOD])
        engine.flush()
        before = refused(node)
        big = ["step", 0, 1.0, {"scheduler_stats": {"note": "x" * MIB}}]
        deep: Any = None
        for _ in range(20):
            deep = [deep]
        engine.records([big])
        engine.records([["step", 0, 1.0, {"scheduler_stats": {"note": deep}}]])
        engine.records([GOOD])
        engine.flush(30)
        assert refused(node) >= before + 2
        assert node.agent.sample("statsbus_agent_records_lost_total") == 2
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 2, "the good ones count")


@pytest.mark.sanitized
def test_one_poison_record_costs_none_of_those_that_travel_with_it(cluster: Cluster) -> None:
    node = cluster.add_node()
    deep: Any = None
    for _ in range(20):
        deep = [deep]
    poison = [["step", 0, 1.0, {"scheduler_stats": {"note": deep}}], ["step", "0", 1.0, {}]]
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.records([*[GOOD] * 100, poison[0], *[GOOD] * 100])
        engine.records([*[GOOD] * 150, poison[1], *[GOOD] * 50], is_lost=True)
        engine.records([GOOD])
        engine.flush(30)
        assert node.agent.sample("statsbus_agent_records_lost_total") == 2
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 401, "all the good ones count")
        wait_for(lambda: cluster.hub.sample("statsbus_source_lost_records_total") == 2, "and the two are missed")


@pytest.mark.sanitized
def test_maps_with_keys_of_any_type_cost_nothing(cluster: Cluster) -> None:
    node = cluster.add_node()
    odd: dict[Any, Any] = {(1, 2): {"deep": 1}, None: 1, 5: 1, 1.5: 1, b"x": 1, (): 1, True: 1}
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, {"num_running_reqs": 3, "transfers": odd, **odd}, {"num_generation_tokens": 1, **odd})
        engine.flush()
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 1, "what is known counts")
        assert cluster.hub.sample("vllm:num_requests_running") == 3
        assert refused(node) == 0


@pytest.mark.sanitized
def test_a_peer_that_sends_far_too_much_is_cut_off_and_may_come_back(cluster: Cluster) -> None:
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.records([GOOD])
        engine.flush()
        before = node.agent.sample("statsbus_agent_bytes_total") or 0
        engine.raw("rec", engine.next, 1, bytes(5 * MIB))
        engine.records([GOOD])
        engine.flush(30)
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 2, "the good ones count")
        assert (node.agent.sample("statsbus_agent_bytes_total") or 0) - before < MIB


@pytest.mark.sanitized
def test_more_label_sets_than_the_limit_are_folded(cluster: Cluster) -> None:
    node = cluster.add_node()
    families = [{"name": "test:seen_total", "type": "counter", "help": "", "labels": ["what"]}]
    with Engine(node, hello={"families": families}) as engine:
        engine.wait_subscribed()
        for start in range(0, 12000, 500):
            engine.observe(*[["test:seen_total", {"what": str(start + i)}, 1] for i in range(500)])
        engine.flush(30)
        wait_for(lambda: cluster.hub.sample("test:seen_total") == 12000, "every observation counts", 20)
        rows = [(labels["what"], value) for name, labels, value in samples(cluster.hub.metrics()) if name == "test:seen_total"]
        assert len(rows) <= 10000
        assert dict(rows)["_overflow"] > 2000


@pytest.mark.sanitized
def test_bad_messages_on_the_replay_socket_are_refused(cluster: Cluster) -> None:
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.records([GOOD])
        engine.flush()
        before = refused(node)
        for number, frames in zip(range(2000), Hostile(9, engine.publisher)):
            engine.raw_replay(frames)
        engine.records([GOOD])
        engine.flush()
        wait_for(lambda: refused(node) >= before + 1800, "they are refused")
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 2, "the good ones count")


@pytest.mark.sanitized
def test_unknown_kinds_types_and_trailing_elements_are_skipped(cluster: Cluster) -> None:
    node = cluster.add_node()
    with Engine(node, hello={"future": [1, {"a": 2}]}) as engine:
        engine.wait_subscribed()
        engine.raw("gossip", 1, 0, b"\xc0")
        engine.records([["hologram", 0, 1.0, [1, 2]], [*GOOD, "more", 5]])
        engine.step(0, None, {"num_generation_tokens": 1, "num_quarks": 5, "charm": {"deep": [1, 2]}})
        engine.flush()
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 2, "what is known counts")
        assert refused(node) == 0


def test_records_of_unknown_sources_stay_a_gap_until_the_hello(cluster: Cluster) -> None:
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.records([GOOD])
        engine.flush()
        engine.sources.append({**engine.sources[0], "index": 1, "dp_rank": "1"})
        engine.records([["step", 1, 1.0, {"iteration_stats": {"num_generation_tokens": 5}}]])
        engine.flush()
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total", "dp", dp_rank="1") == 5, "the new source counts")


@pytest.fixture
def few_open_files() -> Iterator[int]:
    """The usual soft limit, which children inherit; gives the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_connections_than_the_usual_limit_of_open_files_do_no_harm(few_open_files: int, cluster: Cluster) -> None:
    if few_open_files < 4096:
        pytest.skip("the hard limit of open files is too low to tell")
    node = cluster.add_node()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, few_open_files))
    with Engine(node) as engine, ExitStack() as stack:
        engine.wait_subscribed()
        for _ in range(1500):
            peer = stack.enter_context(socket.socket(socket.AF_UNIX))
            peer.connect(node.engines[len("ipc://"):])
        engine.records([GOOD])
        engine.flush()
        wait_for(lambda: len(list(Path(f"/proc/{node.agent.pid}/fd").iterdir())) > 1500, "all have been accepted")
        engine.records([GOOD])
        engine.flush()
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 2, "both count")
