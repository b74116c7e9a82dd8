"""
What vLLM hands its stat loggers, as the wire has it. Serves the replay of recorded streams and the engine plugin alike.

Scheduler stats and multi-modal cache stats pass as they are. Iteration stats do until requests finish, whose reason is
an enumeration that travels as its text. What the catalog's language cannot say (LoRA adapters) is flattened here.
"""

from __future__ import annotations

import enum
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple, cast

from ..publisher import Publisher

LORA_FAMILY = "vllm:lora_requests_info"
RUNNING, WAITING = "running_lora_adapters", "waiting_lora_adapters"  # fields, and labels of the family
ADAPTERS_S = 1.0  # adapters that stay the same are published this often: their value is a clock, not a count
NOT_CONFIGURATION = ("prom_catalog", "cache_config_info", "bucket_families", "argv")


def description(engine_info: Mapping[str, Any]) -> Dict[str, Any]:
    """Arguments for `Publisher` out of the map that describes an engine."""
    cache = engine_info.get("cache_config_info")
    return {
        "engine": ("vllm", str(engine_info.get("vllm_version", ""))),
        "config": {name: value for name, value in engine_info.items() if name not in NOT_CONFIGURATION},
        "buckets": engine_info.get("bucket_families") or {},
        "info": [(None, "cache_config_info", cache)] if cache else [],
    }


def model_name(engine_info: Mapping[str, Any]) -> Optional[str]:
    """The first name under which the model is served."""
    name = engine_info.get("model_name")
    if isinstance(name, (list, tuple)):
        name = name[0] if name else None
    return None if name is None else str(name)


def sleep_event(sleep: int, level: int) -> Dict[str, Dict[str, Any]]:
    return {"sleep": {"sleep": int(sleep), "level": int(level)}}


def admission_event(reason: Any) -> Dict[str, Dict[str, Any]]:
    return {"admission": {"reason": _text(reason)}}


def fields_of(stats: Any) -> Mapping[str, Any]:
    """The fields of a stats object, of whatever kind of class; a map (of a recording) has them already."""
    try:
        return cast(Mapping[str, Any], stats.__dict__)
    except AttributeError:
        if isinstance(stats, Mapping):
            return stats
    kind = type(stats)
    names: Iterable[str] = getattr(kind, "__struct_fields__", getattr(kind, "__slots__", ()))
    return {name: getattr(stats, name) for name in names if hasattr(stats, name)}


def iteration_content(stats: Any) -> Any:
    """Iteration stats as a map, with the reasons of finished requests as texts."""
    try:
        fields = stats.__dict__
        finished = fields["finished_requests"]
    except (AttributeError, KeyError):  # none, a recording's map, or a class of another make
        if stats is None:
            return None
        fields = fields_of(stats)
        finished = fields.get("finished_requests")
    if not finished or type(finished[0]) is dict:
        return fields
    return {**fields, "finished_requests": [_finished(request) for request in finished]}


def _finished(request: Any) -> Any:
    """Encoding would make a number of the reason, which is an enumeration of integers."""
    fields = dict(fields_of(request))
    reason = fields.get("finish_reason")
    if reason is not None:
        fields["finish_reason"] = _text(reason)
    return fields


def _text(value: Any) -> str:
    """An enumeration's text: the value of a text enumeration, else what it prints as (FinishReason: `stop`)."""
    return str(value.value) if isinstance(value, enum.Enum) and isinstance(value, str) else str(value)


class VllmRecorder:
    """The calls of vLLM's stat logger interface, for one publisher."""

    def __init__(self, publisher: Publisher, engine_info: Mapping[str, Any], *, time: Optional[float] = None) -> None:
        self._publisher = publisher
        lora = engine_info.get("lora")
        self._max_loras = str(lora.get("max_loras")) if isinstance(lora, Mapping) else None
        self.has_adapters = self._max_loras is not None
        self._adapters_seen: Dict[int, Tuple[Tuple[str, str], float]] = {}  # by source: adapters, when last published
        # The engine is awake when it starts and says nothing; its own logger prints that state from the start.
        self.sleep(0, 0, time=time)

    def record(
        self,
        source: int,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        *,
        time: Optional[float] = None,
        wall: float = 0.0,
    ) -> None:
        """One step. `wall` is the time of day, which is what the LoRA family shows."""
        self._publisher.step(source, scheduler_stats, iteration_content(iteration_stats), mm_cache_stats, time=time)
        if self.has_adapters:
            self.note_adapters(source, scheduler_stats, iteration_stats, time, wall)

    def note_adapters(
        self, source: int, scheduler: Any, iteration: Any, time: Optional[float], wall: float
    ) -> None:
        """Which adapters run and wait, as one observation; while they stay the same, once a second."""
        for stats in (scheduler, iteration):  # vLLM moved them from the one to the other
            fields = {} if stats is None else fields_of(stats)
            if RUNNING in fields:
                break
        else:
            return
        adapters = (_joined(fields[RUNNING]), _joined(fields.get(WAITING)))
        known, at = self._adapters_seen.get(source, (None, 0.0))
        if adapters == known and 0.0 <= wall - at < ADAPTERS_S:
            return
        self._adapters_seen[source] = (adapters, wall)
        labels = {"max_lora": self._max_loras, RUNNING: adapters[0], WAITING: adapters[1]}
        self._publisher.observe(source, [(LORA_FAMILY, labels, wall)], time=time)

    def sleep(self, sleep: int, level: int, *, time: Optional[float] = None) -> None:
        self._publisher.event(None, sleep_event(sleep, level), time=time)

    def admission(self, reason: Any, *, time: Optional[float] = None) -> None:
        self._publisher.event(None, admission_event(reason), time=time)


def _joined(adapters: Any) -> str:
    return ",".join(str(adapter) for adapter in adapters or ())
