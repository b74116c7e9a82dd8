"""
A pipeline of several stages that runs at random, told through statsbus.omni, and what its numbers must be.

thinker (0) and talker (1) are autoregressive, code2wav (2) makes audio, painter (3) is a diffusion stage. The tally is the
tests' own reading of vLLM-Omni's metric document: it shares nothing with the publisher, the catalog or the daemons.
"""

from __future__ import annotations

import bisect
import json
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from daemons import REPOSITORY, Node
from statsbus.omni import Pipeline

DATA = json.loads((REPOSITORY / "tests/data/omni/families.json").read_text())
OWN_BOUNDS = {"num_inference_steps": [10.0, 20.0, 50.0], "image_pixels": [65536.0, 1048576.0]}
THINKER, TALKER, CODE2WAV, PAINTER = range(4)
STAGE_TYPES = {THINKER: "llm", TALKER: "llm", CODE2WAV: "llm", PAINTER: "diffusion"}
LARGEST = {"peak_memory_mb"}  # of gauges that don't add up
BYTES_PER_S = 24000 * 2
THRESHOLDS_S = (0.1, 0.5)

BY_PAIR = "statsbus_omni_stage_"  # and a transfer family: that without replicas

Labels = frozenset[tuple[str, str]]
Series = dict[tuple[str, Labels], float]


@dataclass(frozen=True)
class Place:
    node: str
    stage: int | None = None
    replica: int | None = None

    def row(self, view: str) -> Labels:
        """The labels that the view has of this place."""
        labels = {"stage": self.stage, "replica": self.replica, "node": self.node}
        by = {"full": (), "stage": ("stage",), "replica": ("stage", "replica"), "node": ("node",)}[view]
        return frozenset((name, str(labels[name])) for name in by if labels[name] is not None)


def bounds_of(family: str) -> list[float]:
    if family in OWN_BOUNDS:
        return OWN_BOUNDS[family]
    found: list[float] = DATA["bucket_sets"][DATA["facts"][family.removeprefix(BY_PAIR)][2]]
    return found


class Tally:
    """What was told, by place, family and own labels."""

    def __init__(self) -> None:
        self.counts: dict[tuple[Place, str, Labels], float] = defaultdict(float)
        self.observed: dict[tuple[Place, str, Labels], list[float]] = defaultdict(list)
        self.gauges: dict[tuple[Place, str], float] = {}

    def count(self, place: Place, family: str, n: float = 1, **labels: Any) -> None:
        self.counts[place, family, self._labels(labels)] += n

    def observe(self, place: Place, family: str, *values: float, **labels: Any) -> None:
        self.observed[place, family, self._labels(labels)].extend(values)

    def gauge(self, place: Place, family: str, value: float) -> None:
        self.gauges[place, family] = value

    def remove(self, place: Place) -> None:
        self.gauges = {key: value for key, value in self.gauges.items() if key[0] != place}

    @staticmethod
    def _labels(labels: dict[str, Any]) -> Labels:
        return frozenset((name, str(value)) for name, value in labels.items())

    def expected(self, view: str) -> Series:
        """All samples of the view, beside service and model."""
        out: Series = {}
        for (place, family, own), value in self.counts.items():
            key = (family, place.row(view) | own)
            out[key] = out.get(key, 0.0) + value
        for (place, family, own), values in self.observed.items():
            self._histogram(out, family, place.row(view) | own, values)
        for (place, family), value in self.gauges.items():
            key = (family, place.row(view))
            out[key] = max(out.get(key, value), value) if family in LARGEST else out.get(key, 0.0) + value
        return out | self._shares(view)

    def _shares(self, view: str) -> Series:
        """What statsbus computes of them, by row."""
        n: dict[tuple[str, Labels, Labels], float] = defaultdict(float)
        for (place, family, own), value in self.counts.items():
            n[family, place.row(view), own] += value
        for (place, family, _), values in self.observed.items():
            n[family, place.row(view), frozenset()] += len(values)
            n[family + " under 1", place.row(view), frozenset()] += sum(value <= 1 for value in values)
        aborted, completed = defaultdict(float), defaultdict(float)
        for (family, row, _), value in n.items():
            if family.startswith("speech_stream_"):
                (aborted if "aborted" in family else completed)[row] += value
        out: Series = {("statsbus_omni_interruption_ratio", row): aborted[row] / (aborted[row] + completed[row])
                       for row in aborted.keys() | completed.keys()}
        for (family, row, own), value in n.items():
            if family == "audio_continuity_ok_total":
                out["statsbus_omni_audio_continuity_rate", row | own] = value / n["audio_underrun_s", row, frozenset()]
            if family == "audio_rtf" and value:
                out["statsbus_omni_audio_faster_than_played", row] = n["audio_rtf under 1", row, own] / value
        return out

    @staticmethod
    def _histogram(out: Series, family: str, labels: Labels, values: Iterable[float]) -> None:
        bounds = [*bounds_of(family), float("inf")]
        for bound in bounds:
            out.setdefault((family + "_bucket", labels | {("le", repr(bound))}), 0.0)
        out.setdefault((family + "_sum", labels), 0.0)
        out.setdefault((family + "_count", labels), 0.0)
        for value in values:
            for bound in bounds[bisect.bisect_left(bounds, value):]:
                out[family + "_bucket", labels | {("le", repr(bound))}] += 1
            out[family + "_sum", labels] += value
            out[family + "_count", labels] += 1


class Orchestrator:
    """One pipeline on one node, and what it has told."""

    def __init__(self, node: Node, name: str, tally: Tally, seed: int) -> None:
        self.name = name
        self.tally = tally
        self.pick = random.Random(seed)
        self.here = Place(name)
        self.replicas: dict[int, set[int]] = {stage: {0, 1} for stage in STAGE_TYPES}
        self.bound: dict[tuple[int, str], int] = {}
        self.n = 0
        self.pipeline = Pipeline(
            "omni", {"service_name": "voice", "job_name": f"omni-{name}", "instance_id": f"i-{name}", "node": name},
            engines=node.engines, replay=node.replay, replica_of=lambda stage, request: self.bound.get((stage, request)),
            buckets={"omni_steps": OWN_BOUNDS["num_inference_steps"], "omni_pixels": OWN_BOUNDS["image_pixels"]})
        _ = self.pipeline.realtime
        for family in ("prompt_tokens_total", "generation_tokens_total", "image_count_total"):
            tally.count(self.here, family, 0)
        for family in ("e2e_request_latency_s", "request_queue_wait_s", "num_inference_steps", "image_pixels",
                       "realtime_vad_inference_latency_s", "realtime_vad_endpoint_delay_s"):
            tally.observe(self.here, family)
        for family in ("num_requests_running", "num_requests_waiting", "realtime_vad_active_sessions"):
            tally.gauge(self.here, family, 0)

    def place(self, stage: int, replica: int) -> Place:
        return Place(self.name, stage, replica)

    def again(self) -> range:
        """Now and then a message comes twice."""
        return range(self.pick.choice((1, 1, 1, 2)))

    # Replicas

    def add(self, stage: int, replica: int) -> None:
        self.replicas[stage].add(replica)
        self.pipeline.stages.replica_added(stage, replica)

    def remove(self, stage: int, replica: int) -> None:
        self.replicas[stage].discard(replica)
        self.pipeline.stages.replica_removed(stage, replica)
        self.tally.remove(self.place(stage, replica))

    # Requests

    def request(self) -> None:
        self.n += 1
        request = f"{self.name}-{self.n}"
        stages = (THINKER, PAINTER) if self.pick.random() < 0.4 else (THINKER, TALKER, CODE2WAV)
        for stage in stages:
            self.bound[stage, request] = self.pick.choice(sorted(self.replicas[stage]))
        self.pipeline.requests.counter.increment()
        self.in_flight()
        is_failing = self.pick.random() < 0.15
        for at, stage in enumerate(stages):
            if at > 0:
                self.transfer(request, stages[at - 1], stage)
            if stage in (THINKER, TALKER):
                self.step(stage, self.bound[stage, request])
            if stage == PAINTER:
                self.outputs(request, is_failing)
            if not (is_failing and stage == stages[-1]):
                self.finish_stage(request, stage)
        if is_failing:
            self.fail(request)
        else:
            self.succeed(request, stages[-1])
        self.pipeline.requests.counter.decrement()
        self.in_flight()
        if self.pick.random() < 0.3:
            self.aside()
        for stage in stages:
            del self.bound[stage, request]

    def in_flight(self) -> None:
        total = self.pipeline.requests.counter.value + self.pick.randint(0, 2)
        self.pipeline.requests.in_flight(total)
        self.tally.gauge(self.here, "num_requests_running", self.pipeline.requests.counter.value)
        self.tally.gauge(self.here, "num_requests_waiting", total - self.pipeline.requests.counter.value)

    def transfer(self, request: str, from_stage: int, to_stage: int) -> None:
        size, tx_ms, rx_ms, in_flight_ms = self.pick.randint(1, 1 << 20), self.pick.randint(1, 9), self.pick.randint(1, 99), self.pick.randint(-2, 9)
        if self.pick.random() < 0.1:
            self.pipeline.transfers.sent("stranger", from_stage, to_stage, size_bytes=size, tx_ms=tx_ms)  # bound nowhere
        self.pipeline.transfers.sent(request, from_stage, to_stage, size_bytes=size, tx_ms=tx_ms)
        self.pipeline.transfers.received(request, from_stage, to_stage, rx_ms=rx_ms, in_flight_ms=in_flight_ms)
        edge = {"from_stage": from_stage, "from_replica": self.bound[from_stage, request],
                "to_stage": to_stage, "to_replica": self.bound[to_stage, request]}
        pair = {"from_stage": from_stage, "to_stage": to_stage}
        for family, value in (("transfer_size_bytes", size), ("transfer_tx_s", tx_ms / 1000), ("transfer_rx_s", rx_ms / 1000),
                              ("transfer_in_flight_s", max(in_flight_ms, 0) / 1000)):
            self.tally.observe(self.here, family, value, **edge)
            self.tally.observe(self.here, BY_PAIR + family, value, **pair)

    def step(self, stage: int, replica: int) -> None:
        waiting, tokens = self.pick.randint(0, 5), self.pick.randint(1, 50)
        self.pipeline.stages.step(stage, replica, {"num_running_reqs": 1, "num_waiting_reqs": waiting}, {"num_generation_tokens": tokens})
        self.tally.gauge(self.place(stage, replica), "stage_waiting_requests", waiting)
        self.tally.count(self.place(stage, replica), "vllm:generation_tokens_total", tokens)
        self.tally.gauge(self.place(stage, replica), "vllm:num_requests_running", 1)

    def outputs(self, request: str, is_failing: bool) -> None:
        """What the diffusion engine tells in some outputs; of a request that fails nothing comes of it."""
        replica = self.bound[PAINTER, request]
        place = self.place(PAINTER, replica)
        self.times: dict[str, float] = defaultdict(float)
        names = ["diffusion_engine_exec_time_ms", "preprocess_time_ms", "postprocess_time_ms", "scheduler_queue_wait_ms"]
        names += [name for name in ("vae_decode_time_ms", "forward_time_ms", "kv_recv_time_ms") if self.pick.random() < 0.5]
        for _ in range(self.pick.randint(1, 3)):
            metrics: dict[str, Any] = {name: self.pick.choice((0, 4, 70, 900)) for name in names}
            metrics["scheduler_num_waiting_reqs"] = self.pick.randint(0, 3)
            self.pipeline.stages.output(request, PAINTER, replica, metrics)
            self.tally.gauge(place, "stage_waiting_requests", metrics["scheduler_num_waiting_reqs"])
            for name in names:
                self.times[name] += metrics[name] / 1000
        if is_failing:
            self.times = {}

    def finish_stage(self, request: str, stage: int) -> None:
        replica = self.bound[stage, request]
        place = self.place(stage, replica)
        gen_ms = self.pick.randint(0, 4000)
        stats: dict[str, Any] = {"stage_gen_time_ms": gen_ms}
        if stage == PAINTER:
            stats |= {"output_unit_type": "image", "output_unit_count": self.pick.randint(0, 2), "image_pixels": self.pick.choice((0, 262144, 2097152)),
                      "num_inference_steps": self.pick.choice((0, 20, 30)), "image_time_to_first_output_ms": gen_ms / 2}
        peak = self.pick.choice((0, 0, 8000.5, 9000))
        for _ in self.again():
            self.pipeline.stages.finished(request, stage, replica, stage_type=STAGE_TYPES[stage], stats=stats, peak_memory_mb=peak)
        self.tally.observe(place, "stage_gen_time_s", gen_ms / 1000, stage_type=STAGE_TYPES[stage])
        if peak > 0:
            self.tally.gauge(place, "peak_memory_mb", peak)
        if stage == PAINTER:
            self.paint(place, stats)

    def paint(self, place: Place, stats: dict[str, Any]) -> None:
        steps = stats["num_inference_steps"]
        if steps:
            self.tally.observe(self.here, "num_inference_steps", steps)
        if stats["image_pixels"]:
            self.tally.observe(self.here, "image_pixels", stats["image_pixels"])
        self.tally.count(self.here, "image_count_total", stats["output_unit_count"])
        self.tally.observe(place, "image_ttfp_s", stats["image_time_to_first_output_ms"] / 1000)
        for name, family in (("scheduler_queue_wait_ms", "stage_in_queue_s"), ("diffusion_engine_exec_time_ms", "diffusion_exec_s"),
                             ("preprocess_time_ms", "diffusion_preprocess_s"), ("postprocess_time_ms", "diffusion_postprocess_s"),
                             ("vae_decode_time_ms", "vae_decode_s"), ("forward_time_ms", "diffusion_forward_s"),
                             ("kv_recv_time_ms", "diffusion_kv_load_s")):
            if name in self.times:
                self.tally.observe(place, family, self.times[name])
        if steps:
            self.tally.observe(place, "diffusion_exec_per_step_s", self.times["diffusion_engine_exec_time_ms"] / steps)
            if "forward_time_ms" in self.times:
                self.tally.observe(place, "denoise_step_latency_s", self.times["forward_time_ms"] / steps)

    def succeed(self, request: str, stage: int) -> None:
        if stage == CODE2WAV:
            self.speak(request)
        e2e_s, tokens = self.pick.uniform(0, 30), (self.pick.randint(1, 90), self.pick.randint(0, 900))
        reason = self.pick.choice(("stop", "length"))
        wait_ms = self.pick.choice((None, 0, 0, 60))
        timings = {} if wait_ms is None else {"queue_wait_ms": wait_ms}
        for _ in self.again():
            self.pipeline.requests.succeeded(request, e2e_s, reason, prompt_tokens=tokens[0], generation_tokens=tokens[1], pipeline_timings=timings)
        self.pipeline.requests.failed(request, "client_disconnect")  # after its end: too late
        self.tally.count(self.here, "requests_success_total", finished_reason=reason)
        self.tally.observe(self.here, "e2e_request_latency_s", e2e_s)
        self.tally.count(self.here, "prompt_tokens_total", tokens[0])
        self.tally.count(self.here, "generation_tokens_total", tokens[1])
        if wait_ms is not None:
            self.tally.observe(self.here, "request_queue_wait_s", wait_ms / 1000)

    def fail(self, request: str) -> None:
        reason = self.pick.choice(("client_abort", "stage_error", "out of memory"))
        for _ in self.again():
            self.pipeline.requests.failed(request, reason)
        self.tally.count(self.here, "requests_success_total", finished_reason="abort")
        self.tally.count(self.here, "requests_failed_total", reason=reason if "_" in reason else "unknown")

    def speak(self, request: str) -> None:
        """A stream of chunks, of which some come late; or nothing at all."""
        replica = self.bound[CODE2WAV, request]
        place, audio = self.place(CODE2WAV, replica), self.pipeline.audio
        frames = self.pick.choice((0, 48000, 96000))
        gen_ms = self.pick.randint(100, 5000)
        for _ in self.again():
            audio.finished(request, CODE2WAV, replica, gen_time_ms=gen_ms, frames=frames, output={"sr": 48000})
        if frames == 0:
            self.tally.count(place, "audio_skipped_requests_total", reason="no_audio_data")
            return
        self.tally.count(place, "audio_frames_total", frames)
        self.tally.observe(place, "audio_duration_s", frames / 48000)
        self.tally.observe(place, "audio_rtf", gen_ms / 1000 / (frames / 48000))
        late_s = self.pick.choice((0.0, 0.25, 0.75))
        arrivals = [100.0, 100.5, 102.0 + late_s]  # two seconds of audio are there, less what is late
        for now_s in arrivals:
            audio.first_packet(request, CODE2WAV, replica, 99.0, now_s)
        self.tally.observe(place, "audio_ttfp_s", 1.0)
        if self.pick.random() < 0.2:
            self.pipeline.speech.aborted("cancelled")
            self.tally.count(self.here, "speech_stream_aborted_total", reason="cancelled")
            return
        audio.stream_finished(CODE2WAV, replica, arrivals, [BYTES_PER_S, BYTES_PER_S, BYTES_PER_S], thresholds_s=THRESHOLDS_S)
        self.pipeline.speech.completed()
        self.tally.observe(place, "audio_underrun_s", late_s)
        for threshold_s in THRESHOLDS_S:
            if late_s <= threshold_s:
                self.tally.count(place, "audio_continuity_ok_total", threshold_ms=int(threshold_s * 1000))
        self.tally.count(self.here, "speech_stream_completed_total")

    def aside(self) -> None:
        """What goes on beside requests: KV handed over, realtime sessions."""
        wait_s = self.pick.choice((-1.0, 0.0, 0.4))
        self.pipeline.requests.kv_waited(wait_s, self.pick.choice(("", "nixl")) if wait_s < 0 else "nixl")
        if wait_s >= 0:
            self.tally.observe(self.here, "kv_wait_s", wait_s, connector_type="nixl")
        self.pipeline.realtime.session_started()
        self.pipeline.realtime.inferred(12)
        self.pipeline.realtime.endpoint(300)
        self.pipeline.realtime.error("overflow")
        self.tally.gauge(self.here, "realtime_vad_active_sessions", self.tally.gauges[self.here, "realtime_vad_active_sessions"] + 1)
        self.tally.observe(self.here, "realtime_vad_inference_latency_s", 0.012)
        self.tally.observe(self.here, "realtime_vad_endpoint_delay_s", 0.3)
        self.tally.count(self.here, "realtime_vad_errors_total", reason="overflow")
