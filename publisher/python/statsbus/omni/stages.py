"""What each stage does: its requests, its images, its schedulers, and what a diffusion request's time went to."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from ..encoding import Observation
from ..locks import Lock
from ..vllm.records import iteration_content
from .recorder import Place, Recorder, Sites, at_least_zero, field, place_of, seconds, site

# Times of a diffusion engine in milliseconds; the families that they feed, of those that have one.
BREAKDOWN = {
    "diffusion_engine_exec_time_ms": "diffusion_exec_s",
    "preprocess_time_ms": "diffusion_preprocess_s",
    "postprocess_time_ms": "diffusion_postprocess_s",
    "vae_decode_time_ms": "vae_decode_s",
    "forward_time_ms": "diffusion_forward_s",
    "kv_recv_time_ms": "diffusion_kv_load_s",
}
QUEUE_WAIT = "scheduler_queue_wait_ms"
STEPS = "num_inference_steps"
SUMMED = frozenset(BREAKDOWN) | {QUEUE_WAIT, STEPS}
WAITING = "stage_waiting_requests"
SCHEDULER_WAITING = "scheduler_num_waiting_reqs"  # rides on a diffusion engine's output


class Stages(Sites):
    def __init__(self, recorder: Optional[Recorder], *, tells_waiting: bool = True) -> None:
        super().__init__(recorder)
        self._tells_waiting = tells_waiting  # of steps: an orchestrator that sums by itself would count twice
        self._waiting: Dict[Place, int] = {}
        self._summing = Lock()

    @site
    def output(self, request_id: str, stage: Any, replica: Any, metrics: Any) -> None:
        """
        Metrics that came with an output of a diffusion engine, finished or not: times are summed for the request, the
        number of waiting requests is its scheduler's of now.
        """
        if isinstance(metrics, (list, tuple)):
            metrics = metrics[0] if metrics else None
        if not isinstance(metrics, Mapping):
            return
        if metrics.get(SCHEDULER_WAITING) is not None:
            self.waiting(stage, replica, metrics[SCHEDULER_WAITING])
        numbers = {name: metrics[name] for name in SUMMED & metrics.keys() if is_number(metrics[name])}
        if not numbers:
            return
        with self._summing:
            stages = self._to.timings.get(request_id)
            if stages is None:
                stages = {}
                self._to.timings.put(request_id, stages)
            sums = stages.setdefault(str(stage), {})
            for name, number in numbers.items():
                sums[name] = sums.get(name, 0.0) + float(number)

    @site
    def finished(
        self,
        request_id: str,
        stage: Any,
        replica: Any = None,
        *,
        stage_type: str,
        stats: Any,
        peak_memory_mb: Optional[float] = None,
        message: Any = None,
    ) -> None:
        """
        A stage has finished a request. stats: a map or an object with the fields of vLLM-Omni's StageRequestStats.
        message: what tells messages of one request and stage apart, where there are several; each counts once.
        """
        if not self._to.is_first("stage", request_id, str(stage), message):
            return
        is_diffusion, is_image = stage_type == "diffusion", field(stats, "output_unit_type") == "image"
        timings = self._take(request_id, str(stage))
        steps = positive(field(stats, STEPS)) or positive(timings.get(STEPS))
        gen_time_s = at_least_zero(seconds(field(stats, "stage_gen_time_ms") or 0.0))
        of_stage: List[Observation] = [("stage_gen_time_s", {"stage_type": stage_type}, gen_time_s)]
        if timings.get(QUEUE_WAIT) is not None:
            of_stage.append(("stage_in_queue_s", None, at_least_zero(seconds(timings[QUEUE_WAIT]))))
        if peak_memory_mb is not None and peak_memory_mb > 0:
            of_stage.append(("peak_memory_mb", None, peak_memory_mb))
        self._to.observe(of_stage, stage, replica)
        of_pipeline: List[Observation] = []
        if is_diffusion and positive(field(stats, STEPS)):
            of_pipeline.append((STEPS, None, positive(field(stats, STEPS))))
        if is_image:
            of_pipeline += images(stats)
        self._to.observe(of_pipeline)
        if replica is not None:
            self._to.observe(breakdown(timings, steps, is_image), stage, replica)
            first_ms = field(stats, "image_time_to_first_output_ms")
            if is_image and first_ms is not None:
                self._to.observe([("image_ttfp_s", None, at_least_zero(seconds(first_ms)))], stage, replica)

    def _take(self, request_id: str, stage: str) -> Dict[str, float]:
        with self._summing:
            stages = self._to.timings.get(request_id) or {}
            timings = stages.pop(stage, {})
            if not stages:
                self._to.timings.pop(request_id)
            return timings

    @site
    def waiting(self, stage: Any, replica: Any, n: int) -> None:
        """
        Requests that wait in the scheduler of a replica. Said only when it has changed: a gauge keeps its value. Without
        a replica, n is the whole stage's.
        """
        n, place = max(int(n), 0), place_of(stage, replica)
        if self._waiting.get(place) != n:
            self._waiting[place] = n
            self._to.observe([(WAITING, None, n)], stage, replica)

    @site
    def step(
        self, stage: Any, replica: Any, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None
    ) -> None:
        """A step of an autoregressive stage's engine, as vLLM gives it to its stat loggers."""
        source, publisher = self._to.source(stage, replica), self._to.publisher
        publisher.later(self._step, source, scheduler_stats, iteration_stats, mm_cache_stats, self._to.clock())
        if not self._tells_waiting or scheduler_stats is None:
            return
        waiting = field(scheduler_stats, "num_waiting_reqs")
        if waiting is not None:
            self.waiting(stage, replica, waiting)

    @site
    def _step(self, source: int, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any, at: float) -> None:
        """On the publisher's thread: vLLM makes new stats for each step and changes none later."""
        content = iteration_content(iteration_stats)
        self._to.publisher.step(source, scheduler_stats, content, mm_cache_stats, time=at)

    @site
    def replica_removed(self, stage: Any, replica: Any) -> None:
        """A replica has left or died: its gauges go at once, its counts stay."""
        self._to.remove(stage, replica)
        self._waiting.pop(place_of(stage, replica), None)

    @site
    def replica_added(self, stage: Any, replica: Any) -> None:
        """A replica is there, or is there again."""
        self._waiting.pop(place_of(stage, replica), None)
        self._to.restore(stage, replica)


def images(stats: Any) -> List[Observation]:
    """Of a stage that makes images: counts of 0 or less are none."""
    found = (
        ("image_pixels", positive(field(stats, "image_pixels"))),
        ("image_count_total", positive(field(stats, "output_unit_count"))),
    )
    return [(family, None, n) for family, n in found if n]


def breakdown(timings: Mapping[str, float], steps: int, is_image: bool) -> List[Observation]:
    """Times that an engine has not told of make no sample."""
    out: List[Observation] = []
    for name, family in BREAKDOWN.items():
        if name in timings:
            out.append((family, None, at_least_zero(seconds(timings[name]))))
    if steps > 0 and "diffusion_engine_exec_time_ms" in timings:
        per_step_ms = timings["diffusion_engine_exec_time_ms"] / steps
        out.append(("diffusion_exec_per_step_s", None, at_least_zero(seconds(per_step_ms))))
    if steps > 0 and is_image and "forward_time_ms" in timings:
        per_step_ms = timings["forward_time_ms"] / steps
        out.append(("denoise_step_latency_s", None, at_least_zero(seconds(per_step_ms))))
    return out


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def positive(value: Any) -> int:
    """A count; 0 where there is none."""
    return max(int(value), 0) if is_number(value) else 0
