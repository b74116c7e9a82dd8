"""
A logger that does with prometheus_client what vLLM's own does, for machines without vLLM: the same families, observed
from objects of the same shape. What feeds what is read from the tables of tests/reference.py.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import fake_vllm
import prometheus_client
import reference

BOUNDS = {
    "inter_token_latency": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
    "request_latency": (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680),
}
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass
class PrefixCacheStats(fake_vllm.PrefixCacheStats):
    requests: int = 0


@dataclass
class FinishedRequestStats(fake_vllm.FinishedRequestStats):
    num_preemptions: int = 0
    num_generation_tokens: int = 0
    queued_time: float = 0.0
    prefill_time: float = 0.0
    inference_time: float = 0.0
    decode_time: float = 0.0
    mean_time_per_output_token: float = 0.0
    num_cached_tokens: int = 0


@dataclass
class PromptTokenStats(fake_vllm.PromptTokenStats):
    local_cache_hit: int = 0
    external_kv_transfer: int = 0
    cached_tokens: int = 0


@dataclass
class SchedulerStats(fake_vllm.SchedulerStats):
    kv_cache_eviction_events: list[Any] = field(default_factory=list)
    spec_decoding_stats: Any = None
    perf_stats: Any = None


class IterationStats(fake_vllm.IterationStats):
    def __init__(self) -> None:
        super().__init__()
        self.prompt_token_stats = PromptTokenStats()
        self.num_preempted_reqs = 0
        self.max_num_generation_tokens_iter: list[int] = []
        self.n_params_iter: list[int] = []
        self.time_to_first_tokens_iter: list[float] = []


CLASSES = (SchedulerStats, IterationStats, FinishedRequestStats, fake_vllm.FinishReason.LENGTH, PrefixCacheStats)
config = fake_vllm.config

_registry = prometheus_client.CollectorRegistry()
_labels = {"model_name": "tiny", "engine": "0"}


def _counter(name: str, **own: str) -> Any:
    if name not in _counters:
        _counters[name] = prometheus_client.Counter(f"vllm:{name}", name, [*_labels, *own], registry=_registry)
    return _counters[name].labels(**_labels, **own)


def _histogram(name: str, bucket_set: str) -> Any:
    metric = prometheus_client.Histogram(f"vllm:{name}", name, list(_labels), registry=_registry, buckets=BOUNDS.get(bucket_set, TOKENS))
    return metric.labels(**_labels)


def _waiting(scheduler: Any) -> Any:
    return scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs


_counters: dict[str, Any] = {}
_gauges = [(prometheus_client.Gauge(f"vllm:{name}", name, list(_labels), registry=_registry).labels(**_labels), value)
           for name, value in [*((name, operator.attrgetter(name)) for name in (
               "num_running_reqs", "num_waiting_reqs", "num_skipped_waiting_reqs", "kv_cache_usage")), ("waiting", _waiting)]]
_numbers = {part: [(_counter(name, **labels), operator.attrgetter(path)) for name, owner, path, labels in reference.COUNTERS
                   if owner == part and name != "prompt_tokens_cached_by_source" and not path.startswith(("connector", "perf"))]
            for part in ("scheduler_stats", "iteration_stats")}
_lists = [(_histogram(name, bucket_set), operator.attrgetter(path)) for name, bucket_set, path in reference.ITERATION_LISTS]
_requests = [(_histogram(name, bucket_set), operator.attrgetter(path)) for name, bucket_set, path in reference.REQUEST_FIELDS]
_by_tier = prometheus_client.Counter("vllm:prompt_tokens_cached_by_source", "by tier", [*_labels, "source"], registry=_registry)
_ended = _counter("request_success", finished_reason="length")
_iteration = _histogram("iteration_tokens_total", "iteration_tokens")


def record(scheduler: Any, iteration: Any) -> None:
    """One step, counted."""
    for gauge, value in _gauges:
        gauge.set(value(scheduler))
    # vLLM keeps no child of this one, but looks it up at each step.
    _by_tier.labels("tiny", "0", "device").inc(scheduler.prefix_cache_stats.hits)
    for part, stats in (("scheduler_stats", scheduler), ("iteration_stats", iteration)):
        for counter, value in _numbers[part]:
            counter.inc(value(stats))
    _iteration.observe(iteration.prompt_token_stats.computed + iteration.num_generation_tokens)
    for histogram, values in _lists:
        for value in values(iteration):
            histogram.observe(value)
    for request in iteration.finished_requests:
        _ended.inc()
        for histogram, value in _requests:
            histogram.observe(value(request))
