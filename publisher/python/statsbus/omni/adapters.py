"""
Drop-ins for the metric classes of vLLM-Omni: the same names, methods and arguments. vLLM-Omni itself sees to it that a
request counts once; here are the rules about values. Each call is one observation, and does nothing without `log_stats`.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Dict, Mapping, Optional, Tuple

from ..encoding import Observation
from ..locks import Lock
from ..switches import is_on
from ..vllm.identity import identity
from .audio import abort
from .realtime import Realtime
from .recorder import Recorder, Sites, at_least_zero, site
from .requests import RequestCounter as OmniRequestCounter
from .requests import Requests, reason_text
from .stages import Stages
from .transfers import edge

__all__ = [
    "OmniModalityMetrics",
    "OmniPrometheusMetrics",
    "OmniPrometheusStatLogger",
    "OmniRequestCounter",
    "OmniTransferMetrics",
    "RealtimeVADMetrics",
]

log = logging.getLogger("statsbus")


class Shared:
    """One recorder for each model of this process, whichever class asks first. STATSBUS_ENGINES says where to."""

    def __init__(self) -> None:
        self._recorders: Dict[str, Optional[Recorder]] = {}
        self._lock = Lock()

    def recorder(self, model_name: str) -> Optional[Recorder]:
        """None where nothing is to be published, or can't be: the reason is logged."""
        with self._lock:
            if model_name not in self._recorders:
                self._recorders[model_name] = self._make(model_name)
            return self._recorders[model_name]

    def _make(self, model_name: str) -> Optional[Recorder]:
        if not is_on():
            return None
        try:
            return Recorder({**identity(os.environ, model_name), "stage": None, "replica": None})
        except Exception as error:
            log.error("statsbus: the metrics of %s are not published: %s", model_name, error)
            return None

    def leave(self, stage: Any, replica: Any) -> None:
        """A replica has left or died."""
        with self._lock:
            recorders = list(self._recorders.values())
        for recorder in recorders:
            if recorder is not None:
                recorder.forget(stage, replica)

    def close(self, timeout_s: float = 5.0) -> None:
        with self._lock:
            recorders = list(self._recorders.values())
            self._recorders.clear()
        for recorder in recorders:
            if recorder is not None:
                recorder.publisher.close(timeout_s=timeout_s)


shared = Shared()


class Adapter(Sites):
    def __init__(self, model_name: str, log_stats: bool = True) -> None:
        super().__init__(shared.recorder(model_name) if log_stats else None)

    def _one(
        self,
        family: str,
        value: Any,
        labels: Optional[Dict[str, str]] = None,
        stage: Any = None,
        replica: Any = None,
    ) -> None:
        observation: Observation = (family, labels, value)
        self._to.observe([observation], stage, replica)


class OmniPrometheusMetrics(Adapter):
    def __init__(self, model_name: str, log_stats: bool = True) -> None:
        super().__init__(model_name, log_stats)
        Requests(self._recorder)  # what exists at zero

    @site
    def set_running(self, n: int) -> None:
        self._one("num_requests_running", n)

    @site
    def set_waiting(self, n: int) -> None:
        self._one("num_requests_waiting", n)

    @site
    def observe_tokens(self, prompt_tokens: int, generation_tokens: int) -> None:
        self._to.observe(
            [
                ("prompt_tokens_total", None, max(prompt_tokens, 0)),
                ("generation_tokens_total", None, max(generation_tokens, 0)),
            ]
        )

    @site
    def request_succeeded(self, e2e_seconds: float, finished_reason: str = "stop") -> None:
        labels = {"finished_reason": reason_text(finished_reason) or "stop"}
        self._to.observe(
            [("requests_success_total", labels, 1), ("e2e_request_latency_s", None, at_least_zero(e2e_seconds))]
        )

    @site
    def request_failed(self) -> None:
        self._one("requests_success_total", 1, {"finished_reason": "abort"})

    @site
    def observe_stage_gen_time(self, stage: int, stage_type: str, gen_time_s: float) -> None:
        self._one("stage_gen_time_s", at_least_zero(gen_time_s), {"stage_type": stage_type}, stage)

    @site
    def observe_stage_in_queue(self, stage: int, in_queue_s: float) -> None:
        self._one("stage_in_queue_s", at_least_zero(in_queue_s), None, stage)

    @site
    def observe_queue_wait(self, queue_wait_s: float) -> None:
        self._one("request_queue_wait_s", at_least_zero(queue_wait_s))

    @site
    def set_stage_waiting_requests(self, stage: int, n_waiting: int) -> None:
        self._one("stage_waiting_requests", max(n_waiting, 0), None, stage)

    @site
    def observe_num_inference_steps(self, n_steps: int) -> None:
        if n_steps > 0:
            self._one("num_inference_steps", n_steps)

    @site
    def inc_image_count(self, n_images: int = 1) -> None:
        if n_images > 0:
            self._one("image_count_total", n_images)

    @site
    def observe_image_pixels(self, n_pixels: int) -> None:
        if n_pixels > 0:
            self._one("image_pixels", n_pixels)

    @site
    def set_peak_memory(self, stage: int, peak_memory_mb: float) -> None:
        if peak_memory_mb > 0:
            self._one("peak_memory_mb", peak_memory_mb, None, stage)

    @site
    def inc_requests_failed(self, reason: str) -> None:
        self._one("requests_failed_total", 1, {"reason": reason or "unknown"})

    @site
    def observe_kv_wait(self, connector_type: str, kv_wait_s: float) -> None:
        if kv_wait_s >= 0:
            self._one("kv_wait_s", kv_wait_s, {"connector_type": connector_type or "unknown"})


class OmniModalityMetrics(Adapter):
    @site
    def inc_speech_stream_aborted(self, reason: str) -> None:
        self._one("speech_stream_aborted_total", 1, {"reason": abort(reason)})

    @site
    def inc_speech_stream_completed(self) -> None:
        self._one("speech_stream_completed_total", 1)

    @site
    def observe_audio_ttfp(self, stage: str, replica: str, ttfp_seconds: float) -> None:
        self._one("audio_ttfp_s", at_least_zero(ttfp_seconds), None, stage, replica)

    @site
    def observe_audio_duration(self, stage: str, replica: str, duration_seconds: float) -> None:
        self._one("audio_duration_s", at_least_zero(duration_seconds), None, stage, replica)

    @site
    def observe_audio_rtf(self, stage: str, replica: str, rtf: float) -> None:
        self._one("audio_rtf", at_least_zero(rtf), None, stage, replica)

    @site
    def inc_audio_frames(self, stage: str, replica: str, n_frames: int) -> None:
        if n_frames > 0:
            self._one("audio_frames_total", n_frames, None, stage, replica)

    @site
    def observe_audio_underrun(self, stage: str, replica: str, underrun_s: float) -> None:
        self._one("audio_underrun_s", at_least_zero(underrun_s), None, stage, replica)

    @site
    def inc_audio_continuity_ok(self, stage: str, replica: str, threshold_ms: int) -> None:
        self._one("audio_continuity_ok_total", 1, {"threshold_ms": str(int(threshold_ms))}, stage, replica)

    @site
    def inc_audio_skipped(self, stage: str, replica: str, reason: str) -> None:
        self._one("audio_skipped_requests_total", 1, {"reason": reason or "unknown"}, stage, replica)

    @site
    def observe_diffusion_exec(self, stage: str, replica: str, seconds: float) -> None:
        self._one("diffusion_exec_s", at_least_zero(seconds), None, stage, replica)

    @site
    def observe_diffusion_exec_per_step(self, stage: str, replica: str, seconds: float) -> None:
        self._one("diffusion_exec_per_step_s", at_least_zero(seconds), None, stage, replica)

    @site
    def observe_diffusion_preprocess(self, stage: str, replica: str, seconds: float) -> None:
        self._one("diffusion_preprocess_s", at_least_zero(seconds), None, stage, replica)

    @site
    def observe_diffusion_postprocess(self, stage: str, replica: str, seconds: float) -> None:
        self._one("diffusion_postprocess_s", at_least_zero(seconds), None, stage, replica)

    @site
    def observe_vae_decode(self, stage: str, replica: str, seconds: float) -> None:
        self._one("vae_decode_s", at_least_zero(seconds), None, stage, replica)

    @site
    def observe_diffusion_forward(self, stage: str, replica: str, seconds: float) -> None:
        self._one("diffusion_forward_s", at_least_zero(seconds), None, stage, replica)

    @site
    def observe_diffusion_kv_load(self, stage: str, replica: str, seconds: float) -> None:
        self._one("diffusion_kv_load_s", at_least_zero(seconds), None, stage, replica)

    @site
    def observe_image_ttfp(self, stage: str, replica: str, seconds: float) -> None:
        self._one("image_ttfp_s", at_least_zero(seconds), None, stage, replica)

    @site
    def observe_denoise_step_latency(self, stage: str, replica: str, seconds: float) -> None:
        self._one("denoise_step_latency_s", at_least_zero(seconds), None, stage, replica)


class OmniTransferMetrics(Adapter):
    @site
    def observe_size(
        self, from_stage: int, from_replica: int, to_stage: int, to_replica: int, size_bytes: int
    ) -> None:
        labels = edge(from_stage, from_replica, to_stage, to_replica)
        self._one("transfer_size_bytes", at_least_zero(size_bytes), labels)

    @site
    def observe_tx_time(
        self, from_stage: int, from_replica: int, to_stage: int, to_replica: int, tx_time_s: float
    ) -> None:
        self._one("transfer_tx_s", at_least_zero(tx_time_s), edge(from_stage, from_replica, to_stage, to_replica))

    @site
    def observe_rx_time(
        self, from_stage: int, from_replica: int, to_stage: int, to_replica: int, rx_time_s: float
    ) -> None:
        self._one("transfer_rx_s", at_least_zero(rx_time_s), edge(from_stage, from_replica, to_stage, to_replica))

    @site
    def observe_in_flight_time(
        self, from_stage: int, from_replica: int, to_stage: int, to_replica: int, in_flight_time_s: float
    ) -> None:
        labels = edge(from_stage, from_replica, to_stage, to_replica)
        self._one("transfer_in_flight_s", at_least_zero(in_flight_time_s), labels)


class RealtimeVADMetrics(Adapter):
    def __init__(self, model_name: str, log_stats: bool = True) -> None:
        super().__init__(model_name, log_stats)
        self._sites = Realtime(self._recorder)

    def session_started(self) -> None:
        self._sites.session_started()

    def session_finished(self) -> None:
        self._sites.session_finished()

    def observe_inference(self, latency_ms: float) -> None:
        self._sites.inferred(latency_ms)

    def observe_endpoint_delay(self, delay_ms: int) -> None:
        self._sites.endpoint(delay_ms)

    def error(self, reason: str) -> None:
        self._sites.error(reason)


class OmniPrometheusStatLogger(Sites):
    """
    The orchestrator's stat logger: steps by engine index, told apart by stage and replica. It says nothing of
    `stage_waiting_requests`, which the orchestrator sums itself and gives to `OmniPrometheusMetrics`.
    """

    publishes_to_statsbus = True  # what vllm/omni.py marks a logger with that needs no more of it

    def __init__(self, vllm_config: Any, stage_replica_map: Mapping[int, Tuple[str, str]]) -> None:
        name = getattr(getattr(vllm_config, "model_config", None), "served_model_name", None)
        super().__init__(shared.recorder(str(name[0] if isinstance(name, (list, tuple)) else name)))
        self._stage_replica_map = dict(stage_replica_map)
        self._stages = Stages(self._recorder, tells_waiting=False)

    @property
    def stage_replica_map(self) -> Dict[int, Tuple[str, str]]:
        return self._stage_replica_map

    @property
    def per_engine_labelvalues(self) -> Dict[int, Any]:
        """Stage and replica by engine index, as labels have them."""
        return {index: [stage, replica] for index, (stage, replica) in self._stage_replica_map.items()}

    def register_replica(self, engine_idx: int, stage: str, replica: str) -> None:
        known = self._stage_replica_map.setdefault(engine_idx, (stage, replica))
        if known != (stage, replica):
            raise ValueError(f"engine {engine_idx} is replica {known[1]} of stage {known[0]} already")
        self._stages.replica_added(stage, replica)

    @site
    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        stage, replica = self._stage_replica_map[engine_idx]
        self._stages.step(stage, replica, scheduler_stats, iteration_stats, mm_cache_stats)

    def log_engine_initialized(self) -> None:
        """Nothing to log."""

    def log(self) -> None:
        """Nothing to log."""
