"""What was recorded and is not yet forgotten: records on their way to a number, and the ring of numbered ones.

Recording threads only append to `pending` (one atomic step under the interpreter's lock). Numbers are given later, when
pending records are absorbed into the ring, in the order of the queue: so numbers and order match without a lock on the
recording path, however many threads record. What is to be recorded later waits in `deferred` until then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple, Union

import msgspec

from .wire import MESSAGE_RECORDS, PIECE_BYTES, Mark, array_header

LATEST_KEYS = 16384  # gauge inputs whose last record is remembered
LOOK_BACK = 4096  # records that are looked through for one that the mark holds
DEFERRED = 1024  # calls that wait for the background thread; whoever adds one more does some of them
CARE_DEFERRED = 4  # so many: more than come in, too few to be felt
YIELD_AFTER = 8  # calls that the background thread does before it lets go of the interpreter: an engine may wait for it
YIELD_S = 1e-5  # long enough for who waits to wake and take it
RECORD_OVERHEAD = 64  # what a record costs beside its bytes: object header, its place in queue and ring

# Stands for a record that is too large to travel: the agent counts its number as lost, instead of asking for it for ever.
OVERSIZED = msgspec.msgpack.encode(("lost", None, 0.0, None))
OBSERVATIONS = msgspec.msgpack.encode(("obs", None, 0.0, None))[:5]  # how a record of observations begins

LatestKey = Tuple[str, Optional[int], str]
"""A gauge input: ("event", source, kind) or ("obs", source, family); steps are keyed by their source alone."""
Keys = Union[None, int, Tuple[LatestKey, ...]]


class Ring:
    """The newest records by number. Not locked: the ledger does that."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self.max_records = max_records
        self.max_bytes = max_bytes
        self.first = 1  # the lowest number still held
        self.next = 1  # the next number to be given
        self.bytes = 0
        self.unapplied_bytes = 0  # of the records after `applied_to`
        self.applied_to = 0  # the agent has all records up to this one
        self.dropped = 0  # left the ring before the agent said that it has them
        self.oversized = 0  # too large to travel
        self._ranges: List[int] = []
        self._slots: List[Optional[bytes]] = [None] * max_records

    def take(self, pending: Deque[Tuple[Keys, bytes]]) -> Dict[Keys, Tuple[int, bytes]]:
        """
        Numbers all of `pending`; returns the last (number, record) of each key in it. One loop over local names: while
        an engine records flat out, each instruction here is one that it waits for.
        """
        slots, max_records, pop = self._slots, self.max_records, pending.popleft
        last: Dict[Keys, Tuple[int, bytes]] = {}
        number, taken = self.next, 0
        for _ in range(len(pending)):
            keys, record = pop()
            if number - self.first >= max_records:
                self.next = number
                self._trim(max_records - 1)
            slots[number % max_records] = record
            taken += len(record) + RECORD_OVERHEAD
            last[keys] = (number, record)
            if record is OVERSIZED:
                self.oversized += 1
            number += 1
        self.next = number
        self.bytes += taken
        self.unapplied_bytes += taken
        if self.bytes > self.max_bytes:
            self._trim(max_records)
        return last

    def apply(self, ranges: List[int]) -> None:
        """Notes what the agent has. Applied records stay: an agent whose state was set back may ask again."""
        self._ranges = ranges
        applied_to = ranges[1] if ranges and ranges[0] == 1 else 0
        for number in range(max(self.applied_to + 1, self.first), applied_to + 1):
            self.unapplied_bytes -= self._size(number)
        self.applied_to = max(self.applied_to, applied_to)

    def piece(self, low: int, high: int) -> Tuple[int, List[bytes], int]:
        """(first number, records, where to go on): the next ones of low..high that fit a message."""
        number, high = max(low, self.first), min(high, self.next - 1)
        slots, size = self._slots, self.max_records
        start, total = number, 0
        records: List[bytes] = []
        stop = min(high + 1, start + MESSAGE_RECORDS)
        while number < stop:
            record = slots[number % size]
            if record is None:
                break
            total += len(record)
            if total > PIECE_BYTES and records:
                break
            records.append(record)
            number += 1
        return start, records, number

    def record(self, number: int) -> Optional[bytes]:
        """One that is held, else None."""
        return self._slots[number % self.max_records] if self.first <= number < self.next else None

    def _size(self, number: int) -> int:
        record = self._slots[number % self.max_records]
        return 0 if record is None else len(record) + RECORD_OVERHEAD

    def _trim(self, max_records: int) -> None:
        """Drops the oldest until both limits hold."""
        slots, size = self._slots, self.max_records
        number, bytes_left, unapplied = self.first, self.bytes, 0
        while self.next - number > max_records or (bytes_left > self.max_bytes and number < self.next):
            record = slots[number % size]
            if record is not None:
                slots[number % size] = None
                bytes_left -= len(record) + RECORD_OVERHEAD
                if number > self.applied_to:
                    unapplied += len(record) + RECORD_OVERHEAD
                    self.dropped += not self._is_applied(number)
            number += 1
        self.first, self.bytes = number, bytes_left
        self.unapplied_bytes -= unapplied

    def _is_applied(self, number: int) -> bool:
        return len(self._ranges) > 2 and any(
            low <= number <= high for low, high in zip(self._ranges[::2], self._ranges[1::2])
        )


class Ledger:
    """One publisher life's records. Thread-safe; nothing here blocks a recording thread."""

    def __init__(
        self, ring_records: int, ring_bytes: int, fault: Callable[[Exception], None] = lambda error: None
    ) -> None:
        self._fault = fault
        self.pending: Deque[Tuple[Keys, bytes]] = deque()
        # Roughly the bytes in `pending`: racing threads may miss one another's additions. It only bounds memory.
        self.pending_bytes = 0
        # A recording thread that finds more pending than this takes care (see Publisher._care). 0 while the background
        # thread sleeps, so that the first record wakes it: one comparison on the recording path serves both ends.
        self.care_above = 0
        self.busy_limit = max(1, ring_bytes // 4)  # `care_above` while the background thread ticks
        # Calls that record, and what with: they cost a recording thread no more than to append them.
        self.deferred: Deque[Tuple[Callable[..., None], Tuple[Any, ...]]] = deque()
        self.defer_limit = 0  # what `care_above` is to `pending`
        self.ring = Ring(ring_records, ring_bytes)
        self.mark: Optional[Mark] = None
        self.latest_refused = 0  # gauge inputs over LATEST_KEYS
        self._latest: Dict[Union[None, int, LatestKey], Tuple[int, bytes]] = {}
        self._lock = threading.Lock()
        self._expanding = threading.RLock()  # what is deferred may itself wait for what is deferred
        self._applied = threading.Condition(threading.Lock())

    def set_awake(self, is_awake: bool) -> None:
        """Whether the background thread comes by itself; otherwise the next record wakes it."""
        self.care_above = self.busy_limit if is_awake else 0
        self.defer_limit = DEFERRED if is_awake else 0

    def expand(self) -> None:
        """Does what is deferred, in order; waits for who is at it. The interpreter is let go of now and then."""
        pop = self.deferred.popleft
        with self._expanding:
            for done in range(1, len(self.deferred) + 1):
                try:
                    call, args = pop()
                except IndexError:  # another thread relieved us of it
                    return
                try:
                    call(*args)
                except Exception as error:
                    self._fault(error)
                if done % YIELD_AFTER == 0:
                    time.sleep(YIELD_S)

    def relieve(self) -> None:
        """Does the oldest of too much that is deferred; beside a thread that expands, which may wait for its turn."""
        pop = self.deferred.popleft
        for _ in range(CARE_DEFERRED):
            try:
                call, args = pop()
            except IndexError:
                return
            try:
                call(*args)
            except Exception as error:
                self._fault(error)

    def absorb(self, wait: bool = True) -> None:
        """
        Numbers what is pending, and with wait=True what is deferred. With wait=False gives up when another thread is at
        it (or a signal handler is).
        """
        if wait:
            self.expand()
        if not self._lock.acquire(wait):
            return
        try:
            self.pending_bytes = 0
            last = self.ring.take(self.pending)
            last.pop(None, None)
            for keys, entry in last.items():
                for key in keys if isinstance(keys, tuple) else (keys,):
                    self._note_latest(key, entry)
        finally:
            self._lock.release()

    def discard(self) -> int:
        """Drops what is pending, unless another thread is at it; how many records that were."""
        if not self._lock.acquire(False):
            return 0
        try:
            count = len(self.pending) + len(self.deferred)
            self.pending.clear()
            self.deferred.clear()
            return count
        finally:
            self._lock.release()

    def piece(self, low: int, high: int) -> Tuple[int, int, bytes, int]:
        """(first number, count, payload, where to go on) of the next `rec` message of low..high; count 0: none left."""
        with self._lock:
            first, records, after = self.ring.piece(low, high)
        return first, len(records), array_header(len(records)) + b"".join(records), after

    def _note_latest(self, key: Union[None, int, LatestKey], entry: Tuple[int, bytes]) -> None:
        known = self._latest.get(key)
        if known is None and len(self._latest) >= LATEST_KEYS:
            self.latest_refused += 1
        elif known is None or known[0] < entry[0]:
            self._latest[key] = entry

    def drop_latest(self, source: int) -> None:
        """A source has ended: what its gauges were is nothing to tell of later."""
        self.absorb()
        with self._lock:
            for key in [key for key in self._latest if (key[1] if isinstance(key, tuple) else key) == source]:
                del self._latest[key]

    def latest(self) -> List[Tuple[int, bytes]]:
        """
        (number, record) of every gauge input, by number, each record once. And of observations that the mark lacks, the
        last one that it holds: totals of an agent that has lost its state go on from there.
        """
        with self._lock:
            return sorted({*self._latest.values(), *self._last_applied()})

    def _last_applied(self) -> Iterator[Tuple[int, bytes]]:
        ranges = self.mark[1] if self.mark else []
        pairs = list(zip(ranges[::2], ranges[1::2]))
        wanted = {
            key
            for key, (number, _) in self._latest.items()
            if isinstance(key, tuple) and key[0] == "obs" and not any(low <= number <= high for low, high in pairs)
        }
        left = LOOK_BACK
        for low, high in reversed(pairs):
            for number in range(high, max(low, self.ring.first, high - left + 1) - 1, -1):
                left -= 1
                record = self.ring.record(number)
                if not wanted or left < 0:
                    return
                if record is None or not record.startswith(OBSERVATIONS):
                    continue
                _, source, _, content = msgspec.msgpack.decode(record)
                keys = {("obs", source, observation[0]) for observation in content}
                if keys & wanted:
                    wanted -= keys
                    yield number, record

    def apply(self, mark: Mark) -> None:
        with self._lock:
            self.mark = mark
            self.ring.apply(mark[1])
        with self._applied:
            self._applied.notify_all()

    def has_applied(self, number: int) -> bool:
        """Whether the mark, as it is now, holds all records up to this one."""
        if number == 0:
            return True
        ranges = self.mark[1] if self.mark else []
        return len(ranges) >= 2 and ranges[0] == 1 and ranges[1] >= number

    def wait_applied(self, number: int, timeout_s: float) -> bool:
        with self._applied:
            return self._applied.wait_for(lambda: self.has_applied(number), timeout_s)

    def backlog(self) -> Tuple[int, int]:
        """(records, bytes) that the agent has not said to have applied."""
        ring = self.ring
        waiting = len(self.pending) + len(self.deferred)
        return ring.next - 1 - ring.applied_to + waiting, ring.unapplied_bytes + self.pending_bytes
