"""Where the observations of one pipeline go: a source for the orchestrator, and one for each stage and replica."""

from __future__ import annotations

import functools
import logging
import time
from collections import OrderedDict
from typing import Any, Callable, Dict, Generic, Hashable, Mapping, Optional, Sequence, Set, Tuple, TypeVar, cast

from ..encoding import Observation
from ..locks import Lock
from ..publisher import Publisher

PREFIX = "vllm_omni:"
KEPT = 65536  # things that happened once to a request, or sums of it, that are remembered; the oldest are forgotten first
GAUGES = frozenset({"stage_waiting_requests", "peak_memory_mb"})  # that a replica has

log = logging.getLogger("statsbus")

Place = Tuple[Optional[str], Optional[str]]
"""Stage and replica; None and None: the orchestrator."""
Call = TypeVar("Call", bound=Callable[..., Any])
Value = TypeVar("Value")


class Kept(Generic[Value]):
    """A map that forgets its oldest entries; safe for threads."""

    def __init__(self, limit: int = KEPT) -> None:
        self.forgotten = 0
        self._limit = limit
        self._entries: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def put(self, key: Hashable, value: Value) -> bool:
        """False if there is one already, which stays."""
        with self._lock:
            if key in self._entries:
                return False
            self._entries[key] = value
            if len(self._entries) > self._limit:
                self._entries.popitem(last=False)
                self.forgotten += 1
            return True

    def get(self, key: Hashable) -> Optional[Value]:
        return self._entries.get(key)

    def pop(self, key: Hashable) -> Optional[Value]:
        with self._lock:
            return self._entries.pop(key, None)


class Recorder:
    """
    identity    fields of `Source` that all sources of the pipeline share
    options     of `Publisher`; without `engines` STATSBUS_ENGINES says where to
    """

    def __init__(self, identity: Mapping[str, Any], **options: Any) -> None:
        self.clock: Callable[[], float] = options.get("clock", time.monotonic)
        self._identity = {**identity, "stage": None, "replica": None, "observed": True}
        self._sources: Dict[Place, int] = {(None, None): 0}
        self._removed: Set[Place] = set()
        self._forgotten: Dict[Place, int] = {}  # sources that may come back: a publisher has only so many
        self._changing = Lock()
        self._once: Kept[None] = Kept()
        self._faults = 0
        self.timings: Kept[Dict[str, Dict[str, float]]] = Kept()  # by request and stage: sums of what outputs told
        self.publisher = Publisher([self._identity], engine=("vllm-omni", ""), **options)

    def source(self, stage: Any = None, replica: Any = None) -> int:
        """The index of a stage's source, or of a replica's; announced when it is first asked for."""
        place = place_of(stage, replica)
        index = self._sources.get(place)
        return self._add(place) if index is None else index

    def _add(self, place: Place) -> int:
        with self._changing:
            if place in self._forgotten:
                self.publisher.resume(self._forgotten[place])
                self._sources[place] = self._forgotten.pop(place)
            if place not in self._sources:
                source = {**self._identity, "stage": place[0], "replica": place[1]}
                self._sources[place] = self.publisher.add_source(source)
            return self._sources[place]

    def remove(self, stage: Any, replica: Any) -> None:
        index = self.source(stage, replica)
        with self._changing:
            self._removed.add(place_of(stage, replica))
            self.publisher.end(index)

    def restore(self, stage: Any, replica: Any) -> None:
        index, place = self.source(stage, replica), place_of(stage, replica)
        with self._changing:
            if place in self._removed:
                self._removed.discard(place)
                self.publisher.resume(index)

    def forget(self, stage: Any, replica: Any) -> None:
        """A source ends; whatever is observed of it later has it back."""
        place = place_of(stage, replica)
        with self._changing:
            index = self._sources.pop(place, None)
            if index is not None:
                self._forgotten[place] = index
                self.publisher.end(index)

    def observe(self, observations: Sequence[Observation], stage: Any = None, replica: Any = None) -> None:
        """
        Families without their prefix. What a replica that was removed still has to tell counts, but for gauges. The
        caller pays for a place in a queue; the rest is done on the publisher's thread.
        """
        if self._removed and place_of(stage, replica) in self._removed:
            observations = [observation for observation in observations if observation[0] not in GAUGES]
        if observations:
            self.publisher.later(self._tell, self.source(stage, replica), observations, self.clock())

    def _tell(self, source: int, observations: Sequence[Observation], at: float) -> None:
        named = [(PREFIX + family, labels, value) for family, labels, value in observations]
        self.publisher.observe(source, named, time=at)

    def is_first(self, *key: Hashable) -> bool:
        """Whether this has not happened before."""
        return self._once.put(key, None)

    def fault(self, error: Exception) -> None:
        """A call could not be recorded: the first is logged, all are counted."""
        self._faults += 1
        if self._faults == 1:
            try:
                log.warning("statsbus: an observation is missing (further ones are only counted): %r", error)
            except Exception:  # a logging handler that raises must not reach the engine
                pass

    def counts(self) -> Dict[str, int]:
        """The publisher's, and our own: calls that failed, and requests whose timings were dropped before they ended."""
        return {
            **self.publisher.counts(),
            "omni_faults": self._faults,
            "omni_timings_dropped": self.timings.forgotten,
        }


class Sites:
    """A group of observation sites. Without a recorder none of them does anything."""

    def __init__(self, recorder: Optional[Recorder]) -> None:
        self._recorder = recorder

    @property
    def _to(self) -> Recorder:
        return cast(Recorder, self._recorder)  # a site is not entered without one


def site(method: Call) -> Call:
    """A method of `Sites` that an engine calls: does nothing when statistics are off, and never raises."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = self._recorder
        if recorder is None:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            recorder.fault(error)
            return None

    return cast(Call, call)


def place_of(stage: Any, replica: Any) -> Place:
    return (None if stage is None else str(stage), None if replica is None else str(replica))


def seconds(milliseconds: Any) -> float:
    return float(milliseconds) / 1000.0


def at_least_zero(value: Any) -> float:
    return max(float(value), 0.0)


def field(stats: Any, name: str) -> Any:
    """Of a map or an object; None where it has none."""
    return stats.get(name) if isinstance(stats, Mapping) else getattr(stats, name, None)
