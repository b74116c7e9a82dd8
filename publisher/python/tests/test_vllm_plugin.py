"""The stat logger plugin as vLLM uses it: what its manager does with it, in releases of today and of before."""

from __future__ import annotations

import gc
import importlib

import fake_vllm
import pytest
from fake_vllm import FinishedRequestStats, FinishReason, IterationStats, PrefixCacheStats, SchedulerStats
from statsbus.ledger import Ring


@pytest.fixture
def environment(monkeypatch, folder):
    monkeypatch.setenv("STATSBUS_ENGINES", f"ipc://{folder}/engines")
    monkeypatch.setenv("STATSBUS_SERVICE", "chat")
    monkeypatch.setenv("STATSBUS_JOB_NAME", "engine-0")
    return monkeypatch


@pytest.fixture
def agent(healing_agent):
    """Asks for what was published before it could hear."""
    return healing_agent


def plugin_class():
    return importlib.import_module("statsbus.vllm.plugin").StatsbusStatLogger


def step(tokens=2, reason=None):
    iteration = IterationStats()
    iteration.num_generation_tokens = tokens
    iteration.inter_token_latencies_iter = [0.01] * tokens
    if reason is not None:
        iteration.finished_requests.append(FinishedRequestStats(reason, "cmpl-1", 1.5, 7, 16))
    return iteration


def close(manager):
    for logger in manager.stat_loggers:
        if getattr(logger, "engine", None):
            logger.engine.publisher.close(timeout_s=0.0)


@pytest.fixture
def managers(environment):
    """Makes managers with the plugin, and closes its publishers."""
    made = []

    def make(loggers, vllm_config, indexes=None):
        made.append(loggers.StatLoggerManager(vllm_config, engine_idxs=indexes, custom_stat_loggers=[plugin_class()]))
        made[-1].call("log_engine_initialized")
        return made[-1]

    yield make
    for manager in made:
        close(manager)


def last(agent, kind):
    """The newest hello or beat; an empty one before there is any."""
    return agent.of(kind)[-1].payload if agent.of(kind) else {}


def records_of(agent, kind):
    return [r for records in agent.records.values() for _, r in sorted(records.items()) if r[0] == kind]


@pytest.mark.parametrize("is_old", [False, True], ids=["0.32", "0.11"])
def test_every_record_of_every_engine_is_published_once(agent, managers, environment, is_old):
    loggers = fake_vllm.install(environment, is_old)
    manager = managers(loggers, fake_vllm.config(), [0, 1])
    for n in range(20):
        manager.record(SchedulerStats(n), step(n % 3), None, n % 2)
    manager.record(None, step(1, FinishReason.LENGTH), None, 1)
    agent.until(lambda: len(records_of(agent, "step")) == 21)
    agent.settle(0.1)
    steps = records_of(agent, "step")
    assert [(r[1], r[3]["scheduler_stats"]["num_running_reqs"]) for r in steps[:20]] == [(n % 2, n) for n in range(20)]
    assert steps[20][3]["iteration_stats"]["finished_requests"][0]["finish_reason"] == "length"
    assert steps[20][3]["scheduler_stats"] is None and len(steps) == 21
    hello = agent.until(lambda: last(agent, "hello"))
    assert [s["dp_rank"] for s in hello["sources"]] == ["0", "1"]
    assert {(s["service_name"], s["model_name"], s["job_name"], s["role"]) for s in hello["sources"]} == {
        ("chat", "tiny", "engine-0", "both")
    }
    assert len(agent.records) == 1, "engines of one process share a publisher"


def test_events_and_beats_go_through(agent, managers, environment):
    manager = managers(fake_vllm.install(environment), fake_vllm.config())
    manager.call("record_sleep_state", 1, 2)
    manager.call("record_admission_rejection", "max_num_queued_reqs")
    manager.call("log")
    agent.until(lambda: len(records_of(agent, "event")) == 3 and agent.of("beat"))
    assert [r[1:2] + r[3:] for r in records_of(agent, "event")] == [
        [None, {"sleep": {"sleep": 0, "level": 0}}],
        [None, {"sleep": {"sleep": 1, "level": 2}}],
        [None, {"admission": {"reason": "max_num_queued_reqs"}}],
    ]


def test_the_hello_has_the_configuration_once_the_engine_is_initialized(agent, environment, managers):
    loggers = fake_vllm.install(environment)
    vllm_config = fake_vllm.config(
        lora_config=fake_vllm.SimpleNamespace(max_loras=2, max_lora_rank=8),
        kv_transfer_config=fake_vllm.SimpleNamespace(
            kv_connector="NixlConnector", kv_role="kv_producer", kv_connector_extra_config={"password": "secret"}
        ),
    )
    vllm_config.observability_config.custom_histogram_buckets = {"request_latency": [1.0, 2.0]}
    manager = loggers.StatLoggerManager(vllm_config, [0], [plugin_class()])
    vllm_config.cache_config.num_gpu_blocks = 256
    managers(loggers, vllm_config)
    agent.until(lambda: last(agent, "hello").get("info"))
    hello = last(agent, "hello")
    assert hello["engine"] == {"name": "vllm", "version": fake_vllm.VERSION}
    assert hello["info"] == [[None, "cache_config_info", {"block_size": "32", "num_gpu_blocks": "256"}]]
    assert hello["buckets"] == {"request_latency": [1.0, 2.0], "request_tokens": [1.0, 2.0, 5.0]}
    assert hello["config"]["lora"] == {"max_loras": 2, "max_lora_rank": 8}
    assert hello["config"]["kv_transfer"] == {"kv_connector": "NixlConnector", "kv_role": "kv_producer"}
    assert hello["sources"][0]["role"] == "prefill" and "secret" not in str(hello)
    close(manager)


def test_nothing_happens_without_an_endpoint(environment, folder):
    environment.delenv("STATSBUS_ENGINES")
    environment.setenv("STATSBUS_REPLACE_PROMETHEUS", "1")
    loggers = fake_vllm.install(environment)
    manager = loggers.StatLoggerManager(fake_vllm.config(), [0], [plugin_class()])
    ours, prometheus = manager.stat_loggers
    assert ours.engine is None and isinstance(prometheus, loggers.PrometheusStatLogger)
    manager.record(SchedulerStats(1), step())
    for call in (("record_sleep_state", 1, 1), ("record_admission_rejection", "x"), ("log_engine_initialized",), ("log",)):
        getattr(ours, call[0])(*call[1:])
    assert prometheus.recorded == 1


@pytest.mark.parametrize("is_old", [False, True], ids=["0.32", "0.11"])
def test_it_takes_the_place_of_vllms_prometheus_logger(agent, managers, environment, is_old):
    environment.setenv("STATSBUS_REPLACE_PROMETHEUS", "1")
    loggers = fake_vllm.install(environment, is_old)
    manager = managers(loggers, fake_vllm.config())
    assert [type(logger) for logger in manager.stat_loggers] == [plugin_class()]
    assert loggers.PrometheusStatLogger.made == 0
    manager.stat_loggers[0].record(SchedulerStats(1), step())
    agent.until(lambda: records_of(agent, "step"))


@pytest.mark.parametrize("name, value", [("STATSBUS_ENGINES", "/no/scheme"), ("STATSBUS_LABELS", "novalue")])
def test_a_wrong_variable_is_said_and_stops_nothing(environment, caplog, name, value):
    environment.setenv(name, value)
    loggers = fake_vllm.install(environment)
    manager = loggers.StatLoggerManager(fake_vllm.config(), [0], [plugin_class()])
    manager.record(SchedulerStats(1), step())
    manager.call("log_engine_initialized")
    assert manager.stat_loggers[0].engine is None
    assert "publishes nothing" in caplog.text and value in caplog.text


def test_connectors_families_and_adapters_are_observed(agent, managers, environment):
    vllm_config = fake_vllm.config(lora_config=fake_vllm.SimpleNamespace(max_loras=1, max_lora_rank=8))
    manager = managers(fake_vllm.install(environment), vllm_config)
    stats = SchedulerStats(1, running_lora_adapters={"a": 1}, waiting_lora_adapters={"a": 0, "b": 1})
    stats.connector_prefix_cache_stats = PrefixCacheStats(hits=3, hits_by_source={fake_vllm.CacheHitSource.HOST: 3})
    for _ in range(5):
        manager.record(stats, None)
    manager.record(SchedulerStats(0), None)
    agent.until(lambda: len(records_of(agent, "step")) == 6 and len(records_of(agent, "obs")) >= 2)
    first, last = (record[3][0] for record in records_of(agent, "obs")[:: len(records_of(agent, "obs")) - 1])
    assert first[:2] == ["vllm:lora_requests_info", {"max_lora": "1", "running_lora_adapters": "a", "waiting_lora_adapters": "a,b"}]
    assert last[1] == {"max_lora": "1", "running_lora_adapters": "", "waiting_lora_adapters": ""}
    assert len(records_of(agent, "obs")) < 6, "adapters that stay the same are not repeated with each step"
    sent = records_of(agent, "step")[0][3]["scheduler_stats"]
    assert sent["connector_prefix_cache_stats"]["hits_by_source"] == {"host": 3}


def test_scaling_up_keeps_the_publisher_and_scaling_down_ends_ranks(agent, managers, environment):
    loggers = fake_vllm.install(environment)
    vllm_config = fake_vllm.config()
    vllm_config.parallel_config.data_parallel_size = 2
    manager = managers(loggers, vllm_config, [0, 1])
    manager.record(SchedulerStats(1), step(), None, 1)
    manager = loggers.StatLoggerManager(vllm_config, engine_idxs=[0, 1, 2], custom_stat_loggers=None)  # as vLLM does
    vllm_config.parallel_config.data_parallel_size = 3
    manager.call("log")
    manager.record(SchedulerStats(7), step(), None, 2)
    agent.until(lambda: len(records_of(agent, "step")) == 2)
    assert len(agent.records) == 1 and [r[1] for r in records_of(agent, "step")] == [1, 2]
    agent.until(lambda: len(last(agent, "hello").get("sources", ())) == 3)
    vllm_config.parallel_config.data_parallel_size = 1
    manager.record(SchedulerStats(8), step(), None, 1)  # not recorded yet when its rank ends
    manager.call("log")
    agent.until(lambda: last(agent, "beat").get("ended") == [1, 2])
    assert last(agent, "beat")["live"] == [0]
    assert [r[1] for r in records_of(agent, "step")] == [1, 2, 1]
    vllm_config.parallel_config.data_parallel_size = 2
    manager = loggers.StatLoggerManager(vllm_config, engine_idxs=[0, 1], custom_stat_loggers=None)
    agent.until(lambda: last(agent, "beat") == {**last(agent, "beat"), "live": [0, 1], "ended": [2]})


def test_an_engine_that_goes_away_in_a_process_that_stays_ends_in_order(agent, environment):
    loggers = fake_vllm.install(environment)
    manager = loggers.StatLoggerManager(fake_vllm.config(), [0], [plugin_class()])
    manager.record(SchedulerStats(1), step())
    agent.until(lambda: records_of(agent, "step") and agent.of("beat"))
    with agent.serving():
        del manager
        gc.collect()
    agent.until(lambda: last(agent, "beat").get("ended") == [0])


def test_an_engine_may_be_collected_in_the_middle_of_numbering_its_records(agent, environment, monkeypatch):
    loggers = fake_vllm.install(environment)
    manager = loggers.StatLoggerManager(fake_vllm.config(), [0], [plugin_class()])
    publisher = manager.stat_loggers[0].engine.publisher
    agent.until(lambda: agent.of("beat"))
    manager.itself = manager
    take, is_collected = Ring.take, []

    def take_and_collect(self, pending):
        if not is_collected and self is publisher._ledger.ring:
            is_collected.append(gc.collect())
        return take(self, pending)

    gc.disable()
    try:
        del manager
        monkeypatch.setattr(Ring, "take", take_and_collect)
        publisher.later(publisher.step, 0, None, {"n": 1})
        agent.until(lambda: is_collected and last(agent, "beat").get("ended") == [0])
    finally:
        gc.enable()
    assert len(records_of(agent, "step")) == 1


def test_two_engines_of_a_process_have_publishers_of_their_own(agent, managers, environment):
    loggers = fake_vllm.install(environment)
    one, two = (managers(loggers, fake_vllm.config()) for _ in range(2))
    one.record(SchedulerStats(1), None)
    two.record(SchedulerStats(2), None)
    agent.until(lambda: len(records_of(agent, "step")) == 2)
    assert len(agent.records) == 2


def test_what_a_connector_reported_is_encoded_before_vllms_logging_adds_to_it(agent, managers, environment):
    vllm_config = fake_vllm.config(kv_transfer_config=fake_vllm.SimpleNamespace(kv_connector="NixlConnector", kv_role=None))
    manager = managers(fake_vllm.install(environment), vllm_config)
    stats = SchedulerStats(1, kv_connector_stats={"transfer_duration": [0.5]})
    manager.record(stats, None)
    stats.kv_connector_stats["transfer_duration"].append(0.7)
    agent.until(lambda: records_of(agent, "step"))
    assert records_of(agent, "step")[0][3]["scheduler_stats"]["kv_connector_stats"] == {"transfer_duration": [0.5]}


def test_stats_that_cannot_be_encoded_never_reach_the_engine(agent, managers, environment, caplog):
    manager = managers(fake_vllm.install(environment), fake_vllm.config())
    manager.record(SchedulerStats(2**70), step(3))
    manager.record(object(), object())
    manager.stat_loggers[0].record(SchedulerStats(4), step(), engine_idx=None)
    agent.until(lambda: len(records_of(agent, "step")) == 3)
    counts = manager.stat_loggers[0].engine.publisher.counts()
    assert counts["salvaged"] >= 1 and records_of(agent, "step")[0][3]["iteration_stats"]["num_generation_tokens"] == 3
    assert records_of(agent, "step")[2][3]["scheduler_stats"]["num_running_reqs"] == 4


def test_the_entry_points_name_what_is_there(environment):
    fake_vllm.install(environment)
    from importlib.metadata import distribution

    points = {(p.group, p.name): p for p in distribution("statsbus").entry_points}
    assert points["vllm.stat_logger_plugins", "statsbus"].load() is plugin_class()
    assert callable(points["vllm.general_plugins", "statsbus_omni"].load())
