"""Rows and sources that come and go: linger, FORGET, closed lineages, and what is said of each source."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from daemons import Cluster, samples, wait_for
from model.model import Family, Series
from players import TOKENS, Player, gone, names, tokens
from wire_agent import RefusedError

pytestmark = pytest.mark.sanitized

LINGER = ["--linger", "1s"]
KEEP, GOES = ("full", "role", "stage"), ("instance", "dp", "node", "pod", "replica")


def test_a_row_without_a_live_member_lingers_goes_and_comes_back(new_cluster: Callable[..., Cluster], players: list[Player]) -> None:
    cluster = new_cluster(hub_flags=LINGER)
    player = Player(cluster)
    players.append(player)
    life = player.join(stage="1", pod_ip="10.0.0.1")
    player.end(life)
    for view in (*KEEP, *GOES):  # within the second
        assert tokens(cluster, view) == 10, view
        assert cluster.hub.sample("vllm:num_requests_running", view) is None
    for view in GOES:
        gone(cluster, player, view=view)
        assert not names(cluster.hub.metrics(view))
    for view in KEEP:
        assert tokens(cluster, view) == 10, view
        assert cluster.hub.sample("vllm:prefix_cache_hit_rate", view) == 0.25
        assert cluster.hub.sample("vllm:time_to_first_token_seconds_p50", view) == 0.5
    player.say(life, {TOKENS: [12.0]})
    for view in (*KEEP, *GOES):
        assert tokens(cluster, view) == 12, view
        assert cluster.hub.sample("vllm:num_requests_running", view) == 2


def test_what_was_forgotten_stays_in_rows_that_stay(new_cluster: Callable[..., Cluster], players: list[Player]) -> None:
    cluster = new_cluster(hub_flags=LINGER)
    player = Player(cluster)
    players.append(player)
    first, other = player.join("a", instance_id="i-1"), player.join("b", instance_id="i-2")
    player.end(first)
    player.forget(first)
    assert cluster.hub.sample("statsbus_hub_contributions") == 1
    for view in (*KEEP, "node", "pod", "replica"):
        assert tokens(cluster, view) == 20, view
        assert cluster.hub.sample("vllm:time_to_first_token_seconds_count", view) == 4, view
        assert cluster.hub.sample("vllm:num_requests_running", view) == 2, view
    gone(cluster, player, view="instance", instance_id="i-1")
    gone(cluster, player, view="dp", instance_id="i-1")
    assert tokens(cluster, "full") == 20
    again = player.join("a", instance_id="i-1")
    assert tokens(cluster, "full") == 30 and tokens(cluster, "node") == 30
    assert tokens(cluster, "instance", instance_id="i-1") in (10, 20)  # by whether the row that wasn't shown was swept away yet
    for life in (again, other):
        player.end(life)
        player.forget(life)
    assert tokens(cluster, "full") == 30
    for view in GOES:
        gone(cluster, player, view=view)
    for view in KEEP:
        assert tokens(cluster, view) == 30, view
    player.join("c")
    assert tokens(cluster, "full") == 40 and tokens(cluster, "role") == 40
    assert tokens(cluster, "node") in (10, 40)


def test_a_row_that_comes_back_has_all_of_its_counters_or_is_a_new_one(new_cluster: Callable[..., Cluster], players: list[Player]) -> None:
    """The last member of a row that isn't shown any more is forgotten; what another one left there must not be all that is left."""
    cluster = new_cluster(hub_flags=LINGER)
    player = Player(cluster)
    players.append(player)
    first, last = player.join("a"), player.join("b")
    player.end(first)
    player.forget(first)
    player.end(last)
    gone(cluster, player, view="node")
    player.forget(last)
    player.join("c")
    for view in ("node", "pod", "replica"):
        assert tokens(cluster, view) in (10, 30), view
    assert tokens(cluster, "full") == 30


def test_sums_do_not_fall_whatever_the_order_of_adding(new_cluster: Callable[..., Cluster], players: list[Player]) -> None:
    """Numbers that are not whole, folded and forgotten one by one in an order of their own."""
    cluster = new_cluster(hub_flags=LINGER)
    player = Player(cluster)
    players.append(player)
    seconds = Series(Family("e:busy_seconds_total", "counter", "counter"))
    values = [0.1 * 3**i for i in range(-20, 20)]
    lives = []
    for i, value in enumerate(values):
        lives.append(player.define(f"j{i}"))
        player.say(lives[-1], {seconds: [value]}, {})
    total = cluster.hub.sample("e:busy_seconds_total", "full")
    assert total == math.fsum(values)
    for life in lives[::2] + lives[1::2]:
        player.end(life)
        player.forget(life)
        assert cluster.hub.sample("e:busy_seconds_total", "full") == total
        assert cluster.hub.sample("e:busy_seconds_total", "role") == total


def test_forget_is_taken_whole_or_not_at_all(cluster: Cluster, players: list[Player]) -> None:
    """Of a live one, too; of one that isn't known, with or without others, the session ends and nothing has changed."""
    player = Player(cluster)
    players.append(player)
    life, other = player.join("a"), player.join("b")
    number = player.wire.session.contributions[other.epoch]
    player.forget(life)
    assert tokens(cluster, "full") == 20 and tokens(cluster, "dp") == 20
    assert cluster.hub.sample("vllm:num_requests_running") == 2
    for message in (["FORGET", [number, 99]], ["FORGET", [98]], ["FORGET", "all"], ["FORGET"], ["FORGET", [-1]]):
        player.wire.send(*message)
        with pytest.raises(RefusedError):
            player.wire.receive("nothing")
        assert cluster.hub.sample("statsbus_hub_contributions") == 1, message
        player.wire.connect()
        player.wire.define(other)
        number = player.wire.session.contributions[other.epoch]
    player.say(other)
    assert tokens(cluster, "full") == 20
    player.wire.send("FORGET", [number, number])  # twice in one message
    player.wire.send("FORGET", [])
    player.wire.send("FRAME")
    wait_for(lambda: cluster.hub.sample("statsbus_hub_contributions") in (0, 1), "it is decided")
    assert tokens(cluster, "full") == 20


def test_a_lineage_that_was_silent_for_long_is_closed(new_cluster: Callable[..., Cluster], players: list[Player]) -> None:
    cluster = new_cluster(hub_flags=["--agent-timeout", "2s", "--closed-after", "4s", "--linger", "1s"])
    silent, other = Player(cluster, "silent"), Player(cluster, "other")
    players += [silent, other]
    silent.join("a")
    other.join("b")

    def is_closed() -> bool:
        other.wire.beat()
        return cluster.hub.sample("statsbus_hub_contributions") == 1

    wait_for(is_closed, "the silent lineage's contribution was retired")
    assert tokens(cluster, "full") == 20 and tokens(cluster, "role") == 20
    silent.wire.generation = 7
    welcome = silent.wire.connect()
    assert welcome[3] > 7  # so that it begins a new lineage
    assert tokens(cluster, "full") == 20
    assert other.wire.connect()[3] <= other.wire.generation


# ---- sources

def of_source(cluster: Cluster, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
    return [(have, value) for found, have, value in samples(cluster.hub.metrics("full"))
            if found == "statsbus_source_" + name and all(have.get(k) == v for k, v in labels.items())]


def test_a_source_has_one_row_with_its_life(new_cluster: Callable[..., Cluster], players: list[Player]) -> None:
    cluster = new_cluster(hub_flags=["--linger", "1s", "--agent-timeout", "3s"])
    player = Player(cluster)
    players.append(player)
    key = {"service_name": "chat", "job_name": "a", "dp_rank": "0", "stage": "1", "replica": "2", "model_name": "tiny"}
    first = player.join("a", stage="1", replica="2", instance_id="i-1")
    player.join("front", "front-end")
    assert of_source(cluster, "up") == [(key, 1)]
    assert of_source(cluster, "incarnations_total") == [(key, 1)]
    assert of_source(cluster, "conflicts_total") in ([], [(key, 0)])
    ((labels, age),) = of_source(cluster, "last_seen_seconds")
    assert labels == key and 0 <= age < 2

    second = player.join("a", stage="1", replica="2", instance_id="i-2", model_name="large")
    now = {**key, "model_name": "large"}
    assert of_source(cluster, "incarnations_total") == [(now, 2)]
    assert of_source(cluster, "conflicts_total") == [(now, 1)]  # both live
    player.end(first)
    assert of_source(cluster, "up") == [(now, 1)]
    player.end(second)
    assert of_source(cluster, "up") == [(now, 0)]

    def is_gone() -> bool:
        player.wire.beat()
        return not of_source(cluster, "up")

    wait_for(is_gone, "the ended source went after the linger")
    assert not of_source(cluster, "up")
    for view in ("role", "dp", "instance"):
        assert "statsbus_source_" not in cluster.hub.metrics(view)


def test_a_silent_agents_sources_are_down_and_stay(new_cluster: Callable[..., Cluster], players: list[Player]) -> None:
    cluster = new_cluster(hub_flags=["--linger", "1s", "--agent-timeout", "2s"])
    player = Player(cluster)
    players.append(player)
    life = player.join("a")
    wait_for(lambda: [value for _, value in of_source(cluster, "up")] == [0], "the source is stale")
    ((_, age),) = of_source(cluster, "last_seen_seconds")
    assert 1.5 <= age < 10
    gone(cluster)
    assert [value for _, value in of_source(cluster, "up")] == [0]  # a stale source is an alarm: it doesn't go by itself
    player.wire.connect()
    player.wire.define(life)
    player.say(life)
    assert [value for _, value in of_source(cluster, "up")] == [1] and tokens(cluster, "dp") == 10


def test_a_source_that_moves_between_agents_is_one(cluster: Cluster, players: list[Player]) -> None:
    players += [Player(cluster, "one"), Player(cluster, "two")]
    players[0].join("a", instance_id="i-1")
    players[1].join("a", instance_id="i-1")
    ((_, up),) = of_source(cluster, "up")
    ((_, incarnations),) = of_source(cluster, "incarnations_total")
    assert (up, incarnations) == (1, 1)
    assert sum(value for _, value in of_source(cluster, "conflicts_total")) == 0
    assert cluster.hub.sample("vllm:num_requests_running", "full") == 2  # never a sum of two
    assert tokens(cluster, "full") == 20
