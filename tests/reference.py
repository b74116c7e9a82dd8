"""What a vLLM engine's /metrics says after a number of stat-logger calls, computed from the calls.

The tests' own reading of vLLM 0.32, written down as tables: it shares nothing with the catalog or the daemons, so that a
mistake in either shows up as a difference. Checked itself against what real engines printed (tests/data/captures).
"""

from __future__ import annotations

import bisect
import gzip
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

Labels = frozenset[tuple[str, str]]
Series = dict[tuple[str, str, Labels], float]  # (family, sample name, labels) to value

# Families fed by one number of a call: (family, part of the call, path in it, labels)
COUNTERS: list[tuple[str, str, str, dict[str, str]]] = [
    ("prefix_cache_queries", "scheduler_stats", "prefix_cache_stats.queries", {}),
    ("prefix_cache_hits", "scheduler_stats", "prefix_cache_stats.hits", {}),
    ("prompt_tokens_cached_by_source", "scheduler_stats", "prefix_cache_stats.hits", {"source": "device"}),
    ("external_prefix_cache_queries", "scheduler_stats", "connector_prefix_cache_stats.queries", {}),
    ("external_prefix_cache_hits", "scheduler_stats", "connector_prefix_cache_stats.hits", {}),
    ("estimated_flops_per_gpu", "scheduler_stats", "perf_stats.num_flops_per_gpu", {}),
    ("estimated_read_bytes_per_gpu", "scheduler_stats", "perf_stats.num_read_bytes_per_gpu", {}),
    ("estimated_write_bytes_per_gpu", "scheduler_stats", "perf_stats.num_write_bytes_per_gpu", {}),
    ("mm_cache_queries", "mm_cache_stats", "queries", {}),
    ("mm_cache_hits", "mm_cache_stats", "hits", {}),
    ("num_preemptions", "iteration_stats", "num_preempted_reqs", {}),
    ("prompt_tokens", "iteration_stats", "prompt_token_stats.total", {}),
    ("prompt_tokens_cached", "iteration_stats", "prompt_token_stats.cached_tokens", {}),
    ("prompt_tokens_by_source", "iteration_stats", "prompt_token_stats.computed", {"source": "local_compute"}),
    ("prompt_tokens_by_source", "iteration_stats", "prompt_token_stats.local_cache_hit", {"source": "local_cache_hit"}),
    ("prompt_tokens_by_source", "iteration_stats", "prompt_token_stats.external_kv_transfer", {"source": "external_kv_transfer"}),
    ("generation_tokens", "iteration_stats", "num_generation_tokens", {}),
]
SPECULATION = [("spec_decode_num_drafts", "num_drafts"), ("spec_decode_num_draft_tokens", "num_draft_tokens"),
               ("spec_decode_num_accepted_tokens", "num_accepted_tokens")]
# Histograms of an iteration: (family, bucket set, field that is a list)
ITERATION_LISTS = [
    ("request_max_num_generation_tokens", "request_tokens", "max_num_generation_tokens_iter"),
    ("request_params_n", "request_params_n", "n_params_iter"),
    ("time_to_first_token_seconds", "time_to_first_token", "time_to_first_tokens_iter"),
    ("inter_token_latency_seconds", "inter_token_latency", "inter_token_latencies_iter"),
]
# Histograms of a finished request: (family, bucket set, field)
REQUEST_FIELDS = [
    ("e2e_request_latency_seconds", "request_latency", "e2e_latency"),
    ("request_queue_time_seconds", "request_latency", "queued_time"),
    ("request_prefill_time_seconds", "request_latency", "prefill_time"),
    ("request_inference_time_seconds", "request_latency", "inference_time"),
    ("request_decode_time_seconds", "request_latency", "decode_time"),
    ("request_num_preemptions", "request_num_preemptions", "num_preemptions"),
    ("request_prompt_tokens", "request_tokens", "num_prompt_tokens"),
    ("request_generation_tokens", "request_tokens", "num_generation_tokens"),
    ("request_time_per_output_token_seconds", "inter_token_latency", "mean_time_per_output_token"),
]
OTHER_HISTOGRAMS = [("iteration_tokens_total", "iteration_tokens"), ("request_prefill_kv_computed_tokens", "request_tokens"),
                    ("request_params_max_tokens", "request_tokens")]
EVICTION = ["kv_block_lifetime_seconds", "kv_block_idle_before_evict_seconds", "kv_block_reuse_gap_seconds"]
# Label values that exist from the start.
ENUMERATED = {
    "prompt_tokens_cached_by_source": ("source", ["device", "host", "p2p", "disk", "external_unspecified"]),
    "request_success": ("finished_reason", ["stop", "length", "abort", "error", "repetition"]),
    "admission_rejections": ("reason", ["max_num_queued_reqs", "max_num_queued_tokens"]),
}


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """The calls of one recorded process."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    decoder = msgspec.msgpack.Decoder()
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        yield decoder.decode(data[at + 4:at + 4 + length])
        at += 4 + length


def dig(value: Any, path: str) -> Any:
    for key in path.split("."):
        if value is None:
            return None
        value = value.get(key)
    return value


def bound_text(bound: float) -> str:
    """`le` as prometheus_client prints it."""
    text = repr(float(bound))
    dot = text.find(".")
    if bound > 0 and dot > 6:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1:]}".rstrip("0.")
        return f"{mantissa}e+0{dot - 1}"
    return text


class Histogram:
    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = [float(b) for b in bounds]
        self.buckets = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.buckets[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value


class Process:
    """One process of an engine: what its own stat logger would have counted."""

    def __init__(self) -> None:
        self.counters: dict[tuple[str, Labels], float] = {}
        self.histograms: dict[tuple[str, Labels], Histogram] = {}
        self.gauges: dict[tuple[str, Labels], tuple[float, float]] = {}  # value, time
        self.info: dict[str, Any] = {}

    def feed(self, entry: dict[str, Any]) -> None:
        kind = entry["kind"]
        if kind == "engine_info":
            self._begin(entry["info"], entry["t"])
        elif kind == "record":
            self._record(entry)
        elif kind == "sleep":
            self._sleep(entry["sleep"], entry["level"], entry["t"])
        elif kind == "admission":
            self._count("admission_rejections", {"model_name": self.info["model_name"], "reason": entry["reason"]}, 1)

    def _engine(self, index: int, **labels: str) -> dict[str, str]:
        return {"model_name": self.info["model_name"], "engine": str(index), **labels}

    def _count(self, family: str, labels: dict[str, str], value: float) -> None:
        key = (family, frozenset(labels.items()))
        self.counters[key] = self.counters.get(key, 0.0) + value

    def _set(self, family: str, labels: dict[str, str], value: float, time: float) -> None:
        self.gauges[family, frozenset(labels.items())] = (float(value), time)

    def _histogram(self, family: str, engine: int, bucket_set: str) -> Histogram:
        key = (family, frozenset(self._engine(engine).items()))
        if key not in self.histograms:
            self.histograms[key] = Histogram(self.info["bucket_families"][bucket_set])
        return self.histograms[key]

    def _begin(self, info: dict[str, Any], time: float) -> None:
        self.info = info
        for engine in info["engine_indexes"]:
            for family, _, _, labels in COUNTERS:
                self._count(family, self._engine(engine, **labels), 0)
            for family in ("prompt_tokens_cached_by_source", "request_success"):
                label, values = ENUMERATED[family]
                for value in values:
                    self._count(family, self._engine(engine, **{label: value}), 0)
            if info["speculative"]:
                for family, _ in SPECULATION:
                    self._count(family, self._engine(engine), 0)
                for position in range(info["speculative"]["num_speculative_tokens"]):
                    self._count("spec_decode_num_accepted_tokens_per_pos", self._engine(engine, position=str(position)), 0)
            for family, bucket_set, *_ in [*ITERATION_LISTS, *REQUEST_FIELDS, *OTHER_HISTOGRAMS]:
                self._histogram(family, engine, bucket_set)
            if info["observability"]["kv_cache_metrics"]:
                for family in EVICTION:
                    self._histogram(family, engine, "kv_cache_residency")
            self._snapshot(engine, {"num_running_reqs": 0, "num_waiting_reqs": 0, "num_skipped_waiting_reqs": 0, "kv_cache_usage": 0}, 0)
            self._set("cache_config_info", {**info["cache_config_info"], "engine": str(engine)}, 1, time)
        for reason in ENUMERATED["admission_rejections"][1]:
            self._count("admission_rejections", {"model_name": info["model_name"], "reason": reason}, 0)
        self._sleep(0, 0, time)

    def _sleep(self, sleep: int, level: int, time: float) -> None:
        states = {"awake": sleep == 0, "weights_offloaded": sleep == 1 and level == 1, "discard_all": sleep == 1 and level == 2}
        for engine in self.info["engine_indexes"]:
            for state, is_in in states.items():
                self._set("engine_sleep_state", self._engine(engine, sleep_state=state), is_in, time)

    def _snapshot(self, engine: int, stats: dict[str, Any], time: float) -> None:
        capacity, deferred = stats["num_waiting_reqs"], stats["num_skipped_waiting_reqs"]
        self._set("num_requests_running", self._engine(engine), stats["num_running_reqs"], time)
        self._set("num_requests_waiting", self._engine(engine), capacity + deferred, time)
        self._set("num_requests_waiting_by_reason", self._engine(engine, reason="capacity"), capacity, time)
        self._set("num_requests_waiting_by_reason", self._engine(engine, reason="deferred"), deferred, time)
        self._set("kv_cache_usage_perc", self._engine(engine), stats["kv_cache_usage"], time)

    def _record(self, entry: dict[str, Any]) -> None:
        engine = entry["engine_idx"]
        for family, part, path, labels in COUNTERS:
            value = dig(entry.get(part), path)
            if value is not None:
                self._count(family, self._engine(engine, **labels), value)
        if entry["scheduler_stats"] is not None:
            self._scheduler(engine, entry["scheduler_stats"], entry["t"])
        if entry["iteration_stats"] is not None:
            self._iteration(engine, entry["iteration_stats"])

    def _scheduler(self, engine: int, stats: dict[str, Any], time: float) -> None:
        self._snapshot(engine, stats, time)
        for source, hits in (dig(stats, "connector_prefix_cache_stats.hits_by_source") or {}).items():
            self._count("prompt_tokens_cached_by_source", self._engine(engine, source=source), hits)
        drafts = stats["spec_decoding_stats"]
        if drafts is not None and self.info["speculative"]:
            for family, field in SPECULATION:
                self._count(family, self._engine(engine), drafts[field])
            for position, accepted in enumerate(drafts["num_accepted_tokens_per_pos"]):
                self._count("spec_decode_num_accepted_tokens_per_pos", self._engine(engine, position=str(position)), accepted)
        if self.info["observability"]["kv_cache_metrics"]:
            lifetime, idle, gap = (self._histogram(family, engine, "kv_cache_residency") for family in EVICTION)
            for event in stats["kv_cache_eviction_events"]:
                lifetime.observe(event["lifetime_seconds"])
                idle.observe(event["idle_seconds"])
                for seconds in event["reuse_gaps_seconds"]:
                    gap.observe(seconds)

    def _iteration(self, engine: int, stats: dict[str, Any]) -> None:
        computed = stats["prompt_token_stats"]["computed"]
        self._histogram("iteration_tokens_total", engine, "iteration_tokens").observe(computed + stats["num_generation_tokens"])
        for family, bucket_set, field in ITERATION_LISTS:
            for value in stats[field]:
                self._histogram(family, engine, bucket_set).observe(value)
        for request in stats["finished_requests"]:
            self._count("request_success", self._engine(engine, finished_reason=request["finish_reason"]), 1)
            for family, bucket_set, field in REQUEST_FIELDS:
                self._histogram(family, engine, bucket_set).observe(request[field])
            self._histogram("request_prefill_kv_computed_tokens", engine, "request_tokens").observe(
                request["num_prompt_tokens"] - max(request["num_cached_tokens"], 0))
            if request["max_tokens_param"]:
                self._histogram("request_params_max_tokens", engine, "request_tokens").observe(request["max_tokens_param"])


def engine_series(processes: Iterable[Process]) -> Series:
    """The series that the processes of one engine print together: sums, and of gauges the latest."""
    out: Series = {}
    latest: dict[tuple[str, Labels], float] = {}

    def add(family: str, suffix: str, labels: Labels, value: float) -> None:
        key = (f"vllm:{family}", f"vllm:{family}{suffix}", labels)
        out[key] = out.get(key, 0.0) + value

    for process in processes:
        for (family, labels), value in process.counters.items():
            add(family, "_total", labels, value)
        for (family, labels), histogram in process.histograms.items():
            below = 0
            for bound, count in zip([*map(bound_text, histogram.bounds), "+Inf"], histogram.buckets):
                below += count
                add(family, "_bucket", labels | {("le", bound)}, below)
            add(family, "_count", labels, below)
            add(family, "_sum", labels, histogram.sum)
        for (family, labels), (value, time) in process.gauges.items():
            if time >= latest.get((family, labels), 0.0):
                latest[family, labels] = time
                out[f"vllm:{family}", f"vllm:{family}", labels] = value
    return out
