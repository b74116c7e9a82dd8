"""What the engines of a random cluster count, and the views of its hub (world.py)."""

from __future__ import annotations

from model.model import VIEWS, Derived, Family, View

TOKENS = Family("vllm:generation_tokens_total", "counter", "throughput_counter")
REASONS = Family("vllm:request_success_total", "counter", "counter")
HITS = Family("vllm:prefix_cache_hits_total", "counter", "ratio_numerator")
QUERIES = Family("vllm:prefix_cache_queries_total", "counter", "ratio_denominator")
TTFT = Family("vllm:time_to_first_token_seconds", "histogram", "sla_metric", ("decode", "both"))
QUEUED = Family("vllm:request_queue_time_seconds", "histogram", "histogram_latency")
PREFILL = Family("vllm:request_prefill_time_seconds", "histogram", "histogram")
RUNNING = Family("vllm:num_requests_running", "gauge", "state_gauge")
WAITING = Family("vllm:num_requests_waiting_by_reason", "gauge", "queue_gauge")
KV = Family("vllm:kv_cache_usage_perc", "gauge", "cache_metric")
CONFIG = Family("vllm:cache_config_info", "gauge", "metadata_gauge")
SECONDS = Family("e:busy_seconds_total", "counter", "counter", ("prefill",))
FULLEST = Family("e:fullest_ratio", "gauge", "occupancy_metric", ("decode",))
STAGED = Family("e:stage_gen_seconds", "histogram", "histogram_latency")
REJECTED = Family("vllm:admission_rejections_total", "counter", "counter")
DESCRIBED = (SECONDS, FULLEST, STAGED)
CUMULATIVE = {TOKENS.name, REASONS.name, HITS.name, QUERIES.name, SECONDS.name, REJECTED.name} | {
    f.name + end for f in (TTFT, QUEUED, PREFILL, STAGED) for end in ("_bucket", "_sum", "_count")}
GAUGES = {f.name + end for f in (RUNNING, WAITING, KV, CONFIG, FULLEST) for end in ("", "_max")}
SOURCE_COUNTERS = ("statsbus_source_incarnations_total", "statsbus_source_conflicts_total")
DERIVED = (
    Derived("vllm:kv_cache_usage_perc_max", "max", (KV.name,)),
    Derived("vllm:num_requests_running_max", "max", (RUNNING.name,)),
    Derived("vllm:prefix_cache_hit_rate", "ratio", (HITS.name, QUERIES.name)),
)
NAMES = {TOKENS.name, "vllm:prefix_cache_hits", KV.name, TTFT.name, TTFT.name + "_p95", TTFT.name + "_mean", "vllm:prefix_cache_hit_rate", "nosuch"}
BOUNDS = ((0.1, 0.5, 1.0, 2.5), (0.5, 2.5, 10.0), (0.1, 0.25, 0.5), (0.5, 1.0))

OWN_VIEWS = """
version: 1
views:
  tenant: {by: [tenant], keep: true, buckets: false}
  decoders: {by: [node, stage], where: {role: [decode, both]}, deny: [vllm:cache_config_info, vllm:generation_tokens], derived: false}
  ranks: {by: [dp_rank], allow: [vllm:generation_tokens, vllm:kv_cache_usage_perc_max, vllm:time_to_first_token_seconds_p95],
          rename: {engine: dp_rank}}
  scoped: {by: [instance_id, dp_rank, stage, role], role_scope: true}
"""
ALL_VIEWS = (
    *VIEWS,
    View("tenant", ("tenant",), keep=True, buckets=False),
    View("decoders", ("node", "stage"), where=(("role", ("decode", "both")),),
         deny=("vllm:cache_config_info", "vllm:generation_tokens"), derived=False),
    View("ranks", ("dp_rank",), allow=("vllm:generation_tokens", "vllm:kv_cache_usage_perc_max", "vllm:time_to_first_token_seconds_p95"),
         rename=(("engine", "dp_rank"),)),
    View("scoped", ("instance_id", "dp_rank", "stage", "role"), role_scope=True),
)
