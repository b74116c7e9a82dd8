"""The publisher: what an engine calls. Recording only encodes and appends; a background thread does the rest."""

from __future__ import annotations

import atexit
import logging
import math
import os
import secrets
import threading
import time as clocks
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

import msgspec

from . import wire
from .encoding import Encoder, observations_of, salvage
from .ledger import DEFERRED, OVERSIZED, Keys, Ledger
from .link import Link, Settings
from .wire import Family, Source

CONNECT_S = 0.5  # how long a new publisher that is closed at once looks for an agent
STOP_S = 0.1  # what the last batch gets in any case
EXIT_S = 2.0  # what an interpreter that exits spends at most on a publisher that nobody closed
INFINITY = math.inf
BUFFER_BYTES = 4096  # to begin with; a buffer grows to what its records need
DESCRIPTION_BYTES = 640 << 10  # of the hello without `latest`; what is left of the message is for those

SourceLike = Union[Source, Mapping[str, Any]]
FamilyLike = Union[Family, Mapping[str, Any]]
Info = Tuple[Optional[int], str, Mapping[str, str]]

log = logging.getLogger("statsbus")


class _Indexes(Dict[int, int]):
    """Source index to itself: a look-up that refuses what is none and turns True into 1."""

    def __missing__(self, index: object) -> int:
        raise ValueError(f"there is no source {index!r}: this publisher has {len(self)}, counted from 0")


class Publisher:
    """
    Publishes the records of one engine process, for one or more sources, to the agent of its node.

    `step`, `event` and `observe` may be called from any thread. They never block on the network and never raise: what
    cannot be recorded is counted (`counts()`) and the first fault is logged. The constructor, `add_source` and `update`
    raise ValueError for a description that no agent would take.

    sources         one `Source` (or a map of its fields) for each scheduler; its place is its index
    engines, replay endpoints; default STATSBUS_ENGINES, its neighbour, STATSBUS_REPLAY
    config          the engine's configuration; nested maps of scalars, anything else in it is left out
    buckets         bucket set name to rising upper bounds
    families        families that the catalog doesn't have
    info            (source index or None for all, name, labels)
    engine          name and version of the engine
    batch_s         records of this long travel as one message; 0 sends each at once
    ring_records, ring_bytes  how much is kept for an agent that lost some or comes late
    beat_s, hello_s  seconds between signs of life, and between introductions
    clock, host     the monotonic clock of the records, and a name for it
    """

    _id: str
    _ledger: Ledger
    _link: Optional[Link]
    _born: float
    _is_closed: bool
    _ended: Set[int]
    _faults: int
    _salvaged: int
    _after_close: int
    _last_fault: Optional[Exception]

    def __init__(
        self,
        sources: Iterable[SourceLike],
        *,
        engines: Optional[str] = None,
        replay: Optional[str] = None,
        config: Optional[Mapping[str, Any]] = None,
        buckets: Optional[Mapping[str, Sequence[float]]] = None,
        families: Iterable[FamilyLike] = (),
        info: Iterable[Info] = (),
        engine: Tuple[str, str] = ("vllm", ""),
        batch_s: float = 0.05,
        ring_records: int = 65536,
        ring_bytes: int = 64 << 20,
        beat_s: float = 1.0,
        hello_s: float = 10.0,
        clock: Callable[[], float] = clocks.monotonic,
        host: Optional[str] = None,
    ) -> None:
        engines, replay = wire.endpoints(engines, replay)
        if batch_s < 0 or beat_s <= 0 or hello_s <= 0 or ring_records < 1 or ring_bytes < 1:
            raise ValueError("batch_s must not be negative; beat_s, hello_s, ring_records, ring_bytes must be above 0")
        self._settings = Settings(engines, replay, batch_s, beat_s, hello_s, clock)
        self._ring_limits = (ring_records, ring_bytes)
        self._clock = clock
        self._host = host or wire.boot_id()
        self._engine = {"name": str(engine[0]), "version": str(engine[1])}
        self._sources: List[Source] = []
        self._config: Dict[str, Any] = {}
        self._buckets: Dict[str, List[float]] = {}
        self._families: List[Family] = []
        self._info: List[Tuple[Optional[int], str, Dict[str, str]]] = []
        self._increments: Set[str] = set()  # families of which a hello need not tell the latest
        self._indexes = _Indexes()
        self._description: Dict[str, Any] = {}
        encoder = Encoder()
        self._encode, self._encode_into = encoder.encode, encoder.encode_into
        self._buffers: List[bytearray] = []  # to encode into: growing one result from nothing costs more than a copy
        self._begin_life()
        for source in sources:
            self._sources.append(_convert(source, Source))
        if not self._sources:
            raise ValueError("a publisher needs at least one source")
        self.update(config=config or {}, buckets=buckets or {}, families=families, info=info)
        _publishers.add(self)
        self._start_link()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        """The publisher id: another one after a fork."""
        return self._id

    @property
    def engines(self) -> str:
        """The endpoint that records go to."""
        return self._settings.engines

    # ---- recording: any thread, never raises, never waits

    def step(
        self,
        source: int,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        *,
        time: Optional[float] = None,
    ) -> None:
        """Records one engine step: the engine's own stats as maps, dataclasses or plain objects, or None."""
        try:
            if time is None:
                time = self._clock()
            elif type(time) is not float or not -INFINITY < time < INFINITY:
                time = _finite(time)
            content = {
                "scheduler_stats": scheduler_stats,
                "iteration_stats": iteration_stats,
                "mm_cache_stats": mm_cache_stats,
            }
            buffers = self._buffers
            buffer = buffers.pop() if buffers else bytearray(BUFFER_BYTES)
            self._encode_into(("step", self._indexes[source], time, content), buffer)
            record = bytes(buffer)
            size = len(record)
            if size > wire.RECORD_BYTES:
                self._append(record, None)
                return
            buffers.append(buffer)
            ledger = self._ledger
            ledger.pending.append((None if scheduler_stats is None else source, record))
            ledger.pending_bytes += size
            if ledger.pending_bytes > ledger.care_above:
                self._care()
        except Exception as error:
            self._salvage_step(error, source, scheduler_stats, iteration_stats, mm_cache_stats, time)

    def event(
        self, source: Optional[int], content: Mapping[str, Mapping[str, Any]], *, time: Optional[float] = None
    ) -> None:
        """Records an event: its kind and what happened. Source None: for the engine as a whole."""
        try:
            for kind, body in content.items():
                if not isinstance(kind, str) or not isinstance(body, Mapping):
                    raise TypeError(f"event {kind!r}: an event is a map of its kind to a map")
            self._record(
                "event", self._index(source), content, time, tuple(("event", source, kind) for kind in content)
            )
        except Exception as error:
            self.fault(error)

    def observe(
        self, source: Optional[int], observations: Iterable[Sequence[Any]], *, time: Optional[float] = None
    ) -> None:
        """
        Records observations (family, labels or None, value): a number, or a list of numbers; of cumulative families what
        was counted so far, of histograms {"le": bounds, "buckets": counts up to each bound and of all, "sum": sum}, all
        series of such a family at once.
        """
        try:
            content = observations_of(observations)
            stated = {family for family, _, _ in content} - self._increments
            keys = tuple(("obs", source, family) for family in stated)
            self._record("obs", self._index(source), content, time, keys or None)
        except Exception as error:
            self.fault(error)

    def later(self, call: Callable[..., None], *args: Any) -> None:
        """
        Has call(*args) made on the background thread, within batch_s. For an engine whose stats nobody changes any more:
        it pays for appending them, not for encoding. What is recorded so states its `time`.
        """
        ledger = self._ledger
        deferred = ledger.deferred
        deferred.append((call, args))
        if len(deferred) > ledger.defer_limit:
            self._care()

    def _index(self, source: Optional[int]) -> Optional[int]:
        return None if source is None else self._indexes[source]

    def _record(self, kind: str, source: Optional[int], content: Any, time: Optional[float], keys: Keys) -> None:
        self._append(self._encode((kind, source, self._clock() if time is None else _finite(time), content)), keys)

    def _append(self, record: bytes, keys: Keys) -> None:
        if len(record) > wire.RECORD_BYTES:
            keys, record = None, OVERSIZED
        ledger = self._ledger
        ledger.pending.append((keys, record))
        ledger.pending_bytes += len(record)
        if ledger.pending_bytes > ledger.care_above:
            self._care()

    def _care(self) -> None:
        """Rarely: sees to what recording threads have no time for. The record is in already: nothing is left to raise."""
        try:
            self._see_to_it()
        except Exception as error:
            self.fault(error)

    def _see_to_it(self) -> None:
        """Wakes the background thread (or starts it, after a fork), or numbers records in its stead."""
        ledger = self._ledger
        if self._is_closed:
            self._after_close += ledger.discard()
            return
        if ledger.care_above == 0:
            ledger.set_awake(True)
            link = self._link
            if link is None:
                self._start_link()
            else:
                link.wake()
        if len(ledger.deferred) > DEFERRED:
            ledger.relieve()
        if ledger.pending_bytes > ledger.busy_limit:
            ledger.absorb(wait=False)
            if self._link is None:
                self._start_link()

    def _salvage_step(
        self, error: Exception, source: Any, scheduler: Any, iteration: Any, mm_cache: Any, time: Optional[float]
    ) -> None:
        """A step that does not encode still counts, without the fields that are to blame."""
        self.fault(error)
        try:
            if source in self._indexes and not self._is_closed:
                parts = {"scheduler_stats": scheduler, "iteration_stats": iteration, "mm_cache_stats": mm_cache}
                content = {name: salvage(part) for name, part in parts.items()}
                self._record("step", self._indexes[source], content, time, source if scheduler is not None else None)
                self._salvaged += 1
        except Exception as again:
            self.fault(again)

    def fault(self, error: Exception) -> None:
        """Counts what went wrong for a caller that must not raise, and logs the first."""
        self._faults += 1
        self._last_fault = error
        if self._faults == 1:
            try:
                log.warning("statsbus: a record is incomplete or missing (further ones are only counted): %r", error)
            except Exception:  # a logging handler that raises must not reach the engine
                pass

    # ---- description

    def add_source(self, source: SourceLike) -> int:
        """Announces one more source; returns its index."""
        with self._describing:
            self._sources.append(_convert(source, Source))
            try:
                self._describe()
            except ValueError:
                self._sources.pop()
                raise
            return len(self._sources) - 1

    def end(self, source: int) -> None:
        """The source ended in order: its gauges leave at once."""
        self._ledger.drop_latest(source)  # which does what is deferred, and that may wait for `_describing`
        with self._describing:
            self._set_ended(self._ended | {source})

    def resume(self, source: int) -> None:
        """A source that ended is back."""
        with self._describing:
            self._set_ended(self._ended - {source})

    def _set_ended(self, ended: Set[int]) -> None:
        self._ended = ended
        if self._link:
            self._link.beat_due = True
            self._link.wake()

    def update(
        self,
        *,
        config: Optional[Mapping[str, Any]] = None,
        buckets: Optional[Mapping[str, Sequence[float]]] = None,
        families: Optional[Iterable[FamilyLike]] = None,
        info: Optional[Iterable[Info]] = None,
    ) -> None:
        """Replaces the parts of the description that are given, and announces it. ValueError: all stays as it was."""
        with self._describing:
            before = self._config, self._buckets, self._families, self._info
            try:
                self._replace(config, buckets, families, info)
                self._describe()
            except Exception:
                self._config, self._buckets, self._families, self._info = before
                raise

    def _replace(
        self,
        config: Optional[Mapping[str, Any]],
        buckets: Optional[Mapping[str, Sequence[float]]],
        families: Optional[Iterable[FamilyLike]],
        info: Optional[Iterable[Info]],
    ) -> None:
        if config is not None:
            self._config = wire.scalars(config)
        if buckets is not None:
            self._buckets = {str(name): [float(bound) for bound in bounds] for name, bounds in buckets.items()}
        if families is not None:
            self._families = [_convert(family, Family) for family in families]
        if info is not None:
            info = list(info)
            if any(at is not None and at not in range(len(self._sources)) for at, _, _ in info):
                raise ValueError("info names a source that there is not")
            self._info = [(at, str(name), {str(k): str(v) for k, v in labels.items()}) for at, name, labels in info]

    def _describe(self) -> None:
        """Rebuilds what the hello says and has it sent. Called with `_describing` held."""
        if len(self._sources) > wire.SOURCES or len(self._families) > wire.FAMILIES:
            raise ValueError(f"a publisher has at most {wire.SOURCES} sources and {wire.FAMILIES} families")
        description = {
            "host": self._host,
            "engine": self._engine,
            "config": self._config,
            "buckets": self._buckets,
            "sources": [{"index": i, **msgspec.structs.asdict(source)} for i, source in enumerate(self._sources)],
            "families": msgspec.to_builtins(self._families),
            "info": self._info,
        }
        if len(msgspec.msgpack.encode(description)) > DESCRIPTION_BYTES:
            raise ValueError(f"sources, configuration and families take more than {DESCRIPTION_BYTES} bytes")
        self._increments = {
            family.name for family in self._families if family.type != "gauge" and not family.cumulative
        }
        self._description = description
        self._indexes = _Indexes((i, i) for i in range(len(self._sources)))
        if self._link:
            self._link.hello_due = True
            self._link.wake()

    def _source_states(self) -> Tuple[List[int], List[int]]:
        indexes = self._indexes.keys()
        return sorted(indexes - self._ended), sorted(indexes & self._ended)

    # ---- life

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Waits until the agent has committed everything recorded so far; False if it hasn't in time."""
        ledger, link = self._ledger, self._link
        ledger.absorb()
        last = ledger.ring.next - 1
        if link is None or self._is_closed:
            return ledger.has_applied(last)
        link.wake()
        return ledger.wait_applied(last, timeout_s)

    def close(self, *, ended: bool = True, timeout_s: float = 5.0) -> bool:
        """
        Ends the publisher; at once if no agent listens, otherwise waits up to timeout_s for the agent to have all.
        With ended=True a final beat says that the sources ended in order, and their gauges leave at once; without, the
        agent sees silence. True if the agent has everything. Later calls, and later records, do nothing.
        """
        with self._closing:
            ledger, link = self._ledger, self._link
            if self._is_closed:
                return ledger.has_applied(ledger.ring.next - 1)
            deadline = clocks.monotonic() + timeout_s
            while link and not link.is_subscribed and clocks.monotonic() < min(deadline, self._born + CONNECT_S):
                clocks.sleep(0.005)  # a process that lives for a moment only still finds its agent
            complete = self.flush(deadline - clocks.monotonic() if link and link.is_subscribed else 0.0)
            self._is_closed = True
            if link and not link.stop(ended, max(STOP_S, deadline - clocks.monotonic())):
                log.warning("statsbus: the publisher's thread did not end; it is left to itself")
            ledger.set_awake(False)  # from now on each record comes by _care, which drops it
            _publishers.discard(self)
            return complete

    def is_half_full(self) -> bool:
        """Whether more than half of the ring waits for the agent: a sender that can wait, should."""
        records, size = self._ledger.backlog()
        max_records, max_bytes = self._ring_limits
        return records > max_records // 2 or size > max_bytes // 2

    def backlog(self) -> Tuple[int, int]:
        """Records, and their bytes, that the agent has not yet said to have."""
        return self._ledger.backlog()

    def counts(self) -> Dict[str, int]:
        """What the publisher knows about itself, for logs and tests."""
        ring, link = self._ledger.ring, self._link
        return {
            "recorded": ring.next - 1 + len(self._ledger.pending) + len(self._ledger.deferred),
            "applied": ring.applied_to,
            "faults": self._faults,
            "salvaged": self._salvaged,
            "dropped": ring.dropped,
            "oversized": ring.oversized,
            "after_close": self._after_close,
            "ring_records": ring.next - ring.first,
            "ring_bytes": ring.bytes,
            "latest_refused": self._ledger.latest_refused,
            "latest_left_out": link.latest_left_out if link else 0,
            "network_faults": link.faults if link else 0,
            "bad_messages": link.bad_messages if link else 0,
            "subscribed": int(bool(link and link.is_subscribed)),
        }

    def _begin_life(self) -> None:
        """A process life: own id, own locks, nothing recorded, no thread."""
        self._id = secrets.token_hex(16)
        self._ledger = Ledger(*self._ring_limits, self.fault)
        self._link = None
        self._starting = threading.Lock()
        self._describing = threading.RLock()
        self._closing = threading.RLock()
        self._born = clocks.monotonic()
        self._is_closed = False
        self._ended = set()
        self._faults = self._salvaged = self._after_close = 0
        self._last_fault = None

    def _start_link(self) -> None:
        if not self._starting.acquire(blocking=False):
            return  # another thread is at it
        try:
            if self._link is None:
                link = Link(self._id, self._ledger, self._settings, lambda: self._description, self._source_states)
                link.start()
                self._link = link
        except Exception as error:  # no thread to be had: records stay in the bounded ring, a later one tries again
            self.fault(error)
        finally:
            self._starting.release()

    def _after_fork(self) -> None:
        was_closed = self._is_closed
        if self._link:
            _abandoned.append(self._link.abandon())
        self._begin_life()
        self._is_closed = was_closed


def _finite(time: float) -> float:
    """As a float, which the wire asks for: an agent refuses a whole message for one record without a time."""
    time = float(time)
    if not -INFINITY < time < INFINITY:
        raise ValueError(f"a record cannot have the time {time}")
    return time


def _convert(value: Any, kind: Any) -> Any:
    """A Source or Family, checked, from itself or from a map of its fields."""
    try:
        return msgspec.convert(msgspec.to_builtins(value), kind)
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueError(f"{kind.__name__.lower()}: {error}") from error


_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()
_abandoned: List[Tuple[Any, ...]] = []  # sockets of the parent: a forked child must not even finalize them


def _after_fork_in_child() -> None:
    for publisher in list(_publishers):
        publisher._after_fork()


def _close_all() -> None:
    for publisher in list(_publishers):
        publisher.close(timeout_s=EXIT_S)


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_close_all)
