"""The background thread: owner of the context and both sockets, and the only one that talks to the agent."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

import msgspec
import zmq

from . import wire
from .ledger import Ledger

LINGER_S = 1.0  # how long the thread goes on ticking after the last record before it sleeps until woken
RETRY_S = 1.0  # pause before sockets are opened again after they failed
HANG_S = 2.0  # beyond linger, until a thread that was told to stop counts as stuck
CLOSE_LINGER_S = 1.0  # how long what was sent may stay in the queues when the sockets close
HEARTBEAT_S = 3.0  # between two questions to an agent's socket whether it is there
HEARTBEAT_TIMEOUT_S = 10.0  # a connection that says nothing for so long is opened anew: its peer may be gone without a word
BURST = 64  # messages read, or pieces of an answer sent, before the loop looks at the time again
SUBSCRIPTIONS = 64  # topics; an agent needs one
QUESTIONS = 8  # `ask`s that may wait; an agent has one outstanding

log = logging.getLogger("statsbus")


class Waker:
    """Interrupts a poll from any thread: one byte into a pipe, dropped if one is there already."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        os.set_blocking(self._write_fd, False)

    def wake(self) -> None:
        try:
            os.write(self._write_fd, b"\0")
        except BlockingIOError:
            pass

    def drain(self) -> None:
        try:
            os.read(self.read_fd, 4096)
        except BlockingIOError:
            pass

    def __del__(self) -> None:
        # Not earlier: a late wake() must never write into a descriptor that became somebody else's.
        os.close(self.read_fd)
        os.close(self._write_fd)


class Settings(msgspec.Struct, frozen=True):
    engines: str
    replay: str
    batch_s: float
    beat_s: float
    hello_s: float
    clock: Callable[[], float]


class Link:
    """
    One publisher life's connection. `describe()` gives the hello's slowly changing part and `sources()` the indexes
    (live, ended); both are called on the background thread.
    """

    def __init__(
        self,
        publisher: str,
        ledger: Ledger,
        settings: Settings,
        describe: Callable[[], Dict[str, Any]],
        sources: Callable[[], Tuple[List[int], List[int]]],
    ) -> None:
        self.faults = 0  # turns of the loop that failed
        self.bad_messages = 0  # from the agent, not understood
        self.latest_left_out = 0  # gauge inputs that the last hello had no room for
        self.hello_due = True
        self.beat_due = False  # before its time: a source has ended
        self._publisher = publisher
        self._ledger = ledger
        self._settings = settings
        self._describe = describe
        self._sources = sources
        self._waker = Waker()
        self._thread = threading.Thread(target=self._run, name="statsbus", daemon=True)
        self._stop = False
        self._stop_by = 0.0
        self._final_beat = False
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder()
        self._topics = {kind: wire.topic(kind, publisher) for kind in ("rec", "hello", "beat", "end", "mark")}
        self._sent_next = 1  # records below have been published
        self._subscriptions: Set[bytes] = set()
        self._questions: Deque[Tuple[int, int, int]] = deque()  # (from, where we are, to)
        self._answer_hello = False
        self._answer_mark = False
        self._stats: Any = None  # sockets; pyzmq's types are generic over sync and async
        self._replay: Any = None
        self._context: Optional[zmq.Context[zmq.Socket[bytes]]] = None

    # ---- from any thread

    @property
    def is_subscribed(self) -> bool:
        """Whether an agent listens, as far as the sockets know."""
        return bool(self._subscriptions)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._waker.wake()

    def stop(self, final_beat: bool, timeout_s: float) -> bool:
        """Publishes what is pending, for timeout_s, sends the final beat if asked to, closes. False if that hangs."""
        self._final_beat = final_beat
        self._stop_by = time.monotonic() + timeout_s
        self._stop = True
        self.wake()
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join(timeout_s + CLOSE_LINGER_S + HANG_S)
        return not self._thread.is_alive()

    def abandon(self) -> Tuple[Any, ...]:
        """After a fork, in the child: what must be kept and never touched, since it belongs to the parent's threads."""
        return (self._context, self._stats, self._replay)

    # ---- background thread

    def _run(self) -> None:
        while not self._stop:
            try:
                self._open()
                self._loop()
            except Exception as error:
                self._note(error)
            finally:
                try:
                    self._close()
                except Exception as error:
                    self._note(error)
            if not self._stop:
                time.sleep(RETRY_S)

    def _note(self, error: Exception) -> None:
        self.faults += 1
        if self.faults == 1:
            log.warning("statsbus: publishing to %s failed, trying again: %r", self._settings.engines, error)

    def _open(self) -> None:
        self._context = zmq.Context()
        self._stats = self._context.socket(zmq.XPUB)
        self._stats.setsockopt(zmq.XPUB_VERBOSE, 1)  # a restarted agent subscribes again: we must see it
        self._replay = self._context.socket(zmq.DEALER)
        self._replay.setsockopt(zmq.ROUTING_ID, self._publisher.encode())
        for socket, endpoint in ((self._stats, self._settings.engines), (self._replay, self._settings.replay)):
            socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing is queued for an agent that is not there
            socket.setsockopt(zmq.SNDHWM, wire.QUEUE_MESSAGES)
            socket.setsockopt(zmq.RCVHWM, wire.QUEUE_MESSAGES)
            socket.setsockopt(zmq.MAXMSGSIZE, wire.MESSAGE_BYTES)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.HEARTBEAT_IVL, int(HEARTBEAT_S * 1000))
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(HEARTBEAT_TIMEOUT_S * 1000))
            socket.setsockopt(zmq.RECONNECT_IVL, 100)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
            socket.connect(endpoint)

    def _close(self) -> None:
        self._subscriptions.clear()
        linger_ms = int(CLOSE_LINGER_S * 1000) if self._stop else 0
        for socket in (self._stats, self._replay):
            if socket is not None:
                socket.close(linger=linger_ms)
        if self._context is not None:
            self._context.term()
        self._stats = self._replay = self._context = None

    def _loop(self) -> None:
        settings, ledger = self._settings, self._ledger
        poller = zmq.Poller()
        poller.register(self._waker.read_fd, zmq.POLLIN)
        poller.register(self._stats, zmq.POLLIN)
        now = time.monotonic()
        tick_at = busy_until = next_hello = now
        next_beat = now + settings.beat_s
        while not self._stop:
            if now >= next_hello or self.hello_due:
                self._say_hello()
                next_hello = now + settings.hello_s
            is_beat_due = now >= next_beat or self.beat_due
            if now >= tick_at or is_beat_due:
                ledger.set_awake(True)
                if self._publish():
                    busy_until = now + LINGER_S
                tick_at = self._next_tick(now, busy_until)
            if is_beat_due:
                self.beat_due = False
                self._send_beat()
                if now >= next_beat:  # one that came early is no reason to be late
                    next_beat = max(next_beat + settings.beat_s, now)
            is_blocked = self._answer()
            poller.register(self._replay, zmq.POLLIN | (zmq.POLLOUT if is_blocked else 0))
            wait_s = min(tick_at, next_beat, next_hello) - now
            if self.hello_due or self.beat_due or (self._has_answers() and not is_blocked):
                wait_s = 0.0
            ready = dict(poller.poll(max(0, int(wait_s * 1000) + (wait_s > 0))))
            now = time.monotonic()
            if self._waker.read_fd in ready:
                self._waker.drain()
                tick_at = now
            if self._stats in ready:  # not otherwise: each call lets go of the interpreter, and has to get it back
                self._read_subscriptions()
            if self._replay in ready:
                self._read_agent()
        self._publish()
        if self._final_beat:
            self._send_beat(is_final=True)

    def _next_tick(self, now: float, busy_until: float) -> float:
        """When to publish next; infinite means: asleep until a recording thread wakes us."""
        if self._settings.batch_s > 0 and now < busy_until:
            return now + self._settings.batch_s
        ledger = self._ledger
        ledger.set_awake(False)
        if ledger.pending or ledger.deferred:  # recorded before the line above was seen: nobody will wake us for it
            ledger.set_awake(True)
            return now
        return float("inf")

    def _publish(self) -> bool:
        """Sends all records not yet sent, but not those that come meanwhile. True if there were any."""
        ledger = self._ledger
        if not self.is_subscribed:
            self._read_subscriptions()  # an agent that heard our first hello counts on the records after it
        ledger.absorb()
        if self.hello_due:  # a source that was added just now is announced before its first record
            self._say_hello()
        end = ledger.ring.next
        had_any = self._sent_next < end
        while self._sent_next < end and not self._is_late():
            if not self.is_subscribed:
                self._sent_next = end  # an agent that comes later asks for them
                break
            first, count, payload, after = ledger.piece(self._sent_next, end - 1)
            if count:
                self._send(self._stats, "rec", first, count, payload)
            self._sent_next = after
        return had_any

    def _is_late(self) -> bool:
        """Whether we were told to stop, and the time for it is over: engine threads that never pause starve us."""
        return self._stop and time.monotonic() > self._stop_by

    def _say_hello(self) -> None:
        self.hello_due = False
        self._send(self._stats, "hello", self._sent_next, 0, self._hello())

    def _hello(self) -> bytes:
        content = {
            "publisher": self._publisher,
            "pid": os.getpid(),
            "time": float(self._settings.clock()),
            "mark": self._ledger.mark,
            **self._describe(),
            "latest": [],
        }
        room = wire.MESSAGE_BYTES - len(self._encoder.encode(content)) - wire.ARRAY_HEADER_BYTES
        entries = [(number, wire.latest_of(number, record)) for number, record in self._ledger.latest()]
        kept, self.latest_left_out = [], 0
        for number, entry in sorted(entries, key=lambda item: len(item[1])):
            room -= len(entry)
            if room < 0:
                self.latest_left_out += 1
                continue
            kept.append((number, entry))
        content["latest"] = [msgspec.Raw(entry) for _, entry in sorted(kept)]
        return self._encoder.encode(content)

    def _send_beat(self, is_final: bool = False) -> None:
        live, ended = self._sources()
        if is_final:
            live, ended = [], sorted(live + ended)
        beat: Dict[str, Any] = {"time": float(self._settings.clock()), "live": live}
        if ended:
            beat["ended"] = ended
        self._send(self._stats, "beat", self._sent_next, 0, self._encoder.encode(beat))

    def _send(self, socket: Any, kind: str, number: int, count: int, payload: bytes) -> bool:
        """False if the queue is full. The stats socket never says so: it drops, and the agent asks."""
        try:
            socket.send_multipart((self._topics[kind], wire.header(number, count), payload), zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

    # ---- what the agent says

    def _read_subscriptions(self) -> None:
        for _ in range(BURST):
            try:
                message = self._stats.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            if message[:1] == b"\x01":
                self.hello_due = True
                if len(self._subscriptions) < SUBSCRIPTIONS:
                    self._subscriptions.add(message[1:])
            else:
                self._subscriptions.discard(message[1:])

    def _read_agent(self) -> None:
        for _ in range(BURST):
            try:
                frames = self._replay.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                understood = len(frames) == 1 and self._on_message(self._decoder.decode(frames[0]))
            except msgspec.DecodeError:
                understood = False
            self.bad_messages += not understood

    def _on_message(self, message: Any) -> bool:
        if not isinstance(message, list) or not message:
            return False
        kind, args = message[0], message[1:]
        if kind == "hello":
            self._answer_hello = True
            return True
        if kind == "ask" and len(args) >= 2:
            low, high = args[:2]
            if type(low) is not int or type(high) is not int or not 0 < low <= high:
                return False
            if len(self._questions) >= QUESTIONS:
                return False
            self._questions.append((low, low, high))
            return True
        if kind == "applied" and len(args) >= 2:
            mark = wire.read_mark(args[0], args[1], self._ledger.ring.next - 1)
            if mark is None:
                return False
            self._ledger.apply(mark)
            self._answer_mark = True
            return True
        return False

    def _has_answers(self) -> bool:
        return bool(self._questions) or self._answer_hello or self._answer_mark

    def _answer(self) -> bool:
        """Sends what the agent waits for, a bounded amount of it. True if the queue is full before all is sent."""
        for _ in range(BURST):
            if not self._has_answers():
                return False
            if not self._replay.getsockopt(zmq.EVENTS) & zmq.POLLOUT:
                return True
            if self._answer_hello:
                self._answer_hello = not self._send(self._replay, "hello", self._sent_next, 0, self._hello())
            elif self._answer_mark:
                payload = self._encoder.encode(self._ledger.mark)
                self._answer_mark = not self._send(self._replay, "mark", self._sent_next, 0, payload)
            else:
                self._answer_question()
        return False

    def _answer_question(self) -> None:
        low, at, high = self._questions[0]
        first, count, payload, after = self._ledger.piece(at, high)
        if count:
            if self._send(self._replay, "rec", first, count, payload):
                self._questions[0] = (low, after, high)
            return
        payload = self._encoder.encode((low, high))
        if self._send(self._replay, "end", self._ledger.ring.first, 0, payload):
            self._questions.popleft()
