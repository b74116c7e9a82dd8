"""A small engine that speaks schemas/engine-wire.md itself, so that tests can say anything, wrong things too.

Shares no code with the publisher. A background thread owns both sockets: it beats, introduces itself and answers the agent.
Tests hand it messages through a queue.
"""

from __future__ import annotations

import queue
import secrets
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import zmq

from daemons import Node, wait_for

BEAT_S = 1.0
TICK_MS = 5
_encode = msgspec.msgpack.Encoder().encode

CONFIG: dict[str, Any] = {"speculative": None, "lora": None, "observability": {"kv_cache_metrics": False}}


def source(index: int = 0, **labels: Any) -> dict[str, Any]:
    return {"index": index, "service_name": "chat", "model_name": "tiny", "job_name": "engine-0", "instance_id": "i-1",
            "role": "both", "dp_rank": str(index), **labels}


class Engine:
    """`keep`: how many records the ring holds. `hello`: keys that replace those of the usual hello."""

    def __init__(self, node: Node, sources: list[dict[str, Any]] | None = None, publisher: str | None = None,
                 keep: int = 65536, hello: dict[str, Any] | None = None, host: str = "boot-1", is_beating: bool = True) -> None:
        self.node = node
        self.sources = sources if sources is not None else [source()]
        self.publisher = publisher or secrets.token_hex(16)
        self.keep = keep
        self.hello_changes = hello or {}
        self.host = host
        self.mark: list[Any] | None = None
        self.ring: dict[int, bytes] = {}  # number to encoded record
        self.next = 1
        self.asked: list[tuple[int, int]] = []
        self.answer_changed: Callable[[int, bytes], bytes] | None = None  # spoils records as they are sent again
        self._latest: dict[tuple[Any, ...], list[Any]] = {}
        self._todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_beating = is_beating
        self._is_open = True
        self._ended: list[int] = []
        self._is_subscribed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"engine-{self.publisher[:6]}", daemon=True)

    def __enter__(self) -> Engine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What tests say

    def step(self, source: int | None = 0, scheduler: dict[str, Any] | None = None, iteration: dict[str, Any] | None = None,
             at: float | None = None) -> int:
        content: dict[str, Any] = {"scheduler_stats": scheduler, "iteration_stats": iteration}
        return self.records([["step", source, time.monotonic() if at is None else at, content]])

    def event(self, source: int | None = None, **content: Any) -> int:
        return self.records([["event", source, time.monotonic(), content]])

    def observe(self, *observations: list[Any], source: int | None = 0) -> int:
        return self.records([["obs", source, time.monotonic(), list(observations)]])

    def records(self, records: list[list[Any]], is_lost: bool = False) -> int:
        """Numbers the records and sends them as one message; is_lost: it never leaves, only the ring has it."""
        first = self.next
        encoded = [_encode(record) for record in records]
        for record, data in zip(records, encoded):
            self.ring[self.next] = data
            self.ring.pop(self.next - self.keep, None)
            self._remember(self.next, record)
            self.next += 1
        if not is_lost:
            self.raw("rec", first, len(records), array(encoded))
        return first

    def raw(self, kind: str, number: int, count: int, payload: bytes) -> None:
        self.raw_frames([self._topic(kind), struct.pack(">QI", number, count), payload])

    def raw_frames(self, frames: list[bytes]) -> None:
        """Anything, on the stats socket."""
        self._do(lambda: self._stats.send_multipart(frames))

    def raw_replay(self, frames: list[bytes]) -> None:
        """Anything, on the replay socket."""
        self._do(lambda: self._replay.send_multipart(frames))

    def introduce(self, **changes: Any) -> None:
        """A hello now; changes stay."""
        self.hello_changes.update(changes)
        self._do(self._send_hello)

    def silence(self) -> None:
        """No beats from now on: as if the process hung."""
        self._is_beating = False

    def resume(self) -> None:
        self._is_beating = True

    def bye(self) -> None:
        """The final beat: all sources end in order."""
        self._ended = [s["index"] for s in self.sources]
        self._do(self._send_beat)
        self._is_beating = False

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._thread.join(10)

    # What tests wait for

    def flush(self, limit_s: float = 15.0) -> None:
        """Until the agent has committed every record."""
        wait_for(lambda: self.mark is not None and self.mark[1] == [1, self.next - 1],
                 f"the agent committed 1..{self.next - 1}; its mark is {self.mark}", limit_s)

    def wait_subscribed(self) -> None:
        assert self._is_subscribed.wait(10), "no agent subscribed"

    def drain(self, limit_s: float = 60.0) -> None:
        """Until the thread has sent what was handed to it."""
        done = threading.Event()
        self._todo.put(done.set)
        assert done.wait(limit_s)

    # The thread

    def _do(self, what: Callable[[], None]) -> None:
        self._todo.put(what)

    def _topic(self, kind: str) -> bytes:
        return f"statsbus1.{kind}.{self.publisher}".encode()

    def _remember(self, number: int, record: list[Any]) -> None:
        kind, index, at, content = record[:4]
        if kind == "step" and isinstance(content, dict) and content.get("scheduler_stats"):
            self._latest[kind, index] = [number, kind, index, at, {"scheduler_stats": content["scheduler_stats"]}]
        if kind == "event" and isinstance(content, dict):
            self._latest[kind, index, *content] = [number, kind, index, at, content]

    def hello(self) -> dict[str, Any]:
        return {"publisher": self.publisher, "pid": 1, "host": self.host, "time": time.monotonic(),
                "engine": {"name": "test", "version": "1"}, "mark": self.mark, "config": CONFIG, "buckets": {},
                "sources": self.sources, "families": [], "info": [], "latest": list(self._latest.values()), **self.hello_changes}

    def _send_hello(self) -> None:
        self._stats.send_multipart([self._topic("hello"), struct.pack(">QI", self.next, 0), _encode(self.hello())])

    def _send_beat(self) -> None:
        ended = list(self._ended)
        live = [s["index"] for s in self.sources if s["index"] not in ended]
        beat = {"time": time.monotonic(), "live": live, "ended": ended}
        self._stats.send_multipart([self._topic("beat"), struct.pack(">QI", self.next, 0), _encode(beat)])

    def _run(self) -> None:
        context = zmq.Context()
        self._stats = context.socket(zmq.XPUB)
        self._replay = context.socket(zmq.DEALER)
        self._stats.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._stats.setsockopt(zmq.XPUB_NODROP, 1)  # tests decide what gets lost
        self._stats.setsockopt(zmq.SNDHWM, 0)
        self._replay.setsockopt(zmq.IDENTITY, self.publisher.encode())
        for socket in (self._stats, self._replay):
            socket.setsockopt(zmq.LINGER, 1000)
            socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self._stats.connect(self.node.engines)
        self._replay.connect(self.node.replay)
        poller = zmq.Poller()
        poller.register(self._stats, zmq.POLLIN)
        poller.register(self._replay, zmq.POLLIN)
        next_beat = 0.0
        try:
            while self._is_open or not self._todo.empty():
                while not self._todo.empty():
                    self._todo.get()()
                if self._is_beating and time.monotonic() >= next_beat:
                    self._send_beat()
                    next_beat = time.monotonic() + BEAT_S
                for socket, _ in poller.poll(TICK_MS):
                    if socket is self._stats:
                        if self._stats.recv()[:1] == b"\x01":
                            self._send_hello()
                            self._is_subscribed.set()
                    else:
                        self._answer(self._replay.recv_multipart())
        finally:
            context.destroy(linger=1000)

    def _answer(self, frames: list[bytes]) -> None:
        question = msgspec.msgpack.decode(frames[-1])
        if question[0] == "hello":
            self._reply("hello", self.next, 0, _encode(self.hello()))
        elif question[0] == "applied":
            self.mark = question[1:3]
            self._reply("mark", self.next, 0, _encode(self.mark))
        elif question[0] == "ask":
            self.asked.append((question[1], question[2]))
            self._send_again(question[1], question[2])

    def _send_again(self, first: int, last: int) -> None:
        numbers = [number for number in range(first, last + 1) if number in self.ring]
        for start in range(0, len(numbers), 256):
            piece = numbers[start:start + 256]
            data = [self.ring[number] for number in piece]
            if self.answer_changed:
                data = [self.answer_changed(number, record) for number, record in zip(piece, data)]
            self._reply("rec", piece[0], len(piece), array(data))
        self._reply("end", min(self.ring, default=self.next), 0, _encode([first, last]))

    def _reply(self, kind: str, number: int, count: int, payload: bytes) -> None:
        self._replay.send_multipart([self._topic(kind), struct.pack(">QI", number, count), payload])


def array(encoded: list[bytes]) -> bytes:
    """A msgpack array of values that are encoded already."""
    n = len(encoded)
    head = bytes([0x90 | n]) if n < 16 else b"\xdc" + struct.pack(">H", n)
    return head + b"".join(encoded)
