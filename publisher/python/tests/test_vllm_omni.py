"""vLLM-Omni's orchestrator with its own stat logger, a stand-in for it: what it records is published by stage and replica."""

from __future__ import annotations

import sys
import types

import fake_vllm
import pytest
from fake_vllm import IterationStats, SchedulerStats
from statsbus.omni import adapters
from statsbus.vllm import omni

MAP = {0: ("0", "0"), 1: ("0", "1"), 2: ("1", "0")}


@pytest.fixture
def logger_class(monkeypatch, folder):
    """OmniPrometheusStatLogger, after `attach`."""
    monkeypatch.setenv("STATSBUS_ENGINES", f"ipc://{folder}/engines")
    loggers = fake_vllm.install(monkeypatch)
    made = []

    def attached(older=(), **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

        class OmniPrometheusStatLogger(loggers.PrometheusStatLogger):
            made = 0

            def __init__(self, vllm_config, stage_replica_map):
                super().__init__(vllm_config, list(stage_replica_map))
                made.append(self)

            def register_replica(self, engine_idx, stage, replica):
                self.registered = (engine_idx, stage, replica)

        for config in older:
            OmniPrometheusStatLogger(config, MAP)
        for name in ("vllm_omni", "vllm_omni.metrics", omni.LOGGER_MODULE):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        setattr(sys.modules[omni.LOGGER_MODULE], omni.LOGGER_CLASS, OmniPrometheusStatLogger)
        omni.attach()
        omni.attach()  # plugins may be loaded more than once
        return OmniPrometheusStatLogger

    attached.made = made
    yield attached
    for logger in made:
        if getattr(logger, "statsbus_engine", None):
            logger.statsbus_engine.publisher.close(timeout_s=0.0)


def steps(agent):
    return [r for records in agent.records.values() for _, r in sorted(records.items()) if r[0] == "step"]


def test_each_stage_and_replica_is_a_source(healing_agent, logger_class):
    logger = logger_class()(fake_vllm.config(), MAP)
    for index in MAP:
        logger.record(SchedulerStats(index), IterationStats(), engine_idx=index)
    logger.record(None, IterationStats(), engine_idx=2)
    logger.record_sleep_state(1, 1)
    logger.log_engine_initialized()
    healing_agent.until(lambda: len(steps(healing_agent)) == 4 and healing_agent.of("hello"))
    sources = healing_agent.of("hello")[-1].payload["sources"]
    assert [(s["stage"], s["replica"], s["dp_rank"]) for s in sources] == [
        ("0", "0", "0"), ("0", "1", "0"), ("1", "0", "0"),
    ]  # fmt: skip
    assert [r[1] for r in steps(healing_agent)] == [0, 1, 2, 2]
    assert logger.recorded == 4 and type(logger).made == 1, "its own metrics go on"


def test_replicas_that_come_later_are_sources_too(healing_agent, logger_class):
    logger = logger_class()(fake_vllm.config(), {})
    logger.record(SchedulerStats(1), IterationStats(), engine_idx=0)  # nobody knows of whom
    for index, replica in enumerate(("0", "1", "1")):
        logger.register_replica(min(index, 1), "2", replica)
    assert logger.registered == (1, "2", "1")
    logger.record(SchedulerStats(2), IterationStats(), engine_idx=1)
    healing_agent.until(lambda: steps(healing_agent) and healing_agent.of("hello"))
    healing_agent.until(lambda: len(healing_agent.of("hello")[-1].payload["sources"]) == 2)
    sources = healing_agent.of("hello")[-1].payload["sources"]
    assert [(s["stage"], s["replica"], s["observed"]) for s in sources] == [("2", "0", True), ("2", "1", True)]
    assert [r[1] for r in steps(healing_agent)] == [1]


def test_a_replica_that_died_ends_and_is_back_with_its_next_step(healing_agent, logger_class, monkeypatch):
    class OrchestratorBase:
        removed = []

        def _remove_stage_replica_waiting(self, stage_id, replica_id):
            self.removed.append((stage_id, replica_id))

    monkeypatch.setitem(sys.modules, omni.ORCHESTRATOR_MODULE, types.ModuleType(omni.ORCHESTRATOR_MODULE))
    monkeypatch.setattr(sys.modules[omni.ORCHESTRATOR_MODULE], "OrchestratorBase", OrchestratorBase, raising=False)
    orchestrator = type("Orchestrator", (OrchestratorBase,), {})()
    orchestrator._stat_logger = logger_class()(fake_vllm.config(), MAP)
    metrics = adapters.OmniModalityMetrics("m")
    metrics.observe_audio_ttfp("0", "1", 0.5)
    ours = metrics._recorder.publisher.id
    for index in MAP:
        orchestrator._stat_logger.record(SchedulerStats(index), IterationStats(), engine_idx=index)
    orchestrator._remove_stage_replica_waiting(0, 1)
    orchestrator._remove_stage_replica_waiting(7, 7)
    theirs = orchestrator._stat_logger.statsbus_engine.publisher.id
    ended = lambda publisher: [m.payload.get("ended") for m in healing_agent.of("beat", publisher)]  # noqa: E731
    healing_agent.until(lambda: [1] in ended(theirs) and [1] in ended(ours))
    assert orchestrator.removed == [(0, 1), (7, 7)]
    orchestrator._stat_logger.record(SchedulerStats(5), IterationStats(), engine_idx=1)
    metrics.observe_audio_ttfp("0", "1", 0.7)
    healing_agent.until(lambda: [r[1] for r in steps(healing_agent)] == [0, 1, 2, 1])
    for publisher in (theirs, ours):  # as the source that it was, however often: a publisher has only so many
        healing_agent.until(lambda of=publisher: not ended(of)[-1])
    source = healing_agent.of("hello", theirs)[-1].payload["sources"][1]
    assert (source["stage"], source["replica"]) == ("0", "1")
    for publisher, count in ((theirs, 3), (ours, 2)):
        assert len(healing_agent.of("hello", publisher)[-1].payload["sources"]) == count
    adapters.shared.close(timeout_s=0.0)


def test_it_can_take_the_place_of_the_metrics(healing_agent, logger_class):
    kind = logger_class(STATSBUS_REPLACE_PROMETHEUS="1")
    logger = kind(fake_vllm.config(), MAP)
    logger.record(SchedulerStats(1), IterationStats(), engine_idx=1)
    healing_agent.until(lambda: steps(healing_agent))
    assert kind.made == 0
    logger.statsbus_engine.publisher.close(timeout_s=0.0)


def test_without_an_endpoint_nothing_is_changed(monkeypatch, logger_class):
    monkeypatch.delenv("STATSBUS_ENGINES")
    logger = logger_class()(fake_vllm.config(), MAP)
    assert not hasattr(logger, "statsbus_engine")


def test_a_logger_that_was_made_before_goes_on_as_it_did(logger_class):
    older = logger_class.made
    logger_class(older=[fake_vllm.config()])
    (logger,) = older
    logger.record(SchedulerStats(1), IterationStats(), engine_idx=1)
    logger.log_engine_initialized()
    assert logger.recorded == 1 and logger.statsbus_engine is None


def test_a_release_without_that_logger_is_said(monkeypatch, folder, caplog):
    monkeypatch.setenv("STATSBUS_ENGINES", f"ipc://{folder}/engines")
    monkeypatch.setitem(sys.modules, "vllm_omni", types.ModuleType("vllm_omni"))
    omni.attach()
    assert "vLLM-Omni are not published" in caplog.text


def test_a_wrong_variable_leaves_its_own_metrics_alone(logger_class, caplog):
    kind = logger_class(STATSBUS_LABELS="novalue")
    logger = kind(fake_vllm.config(), MAP)
    logger.record(SchedulerStats(1), IterationStats(), engine_idx=1)
    assert logger.recorded == 1 and logger.statsbus_engine is None and "publishes nothing" in caplog.text
