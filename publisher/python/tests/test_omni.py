"""What the observation sites of a pipeline record, by the rules of vLLM-Omni's metric document."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import msgspec
import pytest

from statsbus import Publisher
from statsbus.omni import Pipeline, RequestCounter
from statsbus.omni.audio import underrun_s
from statsbus.omni.recorder import Kept

IDENTITY = {"service_name": "s", "job_name": "j", "instance_id": "i"}


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch):
    """What is to be done on the publisher's thread is done at once."""
    monkeypatch.setattr(Publisher, "later", lambda self, call, *args: call(*args))


class Told:
    """A pipeline, and what it told the publisher: (stage, replica, family, labels, value)."""

    def __init__(self, folder, **options):
        self.all = []
        self.steps = []
        self.pipeline = Pipeline("m", IDENTITY, engines=f"ipc://{folder}/engines", **options)
        self.publisher = self.pipeline._recorder.publisher
        observe = self.publisher.observe

        def spy(source, observations, **options):
            observations = list(observations)
            place = self.publisher._sources[source]
            for family, labels, value in observations:
                assert family.startswith("vllm_omni:")
                self.all.append((place.stage, place.replica, family[len("vllm_omni:") :], labels, value))
            observe(source, observations, **options)

        self.publisher.observe = spy

    def of(self, family):
        return [(labels, value) for _, _, name, labels, value in self.all if name == family]

    def places(self, family):
        return [(stage, replica) for stage, replica, name, _, _ in self.all if name == family]

    def values(self, family):
        return [value for _, value in self.of(family)]

    def families(self):
        return {name for _, _, name, _, _ in self.all}


@pytest.fixture
def told(folder):
    made = Told(folder)
    yield made
    counts = made.pipeline.counts()
    made.pipeline.close(timeout_s=0.0)
    assert counts["omni_faults"] == 0 and counts["faults"] == 0


# ---- requests


def test_what_the_pipeline_has_is_at_zero_before_the_first_request(folder, monkeypatch):
    seen = []
    monkeypatch.setattr(Publisher, "observe", lambda self, source, observations, time: seen.extend(observations))
    pipeline = Pipeline("m", IDENTITY, engines=f"ipc://{folder}/engines")
    assert {name.partition(":")[2]: value for name, labels, value in seen if labels is None} == {
        "num_requests_running": 0, "num_requests_waiting": 0, "prompt_tokens_total": 0, "generation_tokens_total": 0,
        "image_count_total": 0, "e2e_request_latency_s": [], "request_queue_wait_s": [], "num_inference_steps": [],
        "image_pixels": [],
    }  # fmt: skip
    seen.clear()
    assert pipeline.realtime is pipeline.realtime
    assert [name.partition(":")[2] for name, _, _ in seen] == [
        "realtime_vad_active_sessions", "realtime_vad_inference_latency_s", "realtime_vad_endpoint_delay_s"
    ]  # fmt: skip
    pipeline.close(timeout_s=0.0)


def test_who_doesnt_run_waits(told):
    requests = told.pipeline.requests
    for _ in range(3):
        requests.counter.increment()
    requests.counter.decrement()
    requests.in_flight(5)
    requests.in_flight(1)  # the counter is ahead
    assert told.values("num_requests_running") == [2, 2]
    assert told.values("num_requests_waiting") == [3, 0]


def test_a_counter_is_never_below_zero():
    counter = RequestCounter()
    counter.decrement()
    counter.increment()
    assert counter.value == 1


def test_a_request_ends_once(told):
    requests = told.pipeline.requests
    for _ in range(3):
        requests.succeeded("r-1", 1.5, "length", prompt_tokens=10, generation_tokens=20)
    requests.failed("r-1", "stage_error")
    requests.failed("r-2", "client_abort")
    requests.failed("r-2", "stage_error")
    requests.succeeded("r-2", 1.0)
    assert told.of("requests_success_total") == [({"finished_reason": "length"}, 1), ({"finished_reason": "abort"}, 1)]
    assert told.of("requests_failed_total") == [({"reason": "client_abort"}, 1)]
    assert told.values("e2e_request_latency_s") == [1.5]
    assert told.values("prompt_tokens_total") == [10] and told.values("generation_tokens_total") == [20]


@pytest.mark.parametrize("reason, label", [(None, "stop"), ("", "stop"), ("stop", "stop"), ("tool_calls", "tool_calls")])
def test_a_finish_reason_is_a_text_and_stop_where_there_is_none(told, reason, label):
    told.pipeline.requests.succeeded("r", 0.1, reason)
    assert told.of("requests_success_total") == [({"finished_reason": label}, 1)]


@pytest.mark.parametrize(
    "reason, label",
    [(r, r) for r in ("client_abort", "client_disconnect", "stage_error", "unknown")]
    + [(None, "unknown"), ("", "unknown"), ("CUDA out of memory", "unknown")],
)
def test_failures_have_one_of_four_reasons(told, reason, label):
    told.pipeline.requests.failed("r", reason)
    assert told.of("requests_failed_total") == [({"reason": label}, 1)]


@pytest.mark.parametrize(
    "timings, waits",
    [
        ({"queue_wait_ms": 0}, [0.0]),
        ({"queue_wait_ms": 250.0}, [0.25]),
        ({"queue_wait_ms": -3}, [0.0]),
        ({"queue_wait_ms": None}, []),
        ({"other": 1}, []),
        ({}, []),
        (None, []),
    ],
)
def test_a_queue_wait_of_zero_counts_and_a_missing_one_does_not(told, timings, waits):
    told.pipeline.requests.succeeded("r", 1.0, pipeline_timings=timings)
    assert told.values("request_queue_wait_s") == waits


@pytest.mark.parametrize(
    "wait_s, connector, expected",
    [
        (0.0, "nixl", [({"connector_type": "nixl"}, 0.0)]),
        (0.5, "", [({"connector_type": "unknown"}, 0.5)]),
        (0.5, None, [({"connector_type": "unknown"}, 0.5)]),
        (-0.1, "nixl", []),
        (None, "nixl", []),
    ],
)
def test_a_kv_wait_that_is_negative_or_was_broken_off_is_dropped(told, wait_s, connector, expected):
    told.pipeline.requests.kv_waited(wait_s, connector)
    assert told.of("kv_wait_s") == expected


# ---- stages


def test_a_stage_that_finished_counts_once_at_its_replica_or_at_itself(told):
    stats = SimpleNamespace(stage_gen_time_ms=1500.0)
    for _ in range(2):
        told.pipeline.stages.finished("r", 0, 1, stage_type="llm", stats=stats)
        told.pipeline.stages.finished("r", 1, stage_type="llm", stats={"stage_gen_time_ms": -5})
    assert told.of("stage_gen_time_s") == [({"stage_type": "llm"}, 1.5), ({"stage_type": "llm"}, 0.0)]
    assert told.places("stage_gen_time_s") == [("0", "1"), ("1", None)]


def test_messages_of_one_stage_count_once_each(told):
    for message in (1, 1, 2):
        told.pipeline.stages.finished("r", 0, 0, stage_type="llm", stats={"stage_gen_time_ms": 1}, message=message)
    assert len(told.of("stage_gen_time_s")) == 2


@pytest.mark.parametrize(
    "stage_type, stats, expected",
    [
        ("diffusion", {"num_inference_steps": 30}, {"num_inference_steps": [30]}),
        ("diffusion", {"num_inference_steps": 0}, {}),
        ("diffusion", {"num_inference_steps": -1}, {}),
        ("llm", {"num_inference_steps": 30}, {}),
        ("diffusion", {"output_unit_type": "image", "image_pixels": 64, "output_unit_count": 2},
         {"image_pixels": [64], "image_count_total": [2]}),
        ("diffusion", {"output_unit_type": "image", "image_pixels": 0, "output_unit_count": -2}, {}),
        ("diffusion", {"output_unit_type": "audio", "image_pixels": 64, "output_unit_count": 2}, {}),
    ],
)  # fmt: skip
def test_steps_are_of_diffusion_and_pixels_of_images(told, stage_type, stats, expected):
    told.pipeline.stages.finished("r", 0, 0, stage_type=stage_type, stats=stats)
    for family in ("num_inference_steps", "image_pixels", "image_count_total"):
        assert told.values(family) == expected.get(family, [])
        assert set(told.places(family)) <= {(None, None)}


@pytest.mark.parametrize("peak, expected", [(512.5, [512.5]), (0, []), (0.0, []), (-1, []), (None, [])])
def test_a_peak_of_memory_is_positive(told, peak, expected):
    told.pipeline.stages.finished("r", 0, 0, stage_type="diffusion", stats={}, peak_memory_mb=peak)
    assert told.values("peak_memory_mb") == expected


TIMINGS = {
    "diffusion_engine_exec_time_ms": 300.0, "preprocess_time_ms": 10, "postprocess_time_ms": 20,
    "vae_decode_time_ms": 40, "forward_time_ms": 200.0, "kv_recv_time_ms": 5, "scheduler_queue_wait_ms": 0,
    "image_num": 1, "resolution": None,
}  # fmt: skip


def test_a_breakdown_is_summed_over_outputs_and_told_once(told):
    stages = told.pipeline.stages
    for _ in range(2):
        stages.output("r", 1, 0, [TIMINGS])
    stages.output("other", 1, 0, TIMINGS)
    stages.output("r", 1, 0, None)
    stages.output("r", 1, 0, [])
    stats = {"output_unit_type": "image", "num_inference_steps": 10, "image_time_to_first_output_ms": 700.0}
    for _ in range(2):
        stages.finished("r", 1, 0, stage_type="diffusion", stats=stats)
    expected = {
        "diffusion_exec_s": 0.6, "diffusion_exec_per_step_s": 0.06, "diffusion_preprocess_s": 0.02,
        "diffusion_postprocess_s": 0.04, "vae_decode_s": 0.08, "diffusion_forward_s": 0.4, "diffusion_kv_load_s": 0.01,
        "denoise_step_latency_s": 0.04, "stage_in_queue_s": 0.0, "image_ttfp_s": 0.7,
    }  # fmt: skip
    for family, value in expected.items():
        assert told.values(family) == [pytest.approx(value)], family
        assert told.places(family) == [("1", "0")], family


def test_what_an_engine_does_not_tell_is_missing(told):
    stages = told.pipeline.stages
    stages.output("r", 1, 0, {"diffusion_engine_exec_time_ms": 0, "forward_time_ms": None, "vae_decode_time_ms": "?"})
    stages.finished("r", 1, 0, stage_type="diffusion", stats={})
    assert told.values("diffusion_exec_s") == [0.0]
    assert told.families() == {"stage_gen_time_s", "diffusion_exec_s"}


def test_steps_that_only_the_engine_tells_make_the_time_of_a_step(told):
    told.pipeline.stages.output("r", 1, 0, {"diffusion_engine_exec_time_ms": 100, "num_inference_steps": 4})
    told.pipeline.stages.finished("r", 1, 0, stage_type="diffusion", stats={})
    assert told.values("diffusion_exec_per_step_s") == [pytest.approx(0.025)]
    assert told.values("num_inference_steps") == []


def test_a_request_that_failed_has_no_breakdown(told):
    told.pipeline.stages.output("r", 1, 0, TIMINGS)
    told.pipeline.requests.failed("r", "stage_error")
    assert not told.families() & {"diffusion_exec_s", "stage_in_queue_s"}
    assert told.pipeline._recorder.timings.get("r") is None


def test_a_breakdown_without_its_replica_is_skipped(told):
    told.pipeline.stages.output("r", 1, None, TIMINGS)
    told.pipeline.stages.finished("r", 1, stage_type="diffusion", stats={"output_unit_type": "image"})
    assert told.families() == {"stage_gen_time_s", "stage_in_queue_s"}


def test_the_waiting_of_a_replica_is_told_when_it_changes(told):
    stages = told.pipeline.stages
    stages.output("r", 1, 0, {"scheduler_num_waiting_reqs": 3})
    for n in (3, 3, 4, -1):
        stages.waiting(1, 0, n)
    stages.step(0, 0, {"num_running_reqs": 1, "num_waiting_reqs": 7}, {"num_generation_tokens": 1})
    stages.step(0, 0, None, {"num_generation_tokens": 1})
    assert told.values("stage_waiting_requests") == [3, 4, 0, 7]
    assert told.places("stage_waiting_requests") == [("1", "0")] * 3 + [("0", "0")]
    assert told.pipeline.counts()["recorded"] >= 2


def test_a_replica_that_was_removed_tells_counts_and_no_gauges(told):
    stages = told.pipeline.stages
    stages.waiting(1, 0, 3)
    stages.replica_removed(1, 0)
    stages.waiting(1, 0, 2)
    stages.finished("r", 1, 0, stage_type="diffusion", stats={}, peak_memory_mb=4)
    assert told.values("stage_waiting_requests") == [3] and told.values("peak_memory_mb") == []
    assert len(told.of("stage_gen_time_s")) == 1
    stages.replica_added(1, 0)
    stages.waiting(1, 0, 3)
    assert told.values("stage_waiting_requests") == [3, 3]
    assert told.publisher._source_states()[1] == []


def test_each_replica_and_stage_is_a_source_of_the_pipeline(told):
    stages = told.pipeline.stages
    for stage, replica in ((0, 0), ("0", "0"), (0, 1), (1, None)):
        stages.waiting(stage, replica, 1)
    described = [(s.stage, s.replica, s.observed, s.model_name, s.instance_id) for s in told.publisher._sources]
    assert described == [(a, b, True, "m", "i") for a, b in ((None, None), ("0", "0"), ("0", "1"), ("1", None))]


# ---- audio


def test_the_first_packet_counts_once(told):
    audio = told.pipeline.audio
    audio.first_packet("r", 2, None, 10.0, 10.5)  # no replica: nothing, and the next one is still the first
    audio.first_packet("r", 2, 0, 0.0, 10.5)
    audio.first_packet("r", 2, 0, None, 10.5)
    for now in (10.5, 11.0):
        audio.first_packet("r", 2, 0, 10.0, now)
    audio.first_packet("r-2", 2, 1, 10.0, 9.0)
    assert told.values("audio_ttfp_s") == [0.5, 0.0]
    assert told.places("audio_ttfp_s") == [("2", "0"), ("2", "1")]


class Tensor:
    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value


class Broken:
    def item(self):
        raise RuntimeError("a tensor of two numbers")


@pytest.mark.parametrize(
    "output, rate",
    [
        (None, 24000), ({}, 24000), ({"sr": 0}, 24000), ({"sr": "fast"}, 24000), ({"sr": Broken()}, 24000),
        ({"sr": 16000}, 16000), ({"sr": "16000"}, 16000), ({"sr": Tensor(44100)}, 44100),
        ({"sr": [Tensor(0), Tensor(48000)]}, 48000), ({"sampling_rate": 8000, "sr": 16000}, 8000),
        ({"sample_rate": 8000, "sampling_rate": 1}, 8000), ({"audio_sample_rate": 8000, "sample_rate": 1}, 8000),
        ({"output_sample_rate": 8000, "audio_sample_rate": 1}, 8000), ({"output_sample_rate": -1, "sr": 8000}, 8000),
        (SimpleNamespace(sample_rate=8000), 8000), ([None, {}, {"sr": 8000}], 8000),
    ],
)  # fmt: skip
def test_the_sample_rate_is_the_first_usable_one(told, output, rate):
    told.pipeline.audio.finished("r", 2, 0, gen_time_ms=500.0, frames=48000, output=output)
    assert told.values("audio_frames_total") == [48000]
    assert told.values("audio_duration_s") == [48000 / rate]
    assert told.values("audio_rtf") == [pytest.approx(0.5 / (48000 / rate))]


def test_a_request_without_audio_was_skipped(told):
    audio = told.pipeline.audio
    audio.finished("r", 2, 0, gen_time_ms=500.0, frames=0)
    audio.finished("r", 2, 0, gen_time_ms=500.0, frames=0)
    audio.finished("r-2", 2, None, gen_time_ms=500.0, frames=0)
    audio.skipped(2, 0, "")
    assert told.of("audio_skipped_requests_total") == [({"reason": "no_audio_data"}, 1), ({"reason": "unknown"}, 1)]
    assert told.families() == {"audio_skipped_requests_total"}


SECOND = 48000  # bytes


@pytest.mark.parametrize(
    "arrivals, sizes, silence_s",
    [
        ([5.0], [SECOND], 0.0),
        ([5.0, 5.5, 6.0], [SECOND, SECOND, SECOND], 0.0),
        ([5.0, 6.0], [SECOND, 1], 0.0),
        ([5.0, 6.25], [SECOND, 1], 0.25),
        ([5.0, 6.25, 7.0], [SECOND, SECOND // 2, 1], 0.5),  # it never catches up: the deficit grows
        ([5.0, 8.0, 8.0, 8.5], [SECOND, SECOND, 3 * SECOND, 1], 2.0),
    ],
)
def test_a_player_starts_with_the_first_chunk_and_plays_in_real_time(arrivals, sizes, silence_s):
    assert underrun_s(arrivals, sizes, SECOND) == pytest.approx(silence_s)


@pytest.mark.parametrize(
    "silence_s, continuous", [(0.0, ["50", "100", "500"]), (0.1, ["100", "500"]), (0.25, ["500"]), (0.75, [])]
)
def test_a_stream_is_continuous_up_to_each_threshold(told, silence_s, continuous):
    arrivals = [0.0, 1.0 + silence_s]
    told.pipeline.audio.stream_finished(2, 0, arrivals, [SECOND, 1], thresholds_s=(0.05, 0.1000001, 0.5))
    assert told.values("audio_underrun_s") == [pytest.approx(silence_s)]
    assert [labels["threshold_ms"] for labels, _ in told.of("audio_continuity_ok_total")] == continuous


def test_the_usual_threshold_is_a_tenth_of_a_second(told):
    told.pipeline.audio.stream_finished(2, 0, [0.0], [1], rate=16000, channels=2)
    assert told.of("audio_continuity_ok_total") == [({"threshold_ms": "100"}, 1)]


@pytest.mark.parametrize("replica, arrivals, sizes", [(None, [0.0], [1]), (0, [], []), (0, [0.0, 1.0], [1])])
def test_a_stream_of_which_something_is_unknown_makes_no_sample(told, replica, arrivals, sizes):
    told.pipeline.audio.stream_finished(2, replica, arrivals, sizes)
    assert told.all == []


def test_streams_of_speech_are_completed_or_aborted_for_one_of_four_reasons(told):
    told.pipeline.speech.completed()
    for reason in ("cancelled", "closed", "engine_dead", "error", "ValueError"):
        told.pipeline.speech.aborted(reason)
    assert told.values("speech_stream_completed_total") == [1]
    reasons = [labels["reason"] for labels, _ in told.of("speech_stream_aborted_total")]
    assert reasons == ["cancelled", "closed", "engine_dead", "error", "error"]


# ---- transfers, realtime sessions


def test_a_transfer_of_which_a_replica_is_unknown_makes_no_sample(told):
    bound = {(0, "r"): 1}
    transfers = told.pipeline.transfers
    transfers.sent("r", 0, 1, size_bytes=2048, tx_ms=3.0)  # nobody to ask
    transfers.replica_of = lambda stage, request: bound.get((stage, request))
    transfers.sent("r", 0, 1, size_bytes=2048, tx_ms=3.0)
    assert told.all == []
    transfers.received("r", 0, 1, rx_ms=4.0, in_flight_ms=-1.0, to_replica=2)
    transfers.sent("r", 0, 1, size_bytes=2048, tx_ms=3.0)
    edge = {"from_stage": "0", "from_replica": "1", "to_stage": "1", "to_replica": "2"}
    assert told.of("transfer_rx_s") == [(edge, 0.004)] and told.of("transfer_in_flight_s") == [(edge, 0.0)]
    assert told.of("transfer_size_bytes") == [(edge, 2048)] and told.of("transfer_tx_s") == [(edge, 0.003)]
    assert set(told.places("transfer_tx_s")) == {(None, None)}


def test_replica_zero_is_known(told):
    told.pipeline.transfers.replica_of = lambda stage, request: 0
    told.pipeline.transfers.sent("r", 0, 1, size_bytes=0, tx_ms=0.0)
    assert told.values("transfer_tx_s") == [0.0]


def test_realtime_sessions_are_counted_up_and_down(told):
    realtime = told.pipeline.realtime
    realtime.session_finished()
    realtime.session_started()
    realtime.session_started()
    realtime.session_finished()
    realtime.inferred(12.0)
    realtime.endpoint(500)
    realtime.error("")
    assert told.values("realtime_vad_active_sessions") == [0, 0, 1, 2, 1]
    assert told.values("realtime_vad_inference_latency_s") == [[], 0.012]
    assert told.values("realtime_vad_endpoint_delay_s") == [[], 0.5]
    assert told.of("realtime_vad_errors_total") == [({"reason": "unknown"}, 1)]


# ---- off, faults, limits


def test_without_statistics_nothing_is_made(monkeypatch):
    monkeypatch.setattr(Publisher, "__init__", lambda *_, **__: pytest.fail("a publisher was made"))
    pipeline = Pipeline("m", IDENTITY, log_stats=False)
    threads = threading.active_count()
    pipeline.requests.succeeded("r", 1.0)
    pipeline.stages.finished("r", 0, 0, stage_type="llm", stats=object())
    pipeline.stages.step(0, 0, object(), object())
    pipeline.audio.first_packet("r", 0, 0, 1.0, 2.0)
    pipeline.speech.aborted("error")
    pipeline.transfers.sent("r", 0, 1, size_bytes=1, tx_ms=1.0)
    pipeline.realtime.session_started()
    assert pipeline.flush() and pipeline.close() and pipeline.counts() == {}
    assert threading.active_count() == threads


def test_a_wrong_call_is_counted_and_never_raises(folder):
    made = Told(folder)
    pipeline = made.pipeline

    def lost(stage, request):
        raise KeyError("no such pool")

    pipeline.transfers.replica_of = lost
    pipeline.transfers.sent("r", 0, 1, size_bytes=1, tx_ms=1.0)
    pipeline.requests.succeeded("r", None)
    pipeline.audio.finished("r", 0, 0, gen_time_ms="long", frames=1)
    pipeline.stages.waiting(0, 0, "many")
    assert pipeline.counts()["omni_faults"] == 4
    pipeline.close(timeout_s=0.0)


def test_a_call_with_a_wrong_value_may_be_made_again_and_tokens_may_be_missing(folder):
    made = Told(folder)
    made.pipeline.requests.succeeded("r", None)
    made.pipeline.requests.succeeded("r", 1.0, prompt_tokens=None, generation_tokens=3)
    made.pipeline.requests.succeeded("r", 2.0)
    assert made.values("e2e_request_latency_s") == [1.0]
    assert made.values("prompt_tokens_total") == []
    assert made.values("generation_tokens_total") == [3]
    made.pipeline.close(timeout_s=0.0)


def test_what_is_remembered_is_bounded():
    kept = Kept(limit=2)
    assert [kept.put(key, None) for key in ("a", "a", "b", "c")] == [True, False, True, True]
    assert kept.forgotten == 1 and kept.put("a", None) and not kept.put("c", None)


def test_threads_end_a_request_once(told):
    threads = [
        threading.Thread(target=lambda: [told.pipeline.requests.succeeded(f"r-{i}", 0.1) for i in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told.of("requests_success_total")) == 200


def test_a_pipeline_with_a_clock_of_its_own_tells_that_time(folder):
    pipeline = Pipeline("m", IDENTITY, engines=f"ipc://{folder}/engines", clock=lambda: 7.0)
    publisher = pipeline._recorder.publisher
    pipeline.requests.succeeded("r", 1.0)
    pipeline.stages.step(0, 0, {"num_running_reqs": 1}, None)
    publisher.flush(0.0)
    records = publisher._ledger.ring.piece(1, 100)[1]
    assert len(records) >= 3 and {msgspec.msgpack.decode(record)[2] for record in records} == {7.0}
    pipeline.close(timeout_s=0.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_another_thread_held_a_lock_goes_on(healing_agent, folder):
    code = """
        import os, signal, sys, threading
        from statsbus.omni import Pipeline

        pipeline = Pipeline("m", {}, engines=sys.argv[1])
        recorder = pipeline._recorder
        locks = [recorder._changing, recorder._once._lock, pipeline.stages._summing, pipeline.realtime._counting]
        are_held, may_end = threading.Event(), threading.Event()

        def hold():
            for lock in locks:
                lock.__enter__()
            are_held.set()
            may_end.wait()

        threading.Thread(target=hold, daemon=True).start()
        are_held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            pipeline.requests.succeeded("r", 1.0)
            pipeline.stages.output("r", 0, 0, {"forward_time_ms": 1})
            pipeline.realtime.session_started()
            pipeline.stages.waiting(5, 5, 1)
            os._exit(0 if pipeline.close() and pipeline.counts()["omni_faults"] == 0 else 1)
        status = os.waitpid(child, 0)[1]
        for lock in locks:
            lock.__exit__()
        sys.exit(status)
    """
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code), healing_agent.engines]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stderr=subprocess.PIPE, text=True)
    try:
        healing_agent.until(lambda: process.poll() is not None, 30)
        assert (process.returncode, process.communicate()[1]) == (0, "")
    finally:
        process.kill()
    sources = [m.payload["sources"] for m in healing_agent.of("hello")]
    assert any((s["stage"], s["replica"]) == ("5", "5") for of_one in sources for s in of_one)
