"""The agent's state file: damaged, of another time, on a full disk."""

from __future__ import annotations

import shutil

import pytest

from daemons import Cluster, Node, wait_for
from engine import Engine

FAMILY = "vllm:generation_tokens_total"


def total(cluster: Cluster) -> float:
    return cluster.hub.sample(FAMILY, "full") or 0.0


def count(node: Node, name: str) -> float:
    return node.agent.sample(f"statsbus_agent_{name}") or 0.0


def publish(engine: Engine, n: int) -> None:
    for _ in range(n):
        engine.step(iteration={"num_generation_tokens": 1})
    engine.flush()


@pytest.mark.sanitized
@pytest.mark.parametrize("content", [b"", b"not a state at all", None])
def test_a_damaged_state_is_put_aside_and_counts_nothing_twice(cluster: Cluster, content: bytes | None) -> None:
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        publish(engine, 100)
        wait_for(lambda: total(cluster) == 100, "the hub has the first hundred")
        node.agent.kill()
        whole = node.state.read_bytes()
        node.state.write_bytes(whole[: len(whole) // 2] if content is None else content)
        node.agent.start().wait_ready()
        publish(engine, 50)
        wait_for(lambda: total(cluster) >= 150, "the hub has all")
        assert total(cluster) == 150
        assert count(node, "state_damaged_total") == 1
        assert count(node, "state_losses_total") == 1
        assert node.state.with_name(node.state.name + ".damaged").exists()


@pytest.mark.sanitized
def test_a_state_that_cant_be_read_now_ends_the_start_and_stays(cluster: Cluster) -> None:
    node = cluster.plan_node()
    node.state.symlink_to(node.state.name)  # a link to itself: reading it is an error of the system, whoever asks
    assert node.agent.start().wait(15) > 0
    assert "--state" in node.agent.log()
    assert node.state.is_symlink()
    assert not node.state.with_name(node.state.name + ".damaged").exists()


@pytest.mark.sanitized
def test_a_folder_as_state_ends_the_start_and_stays(cluster: Cluster) -> None:
    node = cluster.plan_node()
    node.state.mkdir()
    (node.state / "precious").touch()
    assert node.agent.start().wait(15) == 1
    assert f"--state: {node.state} is a folder, not a file" in node.agent.log()
    assert sorted(path.name for path in node.folder.iterdir()) == ["agent.log", node.state.name]
    assert (node.state / "precious").exists()


@pytest.mark.sanitized
def test_a_state_from_the_past_counts_nothing_twice(cluster: Cluster) -> None:
    node = cluster.add_node()
    old = node.state.with_name("old")
    with Engine(node) as engine:
        engine.wait_subscribed()
        publish(engine, 100)
        wait_for(lambda: total(cluster) == 100, "the hub has the first hundred")
        shutil.copy(node.state, old)
        publish(engine, 100)
        wait_for(lambda: total(cluster) == 200, "the hub has the second hundred")
        node.agent.kill()
        shutil.copy(old, node.state)
        node.agent.start().wait_ready()
        publish(engine, 50)
        wait_for(lambda: total(cluster) >= 250, "the hub has all")
        assert total(cluster) == 250
        assert count(node, "state_losses_total") == 1
        assert count(node, "records_lost_total") == 0


@pytest.mark.sanitized
def test_a_hub_tells_of_a_rollback_that_no_engine_knows_of(cluster: Cluster) -> None:
    node = cluster.add_node()
    old = node.state.with_name("old")
    with Engine(node) as engine:
        engine.wait_subscribed()
        publish(engine, 100)
        wait_for(lambda: total(cluster) == 100, "the hub has the first hundred")
        shutil.copy(node.state, old)
        publish(engine, 100)
        wait_for(lambda: total(cluster) == 200, "the hub has the second hundred")
    node.agent.kill()
    shutil.copy(old, node.state)
    node.agent.start().wait_ready()
    wait_for(lambda: count(node, "state_losses_total") == 1, "the hub has told")
    with Engine(node) as engine:
        engine.wait_subscribed()
        publish(engine, 50)
        wait_for(lambda: total(cluster) >= 250, "the hub has all")
        assert total(cluster) == 250


@pytest.mark.sanitized
def test_counters_wait_for_a_state_that_cant_be_written_and_gauges_do_not(cluster: Cluster) -> None:
    node = cluster.add_node()
    obstacle = node.state.with_name(node.state.name + ".tmp")
    with Engine(node) as engine:
        engine.wait_subscribed()
        publish(engine, 10)
        wait_for(lambda: total(cluster) == 10, "the hub has ten")
        obstacle.mkdir()  # where the next file is to be written
        engine.step(scheduler={"num_running_reqs": 7}, iteration={"num_generation_tokens": 1})
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running", "full") == 7, "the gauge has left")
        wait_for(lambda: count(node, "commit_failures_total") >= 2, "two commits have failed")
        assert total(cluster) == 10
        obstacle.rmdir()
        engine.flush()
        wait_for(lambda: total(cluster) == 11, "the counter follows")


@pytest.mark.sanitized
def test_a_source_is_forgotten_some_time_after_its_end_and_its_counts_stay(cluster: Cluster) -> None:
    node = cluster.add_node(flags=["--source-timeout", "1s", "--forget-after", "3s"])
    with Engine(node) as engine:
        engine.wait_subscribed()
        publish(engine, 10)
        wait_for(lambda: total(cluster) == 10, "the hub has ten")
        engine.bye()
    wait_for(lambda: count(node, "contributions_forgotten_total") == 2, "it and its front end are forgotten")
    with Engine(node) as engine:
        engine.wait_subscribed()
        publish(engine, 5)
        wait_for(lambda: total(cluster) >= 15, "the next life counts on")
        # What this commit brings comes behind the FORGET, which the one before it let go.
        publish(engine, 5)
        wait_for(lambda: total(cluster) >= 20, "and on")
        assert total(cluster) == 20
    assert count(node, "hub_sessions_lost_total") == 0
