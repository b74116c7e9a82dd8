"""
What vLLM hands its stat loggers, as the wire has it. Serves the replay of recorded streams and the engine plugin alike.

Scheduler stats and multi-modal cache stats pass as they are. Iteration stats do until requests finish, whose reason is
an enumeration that travels as its text. What the catalog's language cannot say (LoRA adapters) is flattened here.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .publisher import Publisher

LORA_FAMILY = "vllm:lora_requests_info"
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


def iteration_content(stats: Any) -> Any:
    """Iteration stats with the reasons of finished requests as texts; maps (a recording) have them already."""
    if stats is None or isinstance(stats, Mapping) or not getattr(stats, "finished_requests", None):
        return stats
    content = {name: value for name, value in vars(stats).items() if not name.startswith("_")}
    content["finished_requests"] = [_finished(request) for request in stats.finished_requests]
    return content


def _finished(request: Any) -> Any:
    if not dataclasses.is_dataclass(request):
        return request
    return {field.name: _text_of_enum(getattr(request, field.name, None)) for field in dataclasses.fields(request)}


def _text_of_enum(value: Any) -> Any:
    return _text(value) if isinstance(value, enum.Enum) else value


def _text(value: Any) -> str:
    """An enumeration's text: the value of a text enumeration, else what it prints as (FinishReason: `stop`)."""
    return str(value.value) if isinstance(value, enum.Enum) and isinstance(value, str) else str(value)


class VllmRecorder:
    """The calls of vLLM's stat logger interface, for one publisher."""

    def __init__(self, publisher: Publisher, engine_info: Mapping[str, Any], *, time: Optional[float] = None) -> None:
        self._publisher = publisher
        lora = engine_info.get("lora")
        self._max_loras = str(lora.get("max_loras")) if isinstance(lora, Mapping) else None
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
        if self._max_loras is not None and scheduler_stats is not None:
            self._publisher.observe(source, self._adapters(scheduler_stats, wall), time=time)

    def _adapters(self, stats: Any, wall: float) -> List[Tuple[str, Dict[str, str], float]]:
        """Adapters that run and wait, as one observation."""
        fields = stats if isinstance(stats, Mapping) else vars(stats)
        names = ("running_lora_adapters", "waiting_lora_adapters")
        labels = {name: ",".join(str(adapter) for adapter in fields.get(name) or ()) for name in names}
        return [(LORA_FAMILY, {"max_lora": str(self._max_loras), **labels}, wall)]

    def sleep(self, sleep: int, level: int, *, time: Optional[float] = None) -> None:
        self._publisher.event(None, sleep_event(sleep, level), time=time)

    def admission(self, reason: Any, *, time: Optional[float] = None) -> None:
        self._publisher.event(None, admission_event(reason), time=time)
