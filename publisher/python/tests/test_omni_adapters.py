"""Drop-ins for vLLM-Omni's metric classes: what each call observes, and how a running vLLM-Omni is pointed at them."""

from __future__ import annotations

import enum
import sys
import types
from typing import Any, List

import pytest

from statsbus import Publisher
from statsbus.omni import adapters, attach

EDGE = {"from_stage": "0", "from_replica": "1", "to_stage": "1", "to_replica": "2"}


@pytest.fixture
def told(folder, monkeypatch):
    """What the adapters of the model `m` observe after they are made: (stage, replica, family, labels, value)."""
    monkeypatch.setenv("STATSBUS_ENGINES", f"ipc://{folder}/engines")
    monkeypatch.setenv("STATSBUS_SERVICE", "s")
    seen: List[Any] = []
    observe = Publisher.observe

    def spy(self, source, observations, **options):
        observations = list(observations)
        for family, labels, value in observations:
            if value not in (0, []):
                place = self._sources[source]
                seen.append((place.stage, place.replica, family.partition(":")[2], labels, value))
        observe(self, source, observations, **options)

    monkeypatch.setattr(Publisher, "observe", spy)
    monkeypatch.setattr(Publisher, "later", lambda self, call, *args: call(*args))  # at once
    yield seen
    faults = adapters.shared.recorder("m").counts()
    adapters.shared.close(timeout_s=0.0)
    assert faults["omni_faults"] == 0 and faults["faults"] == 0


CALLS = [
    ("OmniPrometheusMetrics", "set_running", (3,), [(None, None, "num_requests_running", None, 3)]),
    ("OmniPrometheusMetrics", "set_waiting", (2,), [(None, None, "num_requests_waiting", None, 2)]),
    ("OmniPrometheusMetrics", "observe_tokens", (5, -1), [(None, None, "prompt_tokens_total", None, 5)]),
    ("OmniPrometheusMetrics", "request_succeeded", (1.5, "length"),
     [(None, None, "requests_success_total", {"finished_reason": "length"}, 1), (None, None, "e2e_request_latency_s", None, 1.5)]),
    ("OmniPrometheusMetrics", "request_failed", (), [(None, None, "requests_success_total", {"finished_reason": "abort"}, 1)]),
    ("OmniPrometheusMetrics", "observe_stage_gen_time", (1, "llm", 0.5), [("1", None, "stage_gen_time_s", {"stage_type": "llm"}, 0.5)]),
    ("OmniPrometheusMetrics", "observe_stage_in_queue", (1, 0.5), [("1", None, "stage_in_queue_s", None, 0.5)]),
    ("OmniPrometheusMetrics", "observe_queue_wait", (0.5,), [(None, None, "request_queue_wait_s", None, 0.5)]),
    ("OmniPrometheusMetrics", "set_stage_waiting_requests", (1, 4), [("1", None, "stage_waiting_requests", None, 4)]),
    ("OmniPrometheusMetrics", "observe_num_inference_steps", (30,), [(None, None, "num_inference_steps", None, 30)]),
    ("OmniPrometheusMetrics", "observe_num_inference_steps", (-1,), []),
    ("OmniPrometheusMetrics", "inc_image_count", (), [(None, None, "image_count_total", None, 1)]),
    ("OmniPrometheusMetrics", "inc_image_count", (-1,), []),
    ("OmniPrometheusMetrics", "observe_image_pixels", (64,), [(None, None, "image_pixels", None, 64)]),
    ("OmniPrometheusMetrics", "observe_image_pixels", (-1,), []),
    ("OmniPrometheusMetrics", "set_peak_memory", (1, 7.5), [("1", None, "peak_memory_mb", None, 7.5)]),
    ("OmniPrometheusMetrics", "inc_requests_failed", ("",), [(None, None, "requests_failed_total", {"reason": "unknown"}, 1)]),
    ("OmniPrometheusMetrics", "observe_kv_wait", ("", 0.5), [(None, None, "kv_wait_s", {"connector_type": "unknown"}, 0.5)]),
    ("OmniPrometheusMetrics", "observe_kv_wait", ("nixl", -0.5), []),
    ("OmniModalityMetrics", "inc_speech_stream_aborted", ("odd",), [(None, None, "speech_stream_aborted_total", {"reason": "error"}, 1)]),
    ("OmniModalityMetrics", "inc_speech_stream_completed", (), [(None, None, "speech_stream_completed_total", None, 1)]),
    ("OmniModalityMetrics", "inc_audio_frames", ("2", "0", 7), [("2", "0", "audio_frames_total", None, 7)]),
    ("OmniModalityMetrics", "inc_audio_frames", ("2", "0", -1), []),
    ("OmniModalityMetrics", "inc_audio_continuity_ok", ("2", "0", 100), [("2", "0", "audio_continuity_ok_total", {"threshold_ms": "100"}, 1)]),
    ("OmniModalityMetrics", "inc_audio_skipped", ("2", "0", ""), [("2", "0", "audio_skipped_requests_total", {"reason": "unknown"}, 1)]),
    *[("OmniModalityMetrics", f"observe_{name}", ("2", "0", 0.5), [("2", "0", family, None, 0.5)])
      for name, family in [
        ("audio_ttfp", "audio_ttfp_s"), ("audio_duration", "audio_duration_s"), ("audio_rtf", "audio_rtf"),
        ("audio_underrun", "audio_underrun_s"), ("diffusion_exec", "diffusion_exec_s"),
        ("diffusion_exec_per_step", "diffusion_exec_per_step_s"), ("diffusion_preprocess", "diffusion_preprocess_s"),
        ("diffusion_postprocess", "diffusion_postprocess_s"), ("vae_decode", "vae_decode_s"),
        ("diffusion_forward", "diffusion_forward_s"), ("diffusion_kv_load", "diffusion_kv_load_s"),
        ("image_ttfp", "image_ttfp_s"), ("denoise_step_latency", "denoise_step_latency_s")]],
    *[("OmniTransferMetrics", f"observe_{name}", (0, 1, 1, 2, 0.5), [(None, None, family, EDGE, 0.5)])
      for name, family in [("size", "transfer_size_bytes"), ("tx_time", "transfer_tx_s"), ("rx_time", "transfer_rx_s"),
                           ("in_flight_time", "transfer_in_flight_s")]],
    ("RealtimeVADMetrics", "session_started", (), [(None, None, "realtime_vad_active_sessions", None, 1)]),
    ("RealtimeVADMetrics", "session_finished", (), []),
    ("RealtimeVADMetrics", "observe_inference", (500.0,), [(None, None, "realtime_vad_inference_latency_s", None, 0.5)]),
    ("RealtimeVADMetrics", "observe_endpoint_delay", (500,), [(None, None, "realtime_vad_endpoint_delay_s", None, 0.5)]),
    ("RealtimeVADMetrics", "error", ("overflow",), [(None, None, "realtime_vad_errors_total", {"reason": "overflow"}, 1)]),
]  # fmt: skip


@pytest.mark.parametrize("name, method, arguments, expected", CALLS)
def test_a_call_is_one_observation(told, name, method, arguments, expected):
    getattr(getattr(adapters, name)("m"), method)(*arguments)
    assert told == expected


def test_each_method_is_in_the_table():
    for name in ("OmniPrometheusMetrics", "OmniModalityMetrics", "OmniTransferMetrics", "RealtimeVADMetrics"):
        assert set(attach.methods(getattr(adapters, name))) == {method for n, method, _, _ in CALLS if n == name}


@pytest.mark.parametrize("name", [names[0] for names in attach.CLASSES.values()])
def test_off_nothing_is_made(folder, monkeypatch, name):
    monkeypatch.setenv("STATSBUS_ENGINES", f"ipc://{folder}/engines")
    monkeypatch.setattr(Publisher, "__init__", lambda *_, **__: pytest.fail("a publisher was made"))
    made = getattr(adapters, name)("m", log_stats=False)
    for n, method, arguments, _ in CALLS:
        if n == name:
            assert getattr(made, method)(*arguments) is None


def test_without_an_endpoint_nothing_is_made(monkeypatch):
    monkeypatch.setattr(Publisher, "__init__", lambda *_, **__: pytest.fail("a publisher was made"))
    adapters.OmniPrometheusMetrics("nowhere").set_running(1)
    adapters.shared.close()


def test_an_endpoint_that_is_none_is_logged_and_turns_it_off(monkeypatch, caplog):
    monkeypatch.setenv("STATSBUS_ENGINES", "http://somewhere")
    adapters.OmniPrometheusMetrics("m").set_running(1)
    assert "http://somewhere" in caplog.text
    adapters.shared.close()


def test_all_classes_of_a_model_share_one_publisher(told):
    made = [getattr(adapters, name)("m") for names in attach.CLASSES.values() for name in names]
    assert len({one._recorder.publisher.id for one in made}) == 1


class Reason(enum.IntEnum):
    STOP = 0

    def __str__(self):
        return "stop"


class Config:
    class model_config:
        served_model_name = ["m", "alias"]


def test_the_stat_logger_publishes_steps_by_stage_and_replica(told, monkeypatch):
    steps: List[Any] = []
    monkeypatch.setattr(Publisher, "step", lambda self, source, *stats, **_: steps.append((self._sources[source], *stats)))
    logger = adapters.OmniPrometheusStatLogger(Config, {0: ("0", "0")})
    logger.register_replica(1, "0", "1")
    logger.register_replica(1, "0", "1")
    with pytest.raises(ValueError, match="engine 1 is replica 1 of stage 0 already"):
        logger.register_replica(1, "0", "2")
    logger.log_engine_initialized()
    logger.record({"num_waiting_reqs": 3}, {"finished_requests": [types.SimpleNamespace(finish_reason=Reason.STOP)]}, engine_idx=1)
    adapters.shared.recorder("m").publisher.flush(0.0)
    ((source, scheduler, iteration, mm_cache),) = steps
    assert (source.stage, source.replica) == ("0", "1") and scheduler == {"num_waiting_reqs": 3} and mm_cache is None
    assert iteration["finished_requests"] == [{"finish_reason": "stop"}]
    assert told == []  # the orchestrator sums stage_waiting_requests itself
    assert logger.stage_replica_map == {0: ("0", "0"), 1: ("0", "1")}


# ---- attaching


class TheirMetrics:
    """As vLLM-Omni has it, but for what it does."""

    calls: List[Any] = []

    def __init__(self, model_name: str, log_stats: bool = True) -> None:
        self._model_name, self._log_stats = model_name, log_stats

    def set_running(self, n: int) -> str:
        self.calls.append(n)
        return "theirs"

    def something_else(self) -> str:
        return "theirs"


@pytest.fixture
def omni(monkeypatch):
    """A process that has imported vLLM-Omni; its class."""
    for name in ("vllm_omni", "vllm_omni.metrics", *attach.CLASSES):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    theirs = type("OmniPrometheusMetrics", (TheirMetrics,), {"calls": []})
    monkeypatch.setattr(sys.modules["vllm_omni.metrics.prometheus"], "OmniPrometheusMetrics", theirs, raising=False)
    return theirs


def test_attached_both_are_told(told, omni):
    before = omni("m")
    attach.attach()
    attach.attach()
    assert before.set_running(3) == "theirs" and omni("m").set_running(n=4) == "theirs"
    assert [value for *_, value in told] == [3, 4] and omni.calls == [3, 4]
    assert before.something_else() == "theirs"


def test_in_the_place_of_prometheus_ours_alone_is_told(told, omni, monkeypatch):
    monkeypatch.setenv("STATSBUS_REPLACE_PROMETHEUS", "1")
    attach.attach()
    assert omni("m").set_running(3) is None
    assert [value for *_, value in told] == [3] and omni.calls == []


def test_statistics_that_are_off_stay_off(folder, omni, monkeypatch):
    monkeypatch.setenv("STATSBUS_ENGINES", f"ipc://{folder}/engines")
    monkeypatch.setattr(Publisher, "__init__", lambda *_, **__: pytest.fail("a publisher was made"))
    attach.attach()
    assert omni("m", log_stats=False).set_running(3) == "theirs"


def test_a_release_of_another_shape_goes_on_without_us(told, omni):
    attach.attach()
    adapters.OmniPrometheusMetrics("m")
    assert omni("m").set_running(5) == "theirs"
    del omni.__init__
    omni.__init__ = lambda self: None
    assert omni().set_running(6) == "theirs"
    assert [value for *_, value in told] == [5]


def test_nothing_is_attached_unless_it_is_asked_for(omni, monkeypatch):
    attach.attach()
    assert not hasattr(omni, "publishes_to_statsbus")
    monkeypatch.setenv("STATSBUS_ENGINES", "ipc:///nowhere/engines")
    monkeypatch.delitem(sys.modules, "vllm_omni")
    attach.attach()
    assert not hasattr(omni, "publishes_to_statsbus")
