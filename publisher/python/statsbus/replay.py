"""Plays a recorded stream as the engine would have published it: same records, same clocks, same order."""

from __future__ import annotations

import logging
import signal
import threading
import time
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import msgspec

from .publisher import Publisher
from .stream import StreamError, entries
from .vllm.records import VllmRecorder, description, model_name

HOST = "replay"  # all replays share one clock: streams of one capture were recorded on one host
PASS_GAP_S = 0.001  # between the last entry of a pass and the first of the next, so that no two have one time
FLUSH_POLL_S = 0.2
RING_POLL_S = 0.005
STOP_S = 5.0  # what an interrupted replay still gives the agent

log = logging.getLogger("statsbus")


class ReplayFailed(Exception):
    """The message is for the person who started the replay."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    stream: str
    engines: Optional[str]
    replay: Optional[str]
    speed: float  # 0: as fast as the agent takes it
    loop: bool
    limit: Optional[int]
    bye: bool
    timeout_s: float
    identity: Dict[str, Optional[str]]  # fields of Source, the same for all sources of the stream


class RecordedClock:
    """Monotonic time as the recording had it: that of the entry played last, running on from there."""

    def __init__(self, speed: float) -> None:
        self._rate = speed or 1.0
        self._at = (0.0, time.monotonic())  # one tuple: the background thread reads while we set

    def set(self, mono: float) -> None:
        self._at = (max(mono, self._at[0]), time.monotonic())

    def __call__(self) -> float:
        mono, since = self._at
        return mono + (time.monotonic() - since) * self._rate


class Replay:
    """One run over a stream, one publisher life. `stop` ends it early."""

    def __init__(self, options: Options) -> None:
        self.stop = threading.Event()
        self.played = 0
        self._options = options
        self._clock = RecordedClock(options.speed)
        self._publisher: Optional[Publisher] = None
        self._recorder: Optional[VllmRecorder] = None
        self._source_of: Dict[int, int] = {}  # engine index to source index
        self._model: Optional[str] = None
        self._start: Optional[Tuple[float, float]] = None  # recorded and real time of the first entry

    def run(self) -> None:
        """Plays, waits until the agent has applied all, closes. Raises ReplayFailed or StreamError."""
        try:
            for entry, shift_s in self._passes():
                mono = float(entry["mono"]) + shift_s
                self._pace(mono)
                if self.stop.is_set():
                    break
                self._clock.set(mono)
                self._play_checked(entry, mono, float(entry["t"]) + shift_s)
                self.played += 1
                self._hold_back()
            self._finish()
        finally:
            if self._publisher:
                self._publisher.close(ended=self._options.bye, timeout_s=0.0)

    def _passes(self) -> Iterator[Tuple[Mapping[str, Any], float]]:
        """(entry, what to add to its clocks), pass after pass."""
        shift_s = 0.0
        while not self.stop.is_set():
            first = last = None
            for entry in entries(self._options.stream, self._options.limit):
                if not isinstance(entry.get("mono"), float) or not isinstance(entry.get("t"), float):
                    raise StreamError(f"{self._options.stream}: a {entry['kind']} entry has no clocks (t, mono)")
                first = entry["mono"] if first is None else first
                last = entry["mono"]
                yield entry, shift_s
            if not self._options.loop or first is None or last is None:
                return
            shift_s += last - first + PASS_GAP_S

    def _pace(self, mono: float) -> None:
        if not self._options.speed:
            return
        now = time.monotonic()
        if self._start is None:
            self._start = (mono, now)
        recorded, real = self._start
        self.stop.wait(max(0.0, real + (mono - recorded) / self._options.speed - now))

    def _play_checked(self, entry: Mapping[str, Any], mono: float, wall: float) -> None:
        try:
            self._play(entry, mono, wall)
        except (AttributeError, KeyError, TypeError) as error:
            what = f"{self._options.stream}: entry {self.played + 1} ({entry['kind']}) is not what an engine records"
            raise StreamError(f"{what}: {error!r}") from error

    def _play(self, entry: Mapping[str, Any], mono: float, wall: float) -> None:
        kind = entry["kind"]
        if kind == "engine_info":
            self._introduce(entry["info"], mono)
        elif kind == "record":
            self._record(entry, mono, wall)
        elif kind == "sleep":
            self._recorder_for(kind).sleep(entry["sleep"], entry["level"], time=mono)
        elif kind == "admission":
            self._recorder_for(kind).admission(entry["reason"], time=mono)

    def _introduce(self, info: Mapping[str, Any], mono: float) -> None:
        if self._publisher is None:
            self._model = model_name(info)
            indexes = info.get("engine_indexes") or [0]
            self._source_of = {index: at for at, index in enumerate(indexes)}
            self._publisher = Publisher(
                [self._source(index) for index in indexes],
                engines=self._options.engines,
                replay=self._options.replay,
                clock=self._clock,
                host=HOST,
                **description(info),
            )
        self._recorder = VllmRecorder(self._publisher, info, time=mono)

    def _source(self, engine_index: int) -> Dict[str, Any]:
        return {"model_name": self._model, **self._options.identity, "dp_rank": str(engine_index)}

    def _record(self, entry: Mapping[str, Any], mono: float, wall: float) -> None:
        recorder, index = self._recorder_for("record"), entry.get("engine_idx", 0)
        if index not in self._source_of and self._publisher:
            self._source_of[index] = self._publisher.add_source(self._source(index))
        stats = (entry.get(name) for name in ("scheduler_stats", "iteration_stats", "mm_cache_stats"))
        recorder.record(self._source_of[index], *stats, time=mono, wall=wall)

    def _recorder_for(self, kind: str) -> VllmRecorder:
        if self._recorder is None:
            raise StreamError(f"{self._options.stream}: a {kind} entry comes before the engine_info that explains it")
        return self._recorder

    def _hold_back(self) -> None:
        """Not an engine: when more than half of the ring waits for the agent, so do we."""
        publisher = self._publisher
        if publisher and publisher.is_half_full():
            timeout_s = self._options.timeout_s
            self._wait(lambda: not publisher.is_half_full(), lambda: self.stop.wait(RING_POLL_S), timeout_s)

    def _finish(self) -> None:
        publisher = self._publisher
        if publisher is None:
            return
        self._wait(lambda: publisher.flush(0.0), lambda: publisher.flush(FLUSH_POLL_S), self._options.timeout_s)
        faults = publisher.counts()["faults"]
        if faults:
            raise ReplayFailed(f"{faults} entries of {self._options.stream} could not be recorded as they are")

    def _wait(self, is_done: Callable[[], bool], pause: Callable[[], object], timeout_s: float) -> None:
        """Until is_done, or no progress for timeout_s, or told to stop."""
        publisher = self._publisher
        assert publisher is not None
        timeout_s = min(timeout_s, STOP_S) if self.stop.is_set() else timeout_s
        least, deadline = publisher.backlog()[0], time.monotonic() + timeout_s
        while not is_done():
            pause()
            backlog, now = publisher.backlog()[0], time.monotonic()
            if backlog < least:
                least, deadline = backlog, now + (STOP_S if self.stop.is_set() else timeout_s)
            if self.stop.is_set() and not publisher.counts()["subscribed"]:
                deadline = now
            if now >= deadline:
                raise ReplayFailed(self._why(timeout_s))

    def _why(self, timeout_s: float) -> str:
        assert self._publisher is not None
        counts = self._publisher.counts()
        agent = "an agent listens" if counts["subscribed"] else "no agent listens"
        when = "when stopped" if self.stop.is_set() else f"after {timeout_s:g} s without progress"
        return (
            f"gave up {when}: the agent has applied {counts['applied']} of {counts['recorded']} records; "
            f"{agent} at {self._publisher.engines}"
        )


def play(options: Options) -> int:
    """The command: plays until done or told to stop; the process's exit code."""
    replay = Replay(options)
    caught: List[int] = []

    def on_signal(number: int, _: Optional[FrameType]) -> None:
        caught.append(number)
        replay.stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    try:
        replay.run()
    except (ReplayFailed, StreamError, ValueError) as error:
        log.error("statsbus replay: %s", error)
        return 0 if caught and options.loop and isinstance(error, ReplayFailed) else 1
    if caught and not options.loop:
        log.error("statsbus replay: stopped by %s after %d entries", signal.Signals(caught[0]).name, replay.played)
        return 128 + caught[0]
    return 0
