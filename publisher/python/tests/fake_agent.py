"""An agent as far as a publisher can tell: SUB and ROUTER bound, messages decoded strictly, gaps asked for."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import msgspec
import zmq

AGAIN_S = 0.3  # an unanswered message is repeated
SAY_S = 0.02  # pause between two "applied"
HEADER = struct.Struct(">QI")


class Message(NamedTuple):
    kind: str
    publisher: str
    number: int
    count: int
    payload: Any
    size: int
    is_replay: bool


def decode(frames: List[bytes], is_replay: bool) -> Message:
    """One message of the publisher, checked against schemas/engine-wire.md."""
    topic, header, payload = frames
    name, kind, publisher = topic.decode().split(".")
    assert name == "statsbus1"
    assert len(publisher) == 32 and publisher == publisher.lower() and int(publisher, 16) >= 0
    assert len(header) == 12 and len(payload) <= 1 << 20
    number, count = HEADER.unpack(header)
    content = msgspec.msgpack.decode(payload)
    assert kind in (("rec", "hello", "end", "mark") if is_replay else ("rec", "hello", "beat"))
    globals()[f"check_{kind}"](content, number, count, publisher)
    return Message(kind, publisher, number, count, content, len(payload), is_replay)


def check_rec(content: Any, number: int, count: int, publisher: str) -> None:
    assert number >= 1 and 1 <= count <= 8192 and isinstance(content, list) and len(content) == count
    for record in content:
        check_record(record)


def check_record(record: Any) -> None:
    kind, source, clock, content = record
    if kind == "lost":
        assert (source, clock, content) == (None, 0.0, None)
        return
    assert kind in ("step", "event", "obs")
    assert source is None or type(source) is int
    assert type(clock) is float
    if kind == "obs":
        assert isinstance(content, list)
        for family, labels, value in content:
            assert isinstance(family, str) and (labels is None or isinstance(labels, dict))
            if isinstance(value, dict):
                assert set(value) == {"le", "buckets", "sum"} and len(value["buckets"]) == len(value["le"]) + 1
                value = [*value["le"], *value["buckets"], value["sum"]]
            assert all(isinstance(n, (int, float)) for n in (value if isinstance(value, list) else [value]))
    else:
        assert isinstance(content, dict)
        if kind == "step":
            assert set(content) <= {"scheduler_stats", "iteration_stats", "mm_cache_stats"}


def check_hello(content: Any, number: int, count: int, publisher: str) -> None:
    assert count == 0 and number >= 1
    assert set(content) == {
        "publisher", "pid", "host", "time", "engine", "mark", "config", "buckets", "sources", "families", "info",
        "latest",
    }  # fmt: skip
    assert content["publisher"] == publisher and type(content["pid"]) is int and type(content["time"]) is float
    assert isinstance(content["host"], str) and set(content["engine"]) == {"name", "version"}
    assert content["mark"] is None or (len(content["mark"][0]) == 16 and isinstance(content["mark"][1], list))
    check_config(content["config"])
    for source in content["sources"]:
        assert set(source) == {
            "index", "service_name", "model_name", "job_name", "instance_id", "role", "dp_rank", "stage", "replica",
            "node", "pod_ip", "labels", "observed", "counted_by",
        }  # fmt: skip
        assert type(source["index"]) is int and isinstance(source["labels"], dict)
        assert type(source["observed"]) is bool
        texts = [value for key, value in source.items() if key not in ("index", "labels", "observed")]
        assert all(value is None or isinstance(value, str) for value in texts)
    for source, name, labels in content["info"]:
        assert (source is None or type(source) is int) and isinstance(name, str)
        assert all(isinstance(v, str) for v in labels.values())
    for latest in content["latest"]:
        assert type(latest[0]) is int
        check_record(latest[1:])
    assert [latest[0] for latest in content["latest"]] == sorted({latest[0] for latest in content["latest"]})


def check_config(config: Any) -> None:
    for value in config.values():
        if isinstance(value, dict):
            check_config(value)
        else:
            assert value is None or isinstance(value, (bool, int, float, str))


def check_beat(content: Any, number: int, count: int, publisher: str) -> None:
    assert count == 0 and {"time", "live"} <= set(content) <= {"time", "live", "ended"}
    assert type(content["time"]) is float and isinstance(content["live"], list)


def check_end(content: Any, number: int, count: int, publisher: str) -> None:
    assert count == 0 and len(content) == 2


def check_mark(content: Any, number: int, count: int, publisher: str) -> None:
    assert count == 0 and len(content) == 2 and len(content[0]) == 16


class FakeAgent:
    """
    Pumped by the test (`until`) or by a thread (`serving`). Keeps every message, and every record by number.
    With `heals` it asks for the gaps that hello, beat and rec show, and tells what it has applied.
    """

    def __init__(
        self, folder: str, heals: bool = False, drop: Callable[[Message], bool] = lambda message: False
    ) -> None:
        self.engines, self.replay = f"ipc://{folder}/engines", f"ipc://{folder}/replay"
        self.messages: List[Message] = []
        self.records: Dict[str, Dict[int, Any]] = {}
        self.lost: Dict[str, Set[int]] = {}
        self.lineage = os.urandom(16)
        self._heals, self._drop = heals, drop
        self._next: Dict[str, int] = {}
        self._asked: Dict[str, float] = {}  # when: a ROUTER drops what it sends to a peer that it doesn't know yet
        self._said: Dict[str, Tuple[float, List[int]]] = {}
        self._lock = threading.RLock()
        self._context = zmq.Context()
        self.stats = self._context.socket(zmq.SUB)
        self.router = self._context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        for socket, endpoint in ((self.stats, self.engines), (self.router, self.replay)):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, 64)
            socket.bind(endpoint)
        self.stats.setsockopt(zmq.SUBSCRIBE, b"statsbus1.")

    def close(self) -> None:
        self.stats.close()
        self.router.close()
        self._context.term()

    def say(self, publisher: str, *message: Any) -> None:
        self.say_raw(publisher, msgspec.msgpack.encode(message))

    def say_raw(self, publisher: str, payload: bytes) -> None:
        """Waits for the publisher to be connected: a ROUTER knows its peers a little later than the SUB does."""
        deadline = time.monotonic() + 5.0
        while True:
            try:
                self.router.send_multipart([publisher.encode(), payload], zmq.DONTWAIT)
                return
            except zmq.ZMQError:
                if time.monotonic() > deadline:
                    raise
            self.pump()

    def pump(self, timeout_s: float = 0.02) -> None:
        poller = zmq.Poller()
        poller.register(self.stats, zmq.POLLIN)
        poller.register(self.router, zmq.POLLIN)
        ready = dict(poller.poll(int(timeout_s * 1000)))
        with self._lock:
            if self.stats in ready:
                self._take(decode(self.stats.recv_multipart(), False))
            if self.router in ready:
                routing_id, *frames = self.router.recv_multipart()
                message = decode(frames, True)
                assert routing_id.decode() == message.publisher
                self._take(message)
            if self._heals:
                for publisher in list(self._next):
                    with contextlib.suppress(zmq.ZMQError):  # not connected (yet): the next turn tries again
                        self._heal(publisher)

    def until(self, is_done: Callable[[], Any], timeout_s: float = 10.0) -> Any:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            done = is_done()
            if done:
                return done
            self.pump()
        raise AssertionError(f"not so after {timeout_s} s; got {[m[:4] for m in self.messages[-20:]]}")

    def settle(self, seconds: float) -> None:
        """Takes whatever comes for a while: for things that must not happen."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.pump()

    @contextlib.contextmanager
    def serving(self) -> Iterator["FakeAgent"]:
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                self.pump()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()

    def of(self, kind: str, publisher: Optional[str] = None) -> List[Message]:
        return [m for m in self.messages if m.kind == kind and publisher in (None, m.publisher)]

    def ranges(self, publisher: str) -> List[int]:
        out: List[int] = []
        for number in sorted(self.records.get(publisher, {}).keys() | self.lost.get(publisher, set())):
            if out and number == out[-1] + 1:
                out[-1] = number
            else:
                out += [number, number]
        return out

    def _take(self, message: Message) -> None:
        if self._drop(message):
            return
        self.messages.append(message)
        publisher = message.publisher
        if message.kind == "rec":
            known = self.records.setdefault(publisher, {})
            for number, record in enumerate(message.payload, message.number):
                assert known.setdefault(number, record) == record, f"record {number} came with two contents"
        if message.kind != "end":
            after = message.number + message.count
            self._next[publisher] = max(self._next.get(publisher, 1), after)
        else:
            self._on_end(publisher, *message.payload)

    def _on_end(self, publisher: str, low: int, high: int) -> None:
        known = self.records.get(publisher, {})
        self.lost.setdefault(publisher, set()).update(n for n in range(low, high + 1) if n not in known)
        self._asked.pop(publisher, None)

    def _heal(self, publisher: str) -> None:
        ranges, after = self.ranges(publisher), self._next[publisher]
        low = 1 if not ranges or ranges[0] > 1 else ranges[1] + 1
        now = time.monotonic()
        if low < after and now > self._asked.get(publisher, 0.0) + AGAIN_S:
            high = ranges[0] - 1 if ranges and ranges[0] > low else ranges[2] - 1 if len(ranges) > 2 else after - 1
            self._asked[publisher] = now
            self._say_once(publisher, "ask", low, high)
        said_at, said = self._said.get(publisher, (0.0, []))
        marks = [m.payload[1] for m in self.of("mark", publisher)[-1:]]
        if ranges and [ranges] != marks and (ranges != said or now > said_at + AGAIN_S) and now > said_at + SAY_S:
            self._said[publisher] = (now, ranges)
            self._say_once(publisher, "applied", self.lineage, ranges)

    def _say_once(self, publisher: str, *message: Any) -> None:
        self.router.send_multipart([publisher.encode(), msgspec.msgpack.encode(message)], zmq.DONTWAIT)
