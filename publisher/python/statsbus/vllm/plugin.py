"""The stat logger that vLLM finds through the entry-point group `vllm.stat_logger_plugins`. Importing this needs vLLM."""

from __future__ import annotations

import functools
import inspect
import logging
from typing import Any, Optional, Sequence, Union

import vllm
from vllm.v1.metrics import loggers

from ..switches import is_on, replaces_prometheus
from .engine import Engine

log = logging.getLogger("statsbus")


def _base() -> Any:
    """vLLM leaves out its Prometheus logger for one that is derived from it; only an aggregate hears of rejections."""
    if replaces_prometheus():
        return loggers.PrometheusStatLogger
    return getattr(loggers, "AggregateStatLoggerBase", loggers.StatLoggerBase)


class StatsbusStatLogger(_base()):  # type: ignore[misc]
    """Publishes what it is told. Does nothing where STATSBUS_ENGINES is unset, or names no endpoint."""

    def __init__(
        self, vllm_config: Any, engine_indexes: Union[int, Sequence[int], None] = None, engine_index: int = 0
    ) -> None:
        # The base's constructor is left out on purpose: the one of PrometheusStatLogger makes its metrics.
        if engine_indexes is None or isinstance(engine_indexes, int):  # releases that make one logger an engine
            engine_indexes = [engine_index if engine_indexes is None else engine_indexes]
        self.vllm_config = vllm_config
        self.engine_indexes = list(engine_indexes)
        self.engine: Optional[Engine] = None
        if not is_on():
            return
        try:
            version = getattr(vllm, "__version__", "")
            self.engine = engine = Engine.of(vllm_config, self.engine_indexes, vllm_version=version)
            for name, call in engine.calls(_has_mm_cache_stats()).items():
                setattr(self, name, call)
            _stay_after_elastic_changes()
        except Exception as error:
            _say_off(error)

    # What vLLM calls, where there is nothing to publish to. Otherwise the engine's methods are in their place.

    def record(self, *_: Any, **__: Any) -> None:
        pass

    def record_sleep_state(self, *_: Any, **__: Any) -> None:
        pass

    def record_admission_rejection(self, *_: Any, **__: Any) -> None:
        pass

    def log_engine_initialized(self) -> None:
        pass

    def log(self) -> None:
        pass


def _has_mm_cache_stats() -> bool:
    return "mm_cache_stats" in inspect.signature(loggers.StatLoggerBase.record).parameters


def _stay_after_elastic_changes() -> None:
    """When vLLM scales data parallelism up, it makes its loggers anew and forgets those of plugins. We add ourselves."""
    manager = getattr(loggers, "StatLoggerManager", None)
    if manager is None or getattr(manager.__init__, "is_of_statsbus", False):
        return
    make = manager.__init__

    @functools.wraps(make)
    def make_with_us(self: Any, *args: Any, **kwargs: Any) -> None:
        if "custom_stat_loggers" in kwargs and kwargs["custom_stat_loggers"] is None:
            kwargs["custom_stat_loggers"] = [StatsbusStatLogger]
        make(self, *args, **kwargs)

    make_with_us.is_of_statsbus = True  # type: ignore[attr-defined]
    manager.__init__ = make_with_us


def _say_off(error: Exception) -> None:
    try:
        log.error("statsbus: this engine publishes nothing: %s", error)
    except Exception:  # a logging handler that raises must not reach the engine
        pass
