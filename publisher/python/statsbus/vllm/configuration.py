"""vLLM's configuration as the map that describes an engine, the same that recorded streams begin with."""

from __future__ import annotations

import enum
import logging
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

BUCKET_SETS = (
    "request_latency", "time_to_first_token", "inter_token_latency", "iteration_tokens", "request_params_n",
    "request_num_preemptions", "request_tokens", "kv_cache_residency",
)  # fmt: skip
TOKEN_STEPS = (1, 2, 5)  # mantissas of the bounds of token counts
SCHEDULER = (
    "max_num_seqs", "max_num_batched_tokens", "max_num_queued_reqs", "max_num_queued_tokens", "policy",
    "async_scheduling",
)  # fmt: skip
PARALLEL = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "data_parallel_size_local",
    "data_parallel_rank", "enable_expert_parallel", "world_size", "nnodes", "node_rank",
)  # fmt: skip
KV_TRANSFER = ("kv_connector", "kv_role", "kv_rank", "kv_parallel_size", "engine_id")  # not its free-form part: secrets

log = logging.getLogger("statsbus")


def engine_info(vllm_config: Any, engine_indexes: Sequence[int], vllm_version: str = "") -> Dict[str, Any]:
    """
    What is known of an engine. Configuration classes differ between releases: a part that this one doesn't have, or has
    otherwise, is left out and costs only the families that need it.
    """
    config = vllm_config
    parts: Dict[str, Callable[[], Any]] = {
        "model_name": lambda: served_name(config.model_config),
        "model": lambda: str(config.model_config.model),
        "max_model_len": lambda: config.model_config.max_model_len,
        "is_diffusion": lambda: bool(getattr(config.model_config, "is_diffusion", False)),
        "bucket_families": lambda: bucket_sets(config),
        "cache_config_info": lambda: config.cache_config.metrics_info(),
        "kv_transfer_role": lambda: plain(getattr(getattr(config, "kv_transfer_config", None), "kv_role", None)),
        "kv_transfer": lambda: scalars(getattr(config, "kv_transfer_config", None), KV_TRANSFER),
        "parallel_config": lambda: scalars(config.parallel_config, PARALLEL),
        "scheduler": lambda: scalars(config.scheduler_config, SCHEDULER),
        "observability": lambda: switches(config.observability_config),
        "lora": lambda: scalars(getattr(config, "lora_config", None), ("max_loras", "max_lora_rank")),
        "speculative": lambda: scalars(
            getattr(config, "speculative_config", None), ("method", "num_speculative_tokens")
        ),
        "watermark": lambda: getattr(config, "watermark_config", None) is not None,
        "env": lambda: {"VLLM_COMPUTE_NANS_IN_LOGITS": checks_for_nans()},
    }
    info: Dict[str, Any] = {"vllm_version": vllm_version, "engine_indexes": list(engine_indexes)}
    for name, part in parts.items():
        try:
            info[name] = part()
        except Exception as error:
            log.info("statsbus: this vLLM doesn't say its %s: %r", name, error)
    return info


def served_name(model_config: Any) -> Any:
    return getattr(model_config, "served_model_name", None) or model_config.model


def plain(value: Any) -> Any:
    """A scalar that msgpack has, or the text of what it hasn't."""
    if isinstance(value, enum.Enum):
        value = value.value
    return value if value is None or type(value) in (bool, int, float, str) else str(value)


def scalars(config: Any, names: Sequence[str]) -> Optional[Dict[str, Any]]:
    """These fields of a configuration, as far as it has them; None without a configuration."""
    if config is None:
        return None
    return {name: plain(getattr(config, name)) for name in names if hasattr(config, name)}


def switches(config: Any) -> Dict[str, Any]:
    """All truth values and numbers of a configuration, without what may be an address or a secret."""
    return {name: value for name, value in vars(config).items() if type(value) in (bool, int, float)}


def checks_for_nans() -> bool:
    try:
        import vllm.envs as envs

        return bool(envs.VLLM_COMPUTE_NANS_IN_LOGITS)
    except (ImportError, AttributeError):
        return os.environ.get("VLLM_COMPUTE_NANS_IN_LOGITS") == "1"


def bucket_sets(config: Any) -> Dict[str, List[float]]:
    """Bucket bounds by set name. Releases without a module for them have the catalog's, and these bounds of tokens."""
    overrides = getattr(config.observability_config, "custom_histogram_buckets", None)
    max_model_len = config.model_config.max_model_len
    try:
        from vllm.v1.metrics import buckets
    except ImportError:
        return {"request_tokens": token_bounds(max_model_len), **_given(overrides)}
    known = getattr(buckets, "BUCKET_FAMILY_KEYS", BUCKET_SETS)
    return {
        name: [float(b) for b in buckets.histogram_buckets(name, max_model_len=max_model_len, overrides=overrides)]
        for name in sorted(known)
    }


def _given(overrides: Optional[Mapping[str, Sequence[float]]]) -> Dict[str, List[float]]:
    return {name: [float(bound) for bound in bounds] for name, bounds in (overrides or {}).items()}


def token_bounds(most: int) -> List[float]:
    """1, 2, 5, 10, ... up to the longest context."""
    bounds: List[float] = []
    power = 1
    while True:
        for step in TOKEN_STEPS:
            if step * power > most:
                return bounds
            bounds.append(float(step * power))
        power *= 10
