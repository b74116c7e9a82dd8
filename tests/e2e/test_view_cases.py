"""Cases from public reports, told through the real agent, with their answer in every view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemons import OPENMETRICS, Cluster, Node, sample, samples, wait_for
from engine import Engine, source

pytestmark = pytest.mark.sanitized

VIEWS = ("full", "instance", "role", "dp", "node", "pod", "stage", "replica")
WITHOUT_INSTANCE = ("full", "role", "node", "pod", "stage", "replica")
CATALOG_BOUNDS = ["1.0", "8.0", "16.0", "32.0", "64.0", "128.0", "256.0", "512.0", "1024.0", "2048.0", "4096.0", "8192.0", "16384.0", "+Inf"]
PLACE = {"stage": "0", "replica": "0", "pod_ip": "10.0.0.1"}


def scheduler(running: int = 0, kv: float = 0.0) -> dict[str, Any]:
    return {"num_running_reqs": running, "num_waiting_reqs": 0, "num_skipped_waiting_reqs": 0, "kv_cache_usage": kv}


@pytest.fixture
def node(cluster: Cluster) -> Node:
    return cluster.add_node()


def in_every_view(cluster: Cluster, name: str, value: float | None, views: tuple[str, ...] = VIEWS, **labels: str) -> None:
    for view in views:
        wait_for(lambda view=view: cluster.hub.sample(name, view, **labels) == value,  # type: ignore[misc]
                 f"{name} {labels} in {view} is {cluster.hub.sample(name, view, **labels)}, wanted {value}")


def buckets(cluster: Cluster, view: str, name: str) -> dict[str, float]:
    return {labels["le"]: value for found, labels, value in samples(cluster.hub.metrics(view)) if found == name + "_bucket"}


def assert_valid(cluster: Cluster) -> None:
    """Both parsers take every view, no line is there twice, and no histogram falls."""
    for view in VIEWS:
        for parse, accept in ((parse_text, "text/plain"), (parse_openmetrics, OPENMETRICS)):
            seen = set()
            for family in parse(cluster.hub.metrics(view, accept)):
                for s in family.samples:
                    key = (s.name, *sorted(s.labels.items()))
                    assert key not in seen, (view, key)
                    seen.add(key)


def test_1_bounds_out_of_order(cluster: Cluster, node: Node) -> None:
    with Engine(node, [source(0, **PLACE)], hello={"buckets": {"iteration_tokens": [1000.0, 125.0, 16.0, 250.0, 32.0, 4.0, 500.0]}}) as engine:
        engine.wait_subscribed()
        engine.step(0, None, {"num_generation_tokens": 5, "prompt_token_stats": {"computed": 7, "total": 7}})
        engine.flush()
        in_every_view(cluster, "vllm:iteration_tokens_total_count", 1)
        for view in VIEWS:
            assert list(buckets(cluster, view, "vllm:iteration_tokens_total")) == CATALOG_BOUNDS, view
    assert_valid(cluster)


def test_2_unlike_bounds(cluster: Cluster, node: Node) -> None:
    """A {0.5: 10, 1: 12, +Inf: 20} and B {0.5: 5, +Inf: 9}: 15 and 29 where one row has both."""
    def finish(engine: Engine, latencies: list[float]) -> None:
        engine.wait_subscribed()
        engine.step(0, None, {"finished_requests": [{"finish_reason": "stop", "queued_time": v} for v in latencies]})
        engine.flush()

    name = "vllm:request_queue_time_seconds"
    with (Engine(node, [source(0, job_name="a", instance_id="i-a", **PLACE)], hello={"buckets": {"request_latency": [0.5, 1.0]}}) as a,
          Engine(node, [source(0, job_name="b", instance_id="i-b", **PLACE)], hello={"buckets": {"request_latency": [0.5]}}) as b):
        finish(a, [0.25] * 10 + [0.75] * 2 + [2.0] * 8)
        finish(b, [0.25] * 5 + [2.0] * 4)
        in_every_view(cluster, name + "_count", 29)
        in_every_view(cluster, name + "_sum", 2.5 + 1.5 + 16 + 1.25 + 8)
        for view in WITHOUT_INSTANCE:
            assert buckets(cluster, view, name) == {"0.5": 15, "+Inf": 29}, view
            # Rank 14.5 of 15 in the first bucket; above, the last bound there is.
            assert cluster.hub.sample(name + "_p50", view) == pytest.approx(0.5 * 14.5 / 15)
            assert cluster.hub.sample(name + "_p99", view) == 0.5
        for view in ("instance", "dp"):
            for instance, expected in (("i-a", {"0.5": 10, "1.0": 12, "+Inf": 20}), ("i-b", {"0.5": 5, "+Inf": 9})):
                got = {labels["le"]: value for found, labels, value in samples(cluster.hub.metrics(view))
                       if found == name + "_bucket" and labels["instance_id"] == instance}
                assert got == expected, view
        wait_for(lambda: cluster.hub.sample("statsbus_hub_bounds_conflicts_total", family=name) == 1, "the conflict is counted")
    assert_valid(cluster)


def test_4_nothing_observed_yet(cluster: Cluster, node: Node) -> None:
    name = "vllm:time_to_first_token_seconds"
    with Engine(node, [source(0, **PLACE)]) as engine:
        engine.wait_subscribed()
        engine.step(0, {**scheduler(), "prefix_cache_stats": {"queries": 0, "hits": 0, "requests": 0}}, {"num_generation_tokens": 1})
        engine.flush()
        in_every_view(cluster, name + "_count", 0)
        in_every_view(cluster, "vllm:prefix_cache_queries_total", 0)
        for view in VIEWS:
            text = cluster.hub.metrics(view)
            assert {n for n, _, _ in samples(text) if n.endswith(("_p50", "_p95", "_p99", "_mean", "_rate"))} == set(), view
            assert "NaN" not in text
        engine.step(0, None, {"time_to_first_tokens_iter": [0.003]})
        engine.flush()
        # One value in the bucket from 0.001 to 0.005: rank 0.5 of 1.
        in_every_view(cluster, name + "_count", 1)
        for view in VIEWS:
            assert cluster.hub.sample(name + "_p50", view) == pytest.approx(0.003)
            assert cluster.hub.sample(name + "_mean", view) == pytest.approx(0.003)
            assert cluster.hub.sample("vllm:e2e_request_latency_seconds_p50", view) is None


def test_6_a_bad_field(cluster: Cluster, node: Node) -> None:
    with Engine(node, [source(0, **PLACE)]) as engine:
        engine.wait_subscribed()
        engine.step(0, scheduler(running=2), {"prompt_token_stats": {"total": -3}, "num_generation_tokens": 5})
        engine.flush()
        in_every_view(cluster, "vllm:generation_tokens_total", 5)
        in_every_view(cluster, "vllm:prompt_tokens_total", 0)
        in_every_view(cluster, "vllm:num_requests_running", 2)
        wait_for(lambda: cluster.hub.sample("statsbus_source_refused_samples_total", job_name="engine-0") == 1,
                 f"the source's refused samples are {cluster.hub.sample('statsbus_source_refused_samples_total')}")


def test_7_late_frame_and_index_reuse(cluster: Cluster, node: Node) -> None:
    with Engine(node, [source(0, **PLACE)]) as engine:
        engine.wait_subscribed()
        engine.step(0, scheduler(running=3), {"num_generation_tokens": 10})
        engine.flush()
        in_every_view(cluster, "vllm:num_requests_running", 3)
        engine.bye()
        engine.step(0, scheduler(running=3), {"num_generation_tokens": 1})  # under way as it left
        in_every_view(cluster, "vllm:generation_tokens_total", 11)
        in_every_view(cluster, "vllm:num_requests_running", None)
        in_every_view(cluster, "statsbus_source_up", 0, ("full",))
    with Engine(node, [source(0, instance_id="i-2", **PLACE)]) as engine:
        engine.wait_subscribed()
        engine.step(0, scheduler(running=8), {"num_generation_tokens": 5})
        engine.flush()
        in_every_view(cluster, "vllm:num_requests_running", 8)
        in_every_view(cluster, "vllm:num_requests_running_max", 8)
        in_every_view(cluster, "vllm:generation_tokens_total", 16)
        for view in WITHOUT_INSTANCE:
            assert [v for n, _, v in samples(cluster.hub.metrics(view)) if n == "vllm:generation_tokens_total"] == [16], view
        for view in ("instance", "dp"):
            assert cluster.hub.sample("vllm:generation_tokens_total", view, instance_id="i-1") == 11
            assert cluster.hub.sample("vllm:generation_tokens_total", view, instance_id="i-2") == 5
        assert cluster.hub.sample("statsbus_source_up") == 1
        assert cluster.hub.sample("statsbus_source_incarnations_total") == 2
        assert (cluster.hub.sample("statsbus_source_conflicts_total") or 0) == 0


def test_8_finish_reasons_that_nobody_listed(cluster: Cluster, node: Node) -> None:
    reasons = ["stop", "repetition", "error", "quota_exceeded", "stop"]
    with Engine(node, [source(0, **PLACE), source(1, **PLACE)]) as engine:
        engine.wait_subscribed()
        for rank in (0, 1):
            engine.step(rank, None, {"finished_requests": [{"finish_reason": reason, "e2e_latency": 0.1} for reason in reasons]})
        engine.flush()
        in_every_view(cluster, "vllm:request_success_total", 10)
        for reason, n in {"stop": 4, "length": 0, "abort": 0, "error": 2, "repetition": 2, "quota_exceeded": 2}.items():
            in_every_view(cluster, "vllm:request_success_total", n, finished_reason=reason)
    assert_valid(cluster)


def test_10_two_api_servers_one_engine(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster()
    node = cluster.add_node(flags=["--source-timeout", "2s"])
    with Engine(node, [source(0, **PLACE)]) as first, Engine(node, [source(0, **PLACE)]) as second:
        for engine in (first, second):
            engine.wait_subscribed()
        first.step(0, scheduler(running=5, kv=0.5), {"num_generation_tokens": 10}, at=100.0)
        second.step(0, scheduler(running=7, kv=0.75), {"num_generation_tokens": 20}, at=101.0)
        for engine in (first, second):
            engine.flush()
        in_every_view(cluster, "vllm:generation_tokens_total", 30)
        for name, value in (("num_requests_running", 7), ("num_requests_running_max", 7), ("kv_cache_usage_perc", 0.75), ("kv_cache_usage_perc_max", 0.75)):
            in_every_view(cluster, "vllm:" + name, value)
        second.close()
        wait_for(lambda: node.agent.sample("statsbus_agent_publishers_live") == 1, "the second is given up", 8)
        in_every_view(cluster, "vllm:num_requests_running", 7)
        in_every_view(cluster, "statsbus_source_up", 1, ("full",))
        assert (cluster.hub.sample("statsbus_source_conflicts_total") or 0) == 0


# ---- losses and refusals are told a source

def test_records_that_were_lost_are_a_row_of_the_front_end(cluster: Cluster) -> None:
    node = cluster.plan_node()
    with Engine(node, [source(0, **PLACE)], keep=50) as engine:
        for _ in range(80):
            engine.step(0, scheduler(running=1), {"num_generation_tokens": 1})
        engine.drain()
        node.agent.start().wait_ready()
        engine.flush()
        wait_for(lambda: cluster.hub.sample("statsbus_source_lost_records_total") == 30,
                 f"lost records are {cluster.hub.sample('statsbus_source_lost_records_total')}")
        (labels,) = [have for name, have, _ in samples(cluster.hub.metrics()) if name == "statsbus_source_lost_records_total"]
        assert "dp_rank" not in labels and labels["job_name"] == "engine-0"


def test_an_own_label_that_a_view_prints_itself_is_exported(cluster: Cluster, node: Node) -> None:
    """Case 9's kind: labels that collide, in each view its own."""
    families = [{"name": "e:moved_bytes_total", "type": "counter", "help": "x", "labels": ["node", "role", "stage", "instance"]}]
    own = {"node": "n", "role": "r", "stage": "s", "instance": "i"}
    with Engine(node, [source(0, **PLACE)], hello={"families": families}) as engine:
        engine.wait_subscribed()
        engine.observe(["e:moved_bytes_total", own, 2])
        engine.flush()
        in_every_view(cluster, "e:moved_bytes_total", 2)
        for view, printed in (("full", ()), ("role", ("role",)), ("node", ("node", "role")), ("stage", ("stage",)), ("replica", ("stage",))):
            ((labels, _),) = [(have, value) for name, have, value in samples(cluster.hub.metrics(view)) if name == "e:moved_bytes_total"]
            for name, value in own.items():
                is_renamed = name in printed or name == "instance"
                assert labels.get("exported_" + name if is_renamed else name) == value, (view, labels)
    assert_valid(cluster)


def test_the_agent_takes_a_catalog_of_ones_own(new_cluster: Callable[..., Cluster], tmp_path: Any) -> None:
    (tmp_path / "mine.yaml").write_text("""\
version: 1
families:
  e:deepest: {type: gauge, semantic: occupancy_metric, help: Deepest, from: s.num_running_reqs}
  vllm:generation_tokens_total: {type: counter, semantic: counter, help: Twice as many, from: it.num_generation_tokens + it.num_generation_tokens}
""")
    cluster = new_cluster(hub_flags=["--catalog", str(tmp_path)])
    node = cluster.add_node(flags=["--catalog", str(tmp_path)])
    with Engine(node, [source(0, **PLACE), source(1, **PLACE)]) as engine:
        engine.wait_subscribed()
        engine.step(0, scheduler(running=3), {"num_generation_tokens": 5})
        engine.step(1, scheduler(running=4), {"num_generation_tokens": 5})
        engine.flush()
        for view in WITHOUT_INSTANCE:
            wait_for(lambda view=view: sample(cluster.hub.metrics(view), "e:deepest") == 4, f"the deepest of both in {view}")  # type: ignore[misc]
        in_every_view(cluster, "vllm:generation_tokens_total", 20)
    assert "# HELP vllm:generation_tokens_total Twice as many" in cluster.hub.metrics()
