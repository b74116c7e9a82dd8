"""One engine process's publisher, behind the calls that vLLM makes to its stat loggers. Nothing here raises but `of`."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ..encoding import Observation
from ..locks import Lock
from ..publisher import Publisher
from .configuration import engine_info
from .connectors import Connectors
from .identity import identity
from .records import VllmRecorder, description, fields_of, iteration_content, model_name

CONNECTORS = ("kv_transfer_config", "ec_transfer_config")  # parts of the configuration, set where there are any
CLOSE_S = 1.0  # for the agent to get the rest, when an engine goes away and its process stays

Places = Mapping[int, Tuple[str, str]]
"""Engine index to stage and replica, where an orchestrator runs several engines."""


class Engine:
    """Shared by all stat loggers that vLLM makes for one engine in this process, also when it makes new ones."""

    def __init__(
        self, vllm_config: Any, engine_indexes: Sequence[int], places: Optional[Places], vllm_version: str
    ) -> None:
        self._vllm_config = vllm_config
        self._vllm_version = vllm_version
        self._places = dict(places or {})
        self._ranks = self._data_parallel_size()
        info = engine_info(vllm_config, engine_indexes, vllm_version)
        self._identity = identity(os.environ, model_name(info), info.get("kv_transfer_role"))
        self._connectors = Connectors(vllm_config, model_name(info))
        first = {index: self._connectors.add(index) for index in engine_indexes}
        self._source_of: Dict[int, int] = {index: at for at, index in enumerate(engine_indexes)}
        self._ended: Dict[int, int] = {}  # the same of those that left; they may come back, and sources are limited
        described = description(info)
        self._info = described.pop("info")  # vLLM's own logger shows it once the engine is initialized
        self.publisher = Publisher(
            [self._source(index) for index in engine_indexes],
            families=self._connectors.families.values(),
            **described,
        )
        self._recorder = VllmRecorder(self.publisher, info)
        for index, observations in first.items():
            if observations:
                self.publisher.observe(self._source_of[index], observations)
        self._adding = Lock()
        self._has_connectors = any(getattr(vllm_config, name, None) is not None for name in CONNECTORS)
        weakref.finalize(self, _close_beside, self.publisher).atexit = False  # the publisher does that itself

    @classmethod
    def of(
        cls, vllm_config: Any, engine_indexes: Sequence[int], places: Optional[Places] = None, vllm_version: str = ""
    ) -> Engine:
        """The engine of this configuration; indexes that it doesn't have yet are added. Raises what is wrong with it."""
        engine = _engines.get(id(vllm_config))
        if engine is None:
            engine = _engines[id(vllm_config)] = cls(vllm_config, engine_indexes, places, vllm_version)
        else:
            engine._places.update(places or {})
            engine._add(engine_indexes)
        return engine

    # ---- what vLLM calls

    def calls(self, has_mm_cache_stats: bool = True) -> Dict[str, Callable[..., None]]:
        """The stat logger's methods, by name."""
        return {
            "record": self._later() if has_mm_cache_stats else self._without_mm(self._later()),
            "record_sleep_state": self.record_sleep_state,
            "record_admission_rejection": self.record_admission_rejection,
            "log_engine_initialized": self.log_engine_initialized,
            "log": self.log,
        }

    def _later(self) -> Callable[..., None]:
        """
        What vLLM is to call for a step. It makes new stats for each and changes none later, so that they can be read on
        our own thread; all but a connector's, which its own logging goes on adding to. The function has nothing to look
        up: 2 ms after the last step each look costs microseconds.
        """
        record, later, clock = self._recorder_of_steps(), self.publisher.later, time.monotonic

        def record_later(
            scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0, **_: Any
        ) -> None:
            later(record, clock(), scheduler_stats, iteration_stats, mm_cache_stats, engine_idx)

        def record_now(
            scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0, **_: Any
        ) -> None:
            record(clock(), scheduler_stats, iteration_stats, mm_cache_stats, engine_idx)

        return record_now if self._has_connectors else record_later

    def _recorder_of_steps(self) -> Callable[..., None]:
        """`_record`, or a short way for the steps that most engines have."""
        if self._connectors.fields or self._recorder.has_adapters:
            return self._record
        sources, step, slow = self._source_of, self.publisher.step, self._record

        def record(at: float, scheduler: Any, iteration: Any, mm_cache: Any, index: Any) -> None:
            try:
                source = sources[index]
                fields = None if iteration is None else iteration.__dict__
                if fields and fields["finished_requests"]:
                    fields = iteration_content(iteration)
            except Exception:
                slow(at, scheduler, iteration, mm_cache, index)
                return
            step(source, scheduler, fields, mm_cache, time=at)

        return record

    @staticmethod
    def _without_mm(record: Callable[..., None]) -> Callable[..., None]:
        """As releases call it that have no stats of the multi-modal cache."""
        return lambda scheduler_stats, iteration_stats, engine_idx=0: record(
            scheduler_stats, iteration_stats, None, engine_idx
        )

    def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
        self.publisher.later(self._event, time.monotonic(), self._recorder.sleep, sleep, level)

    def record_admission_rejection(self, reason: Any) -> None:
        self.publisher.later(self._event, time.monotonic(), self._recorder.admission, reason)

    def log_engine_initialized(self) -> None:
        """Only now the configuration is complete: it has the size of the KV cache."""
        try:
            described = description(engine_info(self._vllm_config, sorted(self._source_of), self._vllm_version))
            self.publisher.update(config=described["config"], info=described["info"])
        except Exception as error:
            self.publisher.fault(error)

    def log(self) -> None:
        """Called every few seconds: sees when the engine has fewer ranks than before, which nobody says."""
        try:
            ranks = self._data_parallel_size()
            if ranks < self._ranks:
                for index in [index for index in self._source_of if index >= ranks]:
                    self._end(index)
            self._ranks = ranks
        except Exception as error:
            self.publisher.fault(error)

    def leave(self, stage: str, replica: str) -> None:
        """A replica has left or died: its gauges go at once. Its next step makes a source of it again."""
        try:
            for index in [index for index, place in self._places.items() if place == (stage, replica)]:
                if index in self._source_of:
                    self._end(index)
        except Exception as error:
            self.publisher.fault(error)

    # ----

    def _end(self, index: int) -> None:
        self.publisher.end(self._source_of[index])  # which first records what steps there are of it
        self._ended[index] = self._source_of.pop(index)

    def _record(self, at: float, scheduler: Any, iteration: Any, mm_cache: Any, index: Optional[int]) -> None:
        try:
            try:
                source = self._source_of[index or 0]
            except KeyError:
                source = self._add((index or 0,))
            observed = None
            if scheduler is not None:
                scheduler, observed = self._read_connectors(index or 0, fields_of(scheduler))
            self._recorder.record(source, scheduler, iteration, mm_cache, time=at, wall=time.time())
            if observed:
                self.publisher.observe(source, observed, time=at)
        except Exception as error:
            self.publisher.fault(error)

    def _read_connectors(self, index: int, fields: Mapping[str, Any]) -> Tuple[Mapping[str, Any], List[Observation]]:
        """The scheduler's stats without what connectors describe themselves, and that as observations."""
        observed: List[Observation] = []
        for name in self._connectors.fields:
            stats = fields.get(name)
            if stats:
                fields = {**fields, name: None}
                try:
                    observed += self._connectors.take(index, name, stats)
                except Exception as error:  # costs the connector's samples, not the step's
                    self.publisher.fault(error)
        return fields, observed

    def _event(self, at: float, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args, time=at)
        except Exception as error:
            self.publisher.fault(error)

    def _add(self, engine_indexes: Sequence[int]) -> int:
        """Adds the engines that there aren't yet; the source of the first."""
        with self._adding:
            for index in engine_indexes:
                if index in self._source_of:
                    continue
                if index in self._ended:
                    self.publisher.resume(self._ended[index])
                    self._source_of[index] = self._ended.pop(index)
                    continue
                first = self._connectors.add(index)
                self.publisher.update(families=self._connectors.families.values())
                self._source_of[index] = source = self.publisher.add_source(self._source(index))
                if first:
                    self.publisher.observe(source, first)
        self._ranks = max(self._ranks, self._data_parallel_size())
        return self._source_of[engine_indexes[0]]

    def _source(self, index: int) -> Dict[str, Any]:
        if index in self._places:
            stage, replica = self._places[index]
            # Stages without a scheduler never have a step: what steps feed must not stand at zero for them.
            return {**self._identity, "dp_rank": "0", "stage": stage, "replica": replica, "observed": True}
        return {**self._identity, "dp_rank": str(index)}

    def _data_parallel_size(self) -> int:
        return int(getattr(getattr(self._vllm_config, "parallel_config", None), "data_parallel_size", 1))


def _close_beside(publisher: Publisher) -> None:
    """Closing waits, and an engine is collected on any thread, in the middle of anything: also of what closing waits for."""
    threading.Thread(target=publisher.close, kwargs={"timeout_s": CLOSE_S}, name="statsbus-close", daemon=True).start()


_engines: weakref.WeakValueDictionary[int, Engine] = weakref.WeakValueDictionary()
