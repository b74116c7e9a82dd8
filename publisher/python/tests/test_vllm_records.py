"""vLLM's own objects as wire content: look-alikes of its classes, of which msgspec alone would get some wrong."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

import msgspec
import pytest
from statsbus.encoding import Encoder
from statsbus.vllm.records import VllmRecorder, admission_event, description, iteration_content, model_name


class FinishReason(enum.IntEnum):
    STOP = 0
    LENGTH = 1

    def __str__(self) -> str:
        return self.name.lower()


class Rejection(str, enum.Enum):
    MAX_NUM_QUEUED_REQS = "max_num_queued_reqs"


@dataclass
class FinishedRequestStats:
    finish_reason: FinishReason
    e2e_latency: float = 0.0
    max_tokens_param: Optional[int] = None


@dataclass
class PrefixCacheStats:
    reset: bool = False
    queries: int = 0


@dataclass
class SchedulerStats:
    num_running_reqs: int = 0
    prefix_cache_stats: PrefixCacheStats = field(default_factory=PrefixCacheStats)
    spec_decoding_stats: Optional[Any] = None
    waiting_lora_adapters: Dict[str, int] = field(default_factory=dict)
    running_lora_adapters: Dict[str, int] = field(default_factory=dict)


class IterationStats:  # a plain class, as in vLLM
    def __init__(self) -> None:
        self.num_generation_tokens = 2
        self.finished_requests: List[FinishedRequestStats] = []
        self.inter_token_latencies_iter = [0.01, 0.02]


INFO = {"vllm_version": "0.32.0", "model_name": ["served", "alias"], "lora": None}


def over_the_wire(value):
    return msgspec.msgpack.decode(Encoder().encode(value))


def test_stats_objects_become_maps_of_their_fields():
    assert over_the_wire(SchedulerStats(3, PrefixCacheStats(queries=7))) == {
        "num_running_reqs": 3,
        "prefix_cache_stats": {"reset": False, "queries": 7},
        "spec_decoding_stats": None,
        "waiting_lora_adapters": {},
        "running_lora_adapters": {},
    }
    assert over_the_wire(iteration_content(IterationStats())) == {
        "num_generation_tokens": 2,
        "finished_requests": [],
        "inter_token_latencies_iter": [0.01, 0.02],
    }


def test_reasons_travel_as_texts():
    stats = IterationStats()
    stats.finished_requests = [FinishedRequestStats(FinishReason.LENGTH, 1.5)]
    assert over_the_wire(iteration_content(stats))["finished_requests"] == [
        {"finish_reason": "length", "e2e_latency": 1.5, "max_tokens_param": None}
    ]
    assert stats.finished_requests[0].finish_reason is FinishReason.LENGTH, "the engine's object stays as it is"
    assert admission_event(Rejection.MAX_NUM_QUEUED_REQS) == {"admission": {"reason": "max_num_queued_reqs"}}


def test_maps_pass_as_they_are():
    stats = {"finished_requests": [{"finish_reason": "stop"}]}
    assert iteration_content(stats) is stats and iteration_content(None) is None


class Array:
    def tolist(self) -> List[float]:
        return [0.5, 1.5]


def test_foreign_objects_cost_at_most_their_own_field():
    assert over_the_wire({"a": Array(), "b": {1, 2}, "c": object})["a"] == [0.5, 1.5]


@pytest.mark.parametrize("name, model", [("m", "m"), (["a", "b"], "a"), ([], None), (None, None)])
def test_the_model_is_the_first_served_name(name, model):
    assert model_name({"model_name": name}) == model


def test_a_recorder_calls_the_publisher_as_the_engine_calls_its_loggers(agent, publish):
    publisher = publish(**description(INFO))
    agent.until(lambda: agent.of("hello"))
    recorder = VllmRecorder(publisher, {**INFO, "lora": {"max_loras": 2}})
    stats = SchedulerStats(1, running_lora_adapters={"a": 1, "b": 1}, waiting_lora_adapters={"c": 1})
    recorder.record(0, stats, IterationStats(), time=2.0, wall=1e9)
    recorder.record(0, None, IterationStats(), time=3.0)
    recorder.sleep(1, 2, time=4.0)
    recorder.admission(Rejection.MAX_NUM_QUEUED_REQS, time=5.0)
    agent.until(lambda: len(agent.records.get(publisher.id, ())) == 6)
    records = agent.records[publisher.id]
    assert records[1][:2] == ["event", None] and records[1][3] == {"sleep": {"sleep": 0, "level": 0}}
    assert records[2][:3] == ["step", 0, 2.0] and records[2][3]["iteration_stats"]["num_generation_tokens"] == 2
    labels = {"max_lora": "2", "running_lora_adapters": "a,b", "waiting_lora_adapters": "c"}
    assert records[3] == ["obs", 0, 2.0, [["vllm:lora_requests_info", labels, 1e9]]]
    assert records[4][3]["scheduler_stats"] is None
    assert records[5][3] == {"sleep": {"sleep": 1, "level": 2}}
    assert records[6][3] == {"admission": {"reason": "max_num_queued_reqs"}}
    assert publisher.counts()["faults"] == 0
