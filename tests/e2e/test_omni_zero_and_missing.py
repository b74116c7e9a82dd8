"""A measured zero is a sample, what was not measured is none: from vLLM-Omni's sites to the hub's text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from daemons import Cluster, samples, wait_for
from statsbus.omni import Pipeline

pytestmark = pytest.mark.long

IDENTITY = {"service_name": "s", "job_name": "j", "instance_id": "i"}
STATS = {"stage_gen_time_ms": 0, "output_unit_type": "image", "num_inference_steps": 4}
TIMINGS = {"diffusion_engine_exec_time_ms": 0, "preprocess_time_ms": 0, "postprocess_time_ms": 0, "vae_decode_time_ms": 0,
           "forward_time_ms": 0, "kv_recv_time_ms": 0, "scheduler_queue_wait_ms": 0}
Told = Callable[[Pipeline], None]


def painted(**timings: float | None) -> Told:
    def tell(pipeline: Pipeline) -> None:
        pipeline.stages.output("r", 3, 0, timings)
        pipeline.stages.finished("r", 3, 0, stage_type="diffusion", stats={**STATS, "image_time_to_first_output_ms": timings.get("first_ms")})
    return tell


def remembered(peak: float | None) -> Told:
    return lambda p: p.stages.finished("r", 3, 0, stage_type="diffusion", stats=STATS, peak_memory_mb=peak)


def waited(wait_s: float | None) -> Told:
    return lambda p: p.requests.kv_waited(wait_s, "nixl")


def ended(**timings: float) -> Told:
    return lambda p: p.requests.succeeded("r", 0.0, pipeline_timings=timings)


def streamed(arrivals: list[float]) -> Told:
    return lambda p: p.audio.stream_finished(2, 0, arrivals, [48000] * len(arrivals))


# Family, what measures a zero of it, what leaves it out, and whether it stands at zero without any observation.
CASES: list[tuple[str, Told, Told, bool]] = [
    ("request_queue_wait_s", ended(queue_wait_ms=0), ended(), True),
    ("stage_in_queue_s", painted(scheduler_queue_wait_ms=0), painted(), False),
    ("kv_wait_s", waited(0.0), waited(None), False),
    ("kv_wait_s", waited(0.0), waited(-0.5), False),
    ("diffusion_exec_s", painted(**TIMINGS), painted(), False),
    ("diffusion_exec_per_step_s", painted(**TIMINGS), painted(), False),
    ("diffusion_preprocess_s", painted(**TIMINGS), painted(), False),
    ("diffusion_postprocess_s", painted(**TIMINGS), painted(), False),
    ("vae_decode_s", painted(**TIMINGS), painted(vae_decode_time_ms=None), False),
    ("diffusion_forward_s", painted(**TIMINGS), painted(forward_time_ms=None), False),
    ("denoise_step_latency_s", painted(**TIMINGS), painted(), False),
    ("diffusion_kv_load_s", painted(**TIMINGS), painted(), False),
    ("image_ttfp_s", painted(first_ms=0), painted(), False),
    ("audio_underrun_s", streamed([5.0, 5.5]), streamed([]), False),
]


@pytest.fixture
def pipeline(cluster: Cluster) -> Iterator[Pipeline]:
    node = cluster.add_node()
    made = Pipeline("m", IDENTITY, engines=node.engines, replay=node.replay)
    yield made
    made.close()


def settle(cluster: Cluster, pipeline: Pipeline) -> None:
    """Until the hub has all that was told: a last word follows it."""
    pipeline.speech.completed()
    assert pipeline.flush()
    wait_for(lambda: cluster.hub.sample("vllm_omni:speech_stream_completed_total"), "the last word at the hub")


@pytest.mark.parametrize("family, zero, missing, stands", CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_zero_is_a_sample_and_missing_is_none(cluster: Cluster, pipeline: Pipeline, family: str, zero: Told, missing: Told, stands: bool) -> None:
    name = "vllm_omni:" + family
    missing(pipeline)
    settle(cluster, pipeline)
    found = {sample for sample, _, _ in samples(cluster.hub.metrics("replica"))}
    assert (name + "_count" in found) == stands
    with_zero = {"r": "r-2"}  # another request: the first has ended
    zero(Renamed(pipeline, with_zero))  # type: ignore[arg-type]
    wait_for(lambda: cluster.hub.sample(name + "_count") == 1, f"the zero of {name}")
    assert cluster.hub.sample(name + "_sum") == 0


class Renamed:
    """The pipeline, for requests of other names."""

    def __init__(self, target: object, names: dict[str, str]) -> None:
        self._target, self._names = target, names

    def __getattr__(self, name: str) -> object:
        return Renamed(getattr(self._target, name), self._names)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._target(*(self._names.get(a, a) if isinstance(a, str) else a for a in args), **kwargs)  # type: ignore[operator]


@pytest.mark.parametrize("peak", [0.0, -1.0, None])
def test_a_peak_of_memory_that_is_none_leaves_the_gauge_as_it_is(cluster: Cluster, pipeline: Pipeline, peak: float | None) -> None:
    remembered(peak)(pipeline)
    settle(cluster, pipeline)
    assert cluster.hub.sample("vllm_omni:peak_memory_mb") is None
    pipeline.stages.finished("r-2", 3, 0, stage_type="diffusion", stats=STATS, peak_memory_mb=5)
    pipeline.stages.finished("r-3", 3, 0, stage_type="diffusion", stats=STATS, peak_memory_mb=peak)
    wait_for(lambda: cluster.hub.sample("vllm_omni:peak_memory_mb") == 5, "the peak at the hub")


def test_what_has_no_steps_has_no_zeros_of_steps(cluster: Cluster, pipeline: Pipeline) -> None:
    painted(**TIMINGS)(pipeline)
    settle(cluster, pipeline)
    assert not [name for name, _, _ in samples(cluster.hub.metrics("replica")) if name.startswith("vllm:")]
    pipeline.stages.step(0, 0, {"num_running_reqs": 1, "kv_cache_usage": 0.5}, {"num_generation_tokens": 1})
    wait_for(lambda: cluster.hub.sample("vllm:kv_cache_usage_perc", "replica", stage="0") == 0.5, "the step at the hub")
    assert cluster.hub.sample("vllm:kv_cache_usage_perc") == 0.5  # a mean of those that measured it
    wait_for(lambda: cluster.hub.sample("vllm:num_preemptions_total", "stage", stage="0") == 0, "zeros of a source with steps")
    assert cluster.hub.sample("vllm:num_preemptions_total", "stage", stage="3") is None
