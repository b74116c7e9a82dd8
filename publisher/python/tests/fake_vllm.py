"""A stand-in for vLLM: modules of the same names, with as much of its stat logger interface as the plugin meets."""

from __future__ import annotations

import enum
import sys
import types
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

VERSION = "0.32.0"


class FinishReason(enum.IntEnum):
    STOP = 0
    LENGTH = 1
    ABORT = 2

    def __str__(self) -> str:
        return self.name.lower()


class CacheHitSource(str, enum.Enum):
    DEVICE = "device"
    HOST = "host"


@dataclass
class FinishedRequestStats:
    finish_reason: FinishReason
    request_id: Optional[str] = None
    e2e_latency: float = 0.0
    num_prompt_tokens: int = 0
    max_tokens_param: Optional[int] = None


@dataclass
class PrefixCacheStats:
    reset: bool = False
    queries: int = 0
    hits: int = 0
    hits_by_source: Dict[CacheHitSource, int] = field(default_factory=dict)


@dataclass
class SchedulerStats:
    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_skipped_waiting_reqs: int = 0
    kv_cache_usage: float = 0.0
    prefix_cache_stats: PrefixCacheStats = field(default_factory=PrefixCacheStats)
    connector_prefix_cache_stats: Optional[PrefixCacheStats] = None
    kv_connector_stats: Optional[Dict[str, Any]] = None
    waiting_lora_adapters: Dict[str, int] = field(default_factory=dict)
    running_lora_adapters: Dict[str, int] = field(default_factory=dict)


@dataclass
class PromptTokenStats:
    computed: int = 0
    total: int = 0


class IterationStats:  # a plain class, as in vLLM
    def __init__(self) -> None:
        self.num_generation_tokens = 0
        self.prompt_token_stats = PromptTokenStats()
        self.finished_requests: List[FinishedRequestStats] = []
        self.inter_token_latencies_iter: List[float] = []


class CacheConfig:
    num_gpu_blocks: Optional[int] = None

    def metrics_info(self) -> Dict[str, str]:
        return {"block_size": "32", "num_gpu_blocks": str(self.num_gpu_blocks)}


def config(**parts: Any) -> SimpleNamespace:
    """A VllmConfig as far as it is read; `parts` replace or add."""
    given: Dict[str, Any] = {
        "model_config": SimpleNamespace(
            model="/models/tiny", served_model_name="tiny", max_model_len=100, is_diffusion=False
        ),
        "cache_config": CacheConfig(),
        "parallel_config": SimpleNamespace(data_parallel_size=1, tensor_parallel_size=1),
        "scheduler_config": SimpleNamespace(max_num_seqs=8, policy="fcfs"),
        "observability_config": SimpleNamespace(
            kv_cache_metrics=False, custom_histogram_buckets=None, otlp_traces_endpoint="http://user:secret@host"
        ),
        "kv_transfer_config": None,
        "ec_transfer_config": None,
        "lora_config": None,
        "speculative_config": None,
        "watermark_config": None,
    }
    return WeakNamespace(**{**given, **parts})


class WeakNamespace(SimpleNamespace):
    pass


def loggers_module(is_old: bool) -> types.ModuleType:
    """vllm.v1.metrics.loggers: of today, or as it was when each engine had loggers of its own."""
    module = types.ModuleType("vllm.v1.metrics.loggers")

    class StatLoggerBase:
        def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0):
            raise NotImplementedError

        def log_engine_initialized(self):
            raise NotImplementedError

        def log(self):
            pass

        def record_sleep_state(self, is_awake, level):
            pass

    if is_old:

        def record_of_old(self, scheduler_stats, iteration_stats, engine_idx=0):
            raise NotImplementedError

        StatLoggerBase.record = record_of_old

    class AggregateStatLoggerBase(StatLoggerBase):
        def record_admission_rejection(self, reason):
            pass

    class PrometheusStatLogger(StatLoggerBase if is_old else AggregateStatLoggerBase):
        made = 0

        def __init__(self, vllm_config, engine_indexes=None):
            type(self).made += 1
            self.recorded = 0

        def record(self, *args, **kwargs):
            self.recorded += 1

        def log_engine_initialized(self):
            pass

    class StatLoggerManager:
        def __init__(self, vllm_config, engine_idxs=None, custom_stat_loggers=None):
            indexes = engine_idxs or [0]
            self.stat_loggers, is_replaced = [], False
            for factory in custom_stat_loggers or []:
                is_replaced = is_replaced or issubclass(factory, PrometheusStatLogger)
                if is_old and not issubclass(factory, PrometheusStatLogger):
                    self.stat_loggers += [factory(vllm_config, index) for index in indexes]
                else:
                    self.stat_loggers.append(factory(vllm_config, engine_indexes=indexes))
            if not is_replaced:
                self.stat_loggers.append(PrometheusStatLogger(vllm_config, indexes))

        def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0):
            for logger in self.stat_loggers:
                if is_old:
                    if getattr(logger, "engine_indexes", [engine_idx]) == [engine_idx]:
                        logger.record(scheduler_stats, iteration_stats, engine_idx)
                else:
                    logger.record(scheduler_stats, iteration_stats, mm_cache_stats=mm_cache_stats, engine_idx=engine_idx)

        def call(self, name, *args):
            for logger in self.stat_loggers:
                getattr(logger, name)(*args)

    module.StatLoggerBase = StatLoggerBase
    module.PrometheusStatLogger = PrometheusStatLogger
    module.StatLoggerManager = StatLoggerManager
    if not is_old:
        module.AggregateStatLoggerBase = AggregateStatLoggerBase
    return module


def install(monkeypatch: Any, is_old: bool = False) -> types.ModuleType:
    """Puts the stand-in into sys.modules; returns its loggers module."""
    loggers = loggers_module(is_old)
    modules = {"vllm": types.ModuleType("vllm"), "vllm.v1": types.ModuleType("vllm.v1"),
               "vllm.v1.metrics": types.ModuleType("vllm.v1.metrics"), "vllm.v1.metrics.loggers": loggers}  # fmt: skip
    modules["vllm"].__version__ = VERSION
    modules["vllm.v1.metrics"].loggers = loggers
    if not is_old:
        buckets = modules["vllm.v1.metrics.buckets"] = types.ModuleType("vllm.v1.metrics.buckets")
        buckets.BUCKET_FAMILY_KEYS = frozenset({"request_latency", "request_tokens"})
        buckets.histogram_buckets = lambda name, max_model_len=None, overrides=None: (
            (overrides or {}).get(name) or ([1, 2, 5] if name == "request_tokens" else [0.3, 0.5])
        )
        modules["vllm.v1.metrics"].buckets = buckets
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "statsbus.vllm.plugin", raising=False)
    return loggers
