"""Small stories with one right answer each, told to the real programs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemons import OPENMETRICS, Cluster, Node, samples, wait_for
from engine import Engine, source

pytestmark = pytest.mark.sanitized

ITERATION_BOUNDS = ["1.0", "8.0", "16.0", "32.0", "64.0", "128.0", "256.0", "512.0", "1024.0", "2048.0", "4096.0", "8192.0", "16384.0", "+Inf"]


def scheduler(running: int = 0, waiting: int = 0, kv: float = 0.0) -> dict[str, Any]:
    return {"num_running_reqs": running, "num_waiting_reqs": waiting, "num_skipped_waiting_reqs": 0, "kv_cache_usage": kv}


@pytest.fixture
def node(cluster: Cluster) -> Node:
    return cluster.add_node()


def shows(cluster: Cluster, name: str, value: float, view: str = "full", limit_s: float = 10, **labels: str) -> None:
    wait_for(lambda: cluster.hub.sample(name, view, **labels) == value,
             f"{name} {labels} is {cluster.hub.sample(name, view, **labels)}, wanted {value}", limit_s)


def own(node: Node, name: str, **labels: str) -> float:
    return node.agent.sample(name, **labels) or 0


def test_bounds_out_of_order_are_refused_and_the_catalogs_hold(cluster: Cluster, node: Node) -> None:
    bounds = [1000.0, 125.0, 16.0, 250.0, 32.0, 4.0, 500.0]
    with Engine(node, hello={"buckets": {"iteration_tokens": bounds}}) as engine:
        engine.wait_subscribed()
        engine.step(0, None, {"num_generation_tokens": 5, "prompt_token_stats": {"computed": 7, "total": 7}})
        engine.flush()
        shows(cluster, "vllm:iteration_tokens_total_count", 1)
        text = cluster.hub.metrics("dp")
    assert [labels["le"] for name, labels, _ in samples(text) if name == "vllm:iteration_tokens_total_bucket"] == ITERATION_BOUNDS
    assert own(node, "statsbus_agent_bounds_refused_total") >= 1
    log = node.agent.log()
    assert "iteration_tokens" in log and "bound 1 (125) is not above the one before (1000)" in log


HOSTILE = {
    "path": ("/models/a b/../tiny", "/models/a b/../tiny"),
    "quote": ('say "x"', 'say "x"'),
    "backslash": ("a\\nb\\", "a\\nb\\"),
    "newline": ("one\ntwo", "one\ntwo"),
    "exposition": ('a="1",b}', 'a="1",b}'),
    "long": ("x" * 5000, "x" * 256),
    "long_wide": ("\N{GRINNING FACE}" * 5000, "\N{GRINNING FACE}" * 64),
    "emoji": ("tiny \N{GRINNING FACE}", "tiny \N{GRINNING FACE}"),
    "invalid": (msgspec.Raw(b"\xa4a\xff\xfeb"), "a\ufffd\ufffdb"),
    "empty": ("", None),
}


def test_hostile_label_values_survive_both_formats(cluster: Cluster, node: Node) -> None:
    labels = {name: value for name, (value, _) in HOSTILE.items()}
    with Engine(node, [source(0, model_name=HOSTILE["path"][0], instance_id='i"\\\n', labels=labels)]) as engine:
        engine.wait_subscribed()
        engine.step(0, scheduler(running=1), {"num_generation_tokens": 5})
        shows(cluster, "vllm:generation_tokens_total", 5, "dp")
        shows(cluster, "vllm:num_requests_running", 1, "dp")
        for view in ("full", "dp"):
            for parse, accept in ((parse_text, "text/plain"), (parse_openmetrics, OPENMETRICS)):
                families = {f.name: f for f in parse(cluster.hub.metrics(view, accept))}
                (row,) = [s for s in families["vllm:generation_tokens"].samples]
                assert row.labels["model_name"] == HOSTILE["path"][1]
                if view == "dp":
                    assert row.labels["instance_id"] == 'i"\\\n'
    # The engine's own values in every family of the agent's exposition are escaped as well.
    list(parse_text(node.agent.metrics()))
    list(parse_openmetrics(node.agent.metrics(accept=OPENMETRICS)))


def test_hostile_values_of_a_familys_own_label(cluster: Cluster, node: Node) -> None:
    families = [{"name": "test:seen_total", "type": "counter", "help": 'a "help"\nwith \\ in it', "labels": ["what", "which"]}]
    with Engine(node, hello={"families": families}) as engine:
        engine.wait_subscribed()
        engine.observe(*[["test:seen_total", {"what": value, "which": name}, 2] for name, (value, _) in HOSTILE.items()])
        engine.flush()
        for which, (_, shown) in HOSTILE.items():
            shows(cluster, "test:seen_total", 2, "full", which=which)
        for parse, accept in ((parse_text, "text/plain"), (parse_openmetrics, OPENMETRICS)):
            (family,) = [f for f in parse(cluster.hub.metrics("full", accept)) if f.name == "test:seen"]
            assert family.documentation == 'a "help"\nwith \\ in it'
            assert {s.labels["which"]: s.labels.get("what") for s in family.samples} == {n: v for n, (_, v) in HOSTILE.items()}
    assert own(node, "statsbus_agent_texts_replaced_total") >= 1
    assert own(node, "statsbus_agent_texts_cut_total") >= 2


def test_the_last_snapshot_before_silence_gets_through(cluster: Cluster, node: Node) -> None:
    with Engine(node, [source(0), source(1)]) as engine:
        engine.wait_subscribed()
        engine.step(0, scheduler(106, 15, 0.904))
        shows(cluster, "vllm:num_requests_running", 106, "dp", dp_rank="0")
        shows(cluster, "vllm:kv_cache_usage_perc", 0.904, "dp", dp_rank="0")
        engine.step(0, scheduler())
        engine.step(1, scheduler(4, 1, 0.25))
        # One period (1 s), one drain, one scrape; nothing more is sent.
        shows(cluster, "vllm:num_requests_running", 4, "dp", 2.5, dp_rank="1")
        shows(cluster, "vllm:num_requests_running", 0, "dp", 2.5, dp_rank="0")
        shows(cluster, "vllm:num_requests_waiting", 0, "dp", 1, dp_rank="0")
        shows(cluster, "vllm:kv_cache_usage_perc", 0, "dp", 1, dp_rank="0")
        shows(cluster, "vllm:num_requests_running", 4)
        shows(cluster, "vllm:kv_cache_usage_perc", 0.125)


@pytest.mark.parametrize("bad", [-3, "3", float("nan"), float("inf"), [1], {"a": 1}], ids=str)
def test_a_bad_field_costs_its_own_samples_only(cluster: Cluster, node: Node, bad: Any) -> None:
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, scheduler(running=2), {"prompt_token_stats": {"total": bad}, "num_generation_tokens": 5,
                                              "time_to_first_tokens_iter": [0.5, bad, 0.25]})
        engine.step(0, None, {"prompt_token_stats": {"total": 4}, "num_generation_tokens": 1})
        engine.flush()
        shows(cluster, "vllm:generation_tokens_total", 6)
        shows(cluster, "vllm:num_requests_running", 2)
        shows(cluster, "vllm:prompt_tokens_total", 4)
        shows(cluster, "vllm:time_to_first_token_seconds_count", 2)
        shows(cluster, "vllm:time_to_first_token_seconds_sum", 0.75)
    assert own(node, "statsbus_agent_samples_refused_total", family="vllm:prompt_tokens_total") == 1
    assert own(node, "statsbus_agent_samples_refused_total", family="vllm:time_to_first_token_seconds") == 1


def test_finish_reasons_that_nobody_listed_become_label_values(cluster: Cluster, node: Node) -> None:
    reasons = ["stop", "repetition", "error", "quota_exceeded", "stop"]
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, None, {"finished_requests": [{"finish_reason": reason, "e2e_latency": 0.1} for reason in reasons]})
        engine.flush()
        shows(cluster, "vllm:request_success_total", len(reasons))
        shows(cluster, "vllm:e2e_request_latency_seconds_count", len(reasons))
        rows = {labels["finished_reason"]: value for name, labels, value in samples(cluster.hub.metrics())
                if name == "vllm:request_success_total"}
    assert rows == {"stop": 2, "length": 0, "abort": 0, "error": 1, "repetition": 1, "quota_exceeded": 1}


def test_names_that_collide_are_refused_and_the_rest_stays_valid(cluster: Cluster, node: Node) -> None:
    families = [
        {"name": "x", "type": "histogram", "help": "first", "labels": [], "buckets": [1.0, 2.0]},
        {"name": "x_count", "type": "gauge", "help": "clashes with x", "labels": []},
        {"name": "requests_total", "type": "counter", "help": "has its suffix already", "labels": []},
        {"name": "requests", "type": "gauge", "help": "the name of requests_total in OpenMetrics", "labels": []},
        {"name": "vllm:e2e_request_latency_seconds_count", "type": "gauge", "help": "clashes with the catalog", "labels": []},
    ]
    with Engine(node, hello={"families": families}) as engine:
        engine.wait_subscribed()
        engine.observe(["x", None, [0.5, 1.5]], ["x_count", None, 77], ["requests_total", None, 3], ["requests", None, 88],
                       ["vllm:e2e_request_latency_seconds_count", None, 99], ["vllm:num_preemptions_total", None, 4])
        engine.step(0, None, {"num_generation_tokens": 5, "prompt_token_stats": {"computed": 7}})
        engine.flush()
        shows(cluster, "requests_total", 3)
        shows(cluster, "x_count", 2)
        shows(cluster, "x_sum", 2)
        shows(cluster, "vllm:num_preemptions_total", 4)
        shows(cluster, "vllm:iteration_tokens_total_sum", 12)
        for view in ("full", "dp"):
            text = {f.name: f.type for f in parse_text(cluster.hub.metrics(view))}
            openmetrics = {f.name: f.type for f in parse_openmetrics(cluster.hub.metrics(view, OPENMETRICS))}
            for types in (text, openmetrics):
                assert types["x"] == "histogram" and types["requests"] == "counter"
                assert types["vllm:iteration_tokens_total"] == "histogram"
            assert not [v for _, _, v in samples(cluster.hub.metrics(view)) if v in (77, 88, 99)]
    assert own(node, "statsbus_agent_families_refused_total") == 3


def test_two_api_servers_add_up_and_show_one_gauge(cluster: Cluster) -> None:
    node = cluster.add_node(flags=["--source-timeout", "2s"])
    with Engine(node) as first, Engine(node) as second:
        for engine in (first, second):
            engine.wait_subscribed()
        first.step(0, scheduler(running=5), {"num_generation_tokens": 10}, at=100.0)
        second.step(0, scheduler(running=7), {"num_generation_tokens": 20}, at=101.0)
        first.step(0, scheduler(running=6), {"num_generation_tokens": 1}, at=100.5)  # late: its gauges are old
        for engine in (first, second):
            engine.flush()
        shows(cluster, "vllm:generation_tokens_total", 31)
        shows(cluster, "vllm:num_requests_running", 7)
        shows(cluster, "vllm:num_requests_running", 7, "dp")
        second.close()  # and it is silent for longer than the timeout, while the first beats on
        wait_for(lambda: own(node, "statsbus_agent_publishers_live") == 1, "the second is given up", 8)
        assert cluster.hub.sample("vllm:num_requests_running") == 7
        first.step(0, scheduler(running=2), at=102.0)
        shows(cluster, "vllm:num_requests_running", 2)
        shows(cluster, "vllm:generation_tokens_total", 31)


def test_an_api_server_without_snapshots_hides_nothing(cluster: Cluster) -> None:
    """On another node, and so through another agent: it has a part of the iteration stats, and never the scheduler's."""
    nodes = [cluster.add_node("node-a"), cluster.add_node("node-b")]
    with Engine(nodes[0], [source(0, pod_ip="10.0.0.1")]) as first, Engine(nodes[1], [source(0, pod_ip="10.0.0.2")]) as second:
        for engine in (first, second):
            engine.wait_subscribed()
        first.step(0, scheduler(running=42), {"num_generation_tokens": 1})
        first.flush()
        shows(cluster, "vllm:num_requests_running", 42)
        for tokens in (10, 20, 30):  # each makes a frame of the second agent, younger than the first's last one
            second.event(None, sleep={"sleep": 0, "level": 0})
            second.step(0, None, {"num_generation_tokens": tokens})
            second.flush()
            shows(cluster, "vllm:generation_tokens_total", 1 + sum(range(10, tokens + 1, 10)))
            assert cluster.hub.sample("vllm:num_requests_running") == 42


def test_order_is_judged_per_source(cluster: Cluster, node: Node) -> None:
    with Engine(node, [source(0), source(1)]) as engine:
        engine.wait_subscribed()
        engine.step(0, scheduler(running=10), {"num_generation_tokens": 1}, at=1000.0)
        engine.step(1, scheduler(running=20), {"num_generation_tokens": 2}, at=998.0)
        engine.step(1, scheduler(running=21), {"num_generation_tokens": 2}, at=999.0)
        engine.step(0, scheduler(running=9), {"num_generation_tokens": 1}, at=999.5)
        engine.flush()
        shows(cluster, "vllm:num_requests_running", 10, "dp", dp_rank="0")
        shows(cluster, "vllm:num_requests_running", 21, "dp", dp_rank="1")
        shows(cluster, "vllm:generation_tokens_total", 2, "dp", dp_rank="0")
        shows(cluster, "vllm:generation_tokens_total", 4, "dp", dp_rank="1")


def test_an_agent_that_comes_late_counts_the_ring_and_reports_the_rest(cluster: Cluster) -> None:
    node = cluster.plan_node()
    with Engine(node, keep=50) as engine:
        for _ in range(80):
            engine.step(0, scheduler(running=1), {"num_generation_tokens": 1})
        engine.drain()
        node.agent.start().wait_ready()
        engine.flush()
        shows(cluster, "vllm:generation_tokens_total", 50)
        assert own(node, "statsbus_agent_records_lost_total") == 30
        for _ in range(25):
            engine.step(0, None, {"num_generation_tokens": 1})
        engine.flush()
        shows(cluster, "vllm:generation_tokens_total", 75)
        assert own(node, "statsbus_agent_records_lost_total") == 30


def test_records_lost_on_the_way_are_asked_for(cluster: Cluster, node: Node) -> None:
    with Engine(node) as engine:
        engine.wait_subscribed()
        step = ["step", 0, 1.0, {"iteration_stats": {"num_generation_tokens": 1}}]
        engine.records([step] * 10)
        engine.records([step] * 7, is_lost=True)
        engine.records([step] * 10)
        engine.records([step] * 3, is_lost=True)  # at the end: only a beat tells
        engine.flush()
        shows(cluster, "vllm:generation_tokens_total", 30)
        assert own(node, "statsbus_agent_records_lost_total") == 0
        assert (11, 17) in engine.asked


def test_events_without_an_engine_count_in_the_front_ends_row(cluster: Cluster, node: Node) -> None:
    with Engine(node, [source(0), source(1)]) as engine:
        engine.wait_subscribed()
        engine.event(None, admission={"reason": "max_num_queued_reqs"})
        engine.event(None, sleep={"sleep": 1, "level": 2})
        engine.flush()
        shows(cluster, "vllm:admission_rejections_total", 1, reason="max_num_queued_reqs")
        (row,) = [labels for name, labels, value in samples(cluster.hub.metrics("dp"))
                  if name == "vllm:admission_rejections_total" and labels["reason"] == "max_num_queued_reqs"]
        assert "dp_rank" not in row and row["service_name"] == "chat"
        shows(cluster, "vllm:engine_sleep_state", 2, sleep_state="discard_all")
        shows(cluster, "vllm:engine_sleep_state", 0, sleep_state="awake")


def test_a_new_incarnation_goes_on_in_views_that_do_not_print_it(cluster: Cluster, node: Node) -> None:
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, scheduler(running=3), {"num_generation_tokens": 10})
        engine.flush()
        engine.bye()
        engine.step(0, scheduler(running=3), {"num_generation_tokens": 1})  # under way as it left
        shows(cluster, "vllm:generation_tokens_total", 11)
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") is None, "the gauge is gone")
    with Engine(node, [source(0, instance_id="i-2")]) as engine:
        engine.wait_subscribed()
        engine.step(0, scheduler(running=8), {"num_generation_tokens": 5})
        shows(cluster, "vllm:num_requests_running", 8)
        shows(cluster, "vllm:generation_tokens_total", 16)
        shows(cluster, "vllm:generation_tokens_total", 11, "dp", instance_id="i-1")
        shows(cluster, "vllm:generation_tokens_total", 5, "dp", instance_id="i-2")


def test_unlike_bounds_are_merged_where_they_agree(cluster: Cluster, node: Node) -> None:
    def engine_with(bounds: list[float], job: str) -> Engine:
        return Engine(node, [source(0, job_name=job)], hello={"buckets": {"request_latency": bounds}})

    def finish(engine: Engine, latencies: list[float]) -> None:
        engine.wait_subscribed()
        engine.step(0, None, {"finished_requests": [{"finish_reason": "stop", "e2e_latency": v} for v in latencies]})
        engine.flush()

    with engine_with([0.5, 1.0], "a") as a, engine_with([0.5], "b") as b:
        finish(a, [0.25] * 10 + [0.75] * 2 + [2.0] * 8)
        finish(b, [0.25] * 5 + [2.0] * 4)
        shows(cluster, "vllm:e2e_request_latency_seconds_count", 29)
        buckets = {labels["le"]: value for name, labels, value in samples(cluster.hub.metrics())
                   if name == "vllm:e2e_request_latency_seconds_bucket"}
        shows(cluster, "vllm:e2e_request_latency_seconds_sum", 2.5 + 1.5 + 16 + 1.25 + 8)
    assert buckets == {"0.5": 15, "+Inf": 29}


def test_absent_is_not_zero_and_zero_is_not_absent(cluster: Cluster, node: Node) -> None:
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, {"num_running_reqs": 0, "kv_cache_usage": None}, {"num_generation_tokens": 5})
        engine.flush()
        shows(cluster, "vllm:generation_tokens_total", 5)
        shows(cluster, "vllm:num_requests_running", 0)
        assert cluster.hub.sample("vllm:kv_cache_usage_perc") is None
        assert cluster.hub.sample("vllm:num_requests_waiting") is None
