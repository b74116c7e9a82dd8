"""A source that is gone shows no gauge; its counters stay."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from daemons import CAPTURES, Cluster, samples, wait_for
from engine import Engine, source

SOURCE_TIMEOUT = ["--source-timeout", "2s"]
SCHEDULER = {"num_running_reqs": 3, "num_waiting_reqs": 2, "num_skipped_waiting_reqs": 1, "kv_cache_usage": 0.5}


def gauges(cluster: Cluster, view: str, **labels: str) -> set[str]:
    """Names of engine gauges (metadata and companions too) in a view, without those derived from counters and histograms."""
    return {name for name, have, _ in samples(cluster.hub.metrics(view))
            if name.startswith("vllm:") and not name.endswith(("_total", "_bucket", "_count", "_sum"))
            and not re.search(r"(_p\d+|_mean|_rate)$", name) and all(have.get(k) == v for k, v in labels.items())}


@pytest.mark.sanitized
@pytest.mark.parametrize("way", ["silence", "bye", "closed"])
def test_a_source_that_goes_takes_its_gauges_and_leaves_its_counters(cluster: Cluster, way: str) -> None:
    node = cluster.add_node(flags=SOURCE_TIMEOUT)
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, SCHEDULER, {"num_generation_tokens": 7})
        engine.flush()
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 3, "the gauge is there")
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 7, "the counter is there")
        {"silence": engine.silence, "bye": engine.bye, "closed": engine.close}[way]()
        for view in ("full", "dp"):
            wait_for(lambda: not gauges(cluster, view), f"the gauges leave {view}: {gauges(cluster, view)}", 6)
            assert cluster.hub.sample("vllm:generation_tokens_total", view) == 7
            assert cluster.hub.sample("vllm:e2e_request_latency_seconds_count", view) == 0


def test_the_final_beat_takes_gauges_away_at_once(cluster: Cluster) -> None:
    node = cluster.add_node()  # with the usual timeout of 15 s
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, SCHEDULER)
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 3, "the gauge is there")
        engine.bye()
        wait_for(lambda: not gauges(cluster, "full"), "the gauges leave", 3)


def test_a_silent_source_comes_back_with_its_gauges(cluster: Cluster) -> None:
    node = cluster.add_node(flags=SOURCE_TIMEOUT)
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, SCHEDULER, {"num_generation_tokens": 7})
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 3, "the gauge is there")
        engine.silence()
        wait_for(lambda: not gauges(cluster, "full"), "the gauges leave", 6)
        engine.resume()
        engine.step(0, {**SCHEDULER, "num_running_reqs": 4}, {"num_generation_tokens": 1})
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 4, "the new gauge is there")
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 8, "the counter goes on")


def test_a_recording_that_ends_with_a_final_beat_leaves_counters_only(cluster: Cluster) -> None:
    node = cluster.add_node()
    cluster.player(node, CAPTURES / "plain" / "stream.bin.gz", "--bye").finish()
    wait_for(lambda: (cluster.hub.sample("vllm:generation_tokens_total") or 0) > 0, "the counters are there")
    wait_for(lambda: not gauges(cluster, "full"), "the gauges leave", 3)


def test_one_source_that_ends_leaves_the_others_gauges(cluster: Cluster) -> None:
    node = cluster.add_node()
    with Engine(node, [source(0)]) as stays, Engine(node, [source(1)]) as ends:
        for engine, index in ((stays, 0), (ends, 1)):
            engine.wait_subscribed()
            engine.step(index, SCHEDULER)
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 6, "both gauges are there")
        ends.bye()
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 3, "one is left", 3)
        assert gauges(cluster, "dp", dp_rank="1") == set()


def test_gauges_leave_when_the_agent_is_gone(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(hub_flags=["--agent-timeout", "2s"])
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, SCHEDULER, {"num_generation_tokens": 7})
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 7, "the counter is there")
        node.agent.kill()
        wait_for(lambda: not gauges(cluster, "full"), "the gauges leave", 6)
        assert cluster.hub.sample("vllm:generation_tokens_total") == 7
