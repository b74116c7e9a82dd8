"""Sliding windows of the real hub, by the clock. By the model: tests/e2e/test_window_model.py."""

from __future__ import annotations

import time
from collections.abc import Callable

from daemons import Cluster, wait_for
from model.model import Family, Series
from players import GAUGES, Player

TTFT = Series(Family("vllm:time_to_first_token_seconds", "histogram", "sla_metric"), (), (0.1, 0.5, 10.0))
WINDOW_S = 5.0


def test_a_burst_of_slow_requests_shows_within_two_seconds_and_is_gone_after_the_window(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(hub_flags=["--windows", f"{WINDOW_S:.0f}s,1m"])
    player = Player(cluster)
    made = player.define(role="decode")
    fast, slow = 100_000.0, 0.0

    def say() -> None:
        player.say(made, {TTFT: [fast, 0.0, slow, 0.0, fast * 0.05 + slow * 5]}, GAUGES)

    def quantile(name: str, **labels: str) -> float:
        return cluster.hub.sample(f"vllm:time_to_first_token_seconds{name}", **labels) or 0.0

    def shows(is_slow: bool) -> bool:
        nonlocal fast
        fast += 1
        say()
        value = quantile("_window_p99", window=f"{WINDOW_S:.0f}s")
        return 0 < value <= 0.1 if not is_slow else value > 0.5

    say()
    wait_for(lambda: shows(is_slow=False), "a window of fast requests")
    before = quantile("_p99")
    slow += 50
    said = time.monotonic()
    wait_for(lambda: shows(is_slow=True), "the burst shows", 2)
    assert quantile("_window_p99", window="1m") > 0.5
    assert abs(quantile("_p99") - before) < 0.001
    wait_for(lambda: shows(is_slow=False), "the burst is gone", WINDOW_S + 3)
    assert time.monotonic() - said >= WINDOW_S - 0.1
    assert quantile("_window_p99", window="1m") > 0.5


def test_a_hub_that_restarts_takes_no_total_for_a_window(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster()
    player = Player(cluster)
    made = player.define(role="decode")
    player.say(made, {TTFT: [1000.0, 0.0, 0.0, 0.0, 50.0]}, GAUGES)
    time_of_look = cluster.hub.sample("statsbus_hub_uptime_seconds") or 0
    wait_for(lambda: (cluster.hub.sample("statsbus_hub_uptime_seconds") or 0) > time_of_look + 2, "some rounds")
    assert cluster.hub.sample("vllm:time_to_first_token_seconds_window_p50") is None
    assert cluster.hub.sample("vllm:time_to_first_token_seconds_p50") == 0.05
    player.say(made, {TTFT: [1000.0, 0.0, 1.0, 0.0, 55.0]}, GAUGES)
    wait_for(lambda: (cluster.hub.sample("vllm:time_to_first_token_seconds_window_mean") or 0) == 5, "what came since")
