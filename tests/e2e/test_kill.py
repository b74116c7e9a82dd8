"""Nothing is counted twice and nothing gets lost when the agent is killed."""

from __future__ import annotations

import gzip
import random
import struct
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemons import CAPTURES, Cluster, Node, samples, wait_for
from engine import Engine
from golden import Row, differences, expected, shown
from reference import Process, engine_series, entries

KILLS = 10
PASSES = 150  # of the recording, so that ten kills fall into the load


def long_recording(path: Path, passes: int) -> Process:
    """Writes the recording several times over, its clocks going on, and returns what an engine would have counted."""
    once = list(entries(CAPTURES / "plain" / "stream.bin.gz"))
    length = {clock: once[-1][clock] - once[0][clock] + 1.0 for clock in ("t", "mono")}
    encoder = msgspec.msgpack.Encoder()
    process = Process()
    with gzip.open(path, "wb", compresslevel=1) as out:
        for number in range(passes):
            for entry in once:
                if number and entry["kind"] in ("engine_info", "engine_initialized"):
                    continue
                moved = {**entry, **{clock: entry[clock] + number * length[clock] for clock in length}}
                data = encoder.encode(moved)
                out.write(struct.pack("<I", len(data)) + data)
                process.feed(moved)
    return process


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_kills_at_random_points_of_a_replay_at_full_speed(cluster: Cluster, seed: int) -> None:
    draw = random.Random(seed)
    engine = engine_series([long_recording(cluster.folder / "long.bin.gz", PASSES)])
    node = cluster.add_node()
    player = cluster.player(node, cluster.folder / "long.bin.gz")
    applied: list[float] = []  # by each of the agents that were killed
    for kill in range(KILLS):
        if kill % 2:  # every other agent dies with records of its own; the rest at any moment, in its start as well
            wait_for(lambda: node.agent.sample("statsbus_agent_records_applied_total"), "records are applied")
        # A random moment of the load: this is about time passing, not about an event to wait for.
        moment = time.monotonic() + draw.uniform(0.05, 0.6)
        wait_for(lambda: time.monotonic() >= moment, "the moment")
        assert player.is_running(), "the recording is too short for ten kills"
        applied.append(node.agent.sample("statsbus_agent_records_applied_total") or 0)
        node.agent.kill()
        node.agent.start().wait_ready()
    assert sum(1 for count in applied if count) >= KILLS // 2, applied
    player.finish(120)

    found: list[str] = []

    def is_equal() -> bool:
        found[:] = differences(engine, cluster.hub.metrics("full"), "full", False)
        return not found

    try:
        wait_for(is_equal, "the totals are the engine's", 15)
    except Exception:
        pytest.fail(f"{len(found)} differences:\n" + "\n".join(found[:20]))
    assert node.agent.sample("statsbus_agent_records_lost_total") == 0
    assert differences(engine, cluster.hub.metrics("full"), "full", False) == []


@pytest.mark.long
def test_a_state_deleted_in_a_replay_counts_nothing_twice_and_loses_little(cluster: Cluster) -> None:
    recording = long_recording(cluster.folder / "long.bin.gz", PASSES)
    engine = {key: value for key, value in engine_series([recording]).items() if key[1].endswith(("_total", "_bucket", "_count"))}
    node = cluster.add_node()
    player = cluster.player(node, cluster.folder / "long.bin.gz")
    wait_for(lambda: total(cluster) > 0, "a commit of the load is released")
    restart_without_state(node)
    assert player.is_running(), "the recording is too short"
    player.finish(120)
    wait_for(lambda: node.agent.sample("statsbus_agent_missing_records") == 0, "all that there is has come")
    before = [{}]

    def counted() -> dict[Row, float]:
        return {row: value for row, value in shown(cluster.hub.metrics("dp"), "dp", False, {}).items()}

    def is_settled() -> bool:
        before.append(counted())
        return before[-1] == before[-2]

    wait_for(is_settled, "the hub has all that was counted", 15, every_s=1.5)
    want = expected(engine, "dp")
    assert want
    for row, value in want.items():
        assert before[-1].get(row, 0) <= value, f"{row} was counted twice"
    steps = ("vllm:iteration_tokens_total", "vllm:iteration_tokens_total_count")
    (all_steps,), (got,) = ([value for row, value in rows.items() if row[:2] == steps] for rows in (want, before[-1]))
    assert got > all_steps / 2
    assert node.agent.sample("statsbus_agent_state_losses_total") == 1


STEP: list[Any] = ["step", 0, 1.0, {"iteration_stats": {"num_generation_tokens": 1}}]


def total(cluster: Cluster) -> float:
    return cluster.hub.sample("vllm:generation_tokens_total") or 0


@pytest.mark.sanitized
def test_kills_between_small_messages_lose_nothing(cluster: Cluster) -> None:
    node = cluster.add_node()
    draw = random.Random(3)
    with Engine(node) as engine:
        engine.wait_subscribed()
        for _ in range(KILLS):
            for _ in range(draw.randrange(1, 400)):
                engine.records([STEP], is_lost=draw.random() < 0.05)
            node.agent.kill()
            node.agent.start().wait_ready()
        engine.flush(30)
        wait_for(lambda: total(cluster) >= engine.next - 1, "all steps are at the hub")
        assert total(cluster) == engine.next - 1
        assert node.agent.sample("statsbus_agent_records_lost_total") == 0


@pytest.mark.sanitized
def test_a_deleted_state_counts_nothing_twice(cluster: Cluster) -> None:
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        for _ in range(100):
            engine.records([STEP])
        engine.flush()
        wait_for(lambda: total(cluster) == 100, "the hub has the first hundred")
        restart_without_state(node)
        for _ in range(50):
            engine.records([STEP])
        engine.flush()
        wait_for(lambda: total(cluster) >= 150, "the hub has all")
        assert total(cluster) == 150
        # The new lineage says that it is one, and the old one's values stay.
        assert (node.agent.sample("statsbus_agent_state_losses_total") or 0) >= 1


def restart_without_state(node: Node) -> None:
    node.agent.kill()
    for path in node.state.parent.glob(node.state.name + "*"):
        path.unlink()
    node.agent.start().wait_ready()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_state_deleted_under_load_loses_one_commits_records_at_most(cluster: Cluster, seed: int) -> None:
    draw = random.Random(seed)
    node = cluster.add_node()
    sent_at: list[float] = []
    with Engine(node) as engine:
        engine.wait_subscribed()
        end = time.monotonic() + draw.uniform(1.5, 3.0)
        while time.monotonic() < end:
            engine.records([STEP])
            sent_at.append(time.monotonic())
            engine.drain()
        restart_without_state(node)
        for _ in range(200):
            engine.records([STEP])
        engine.flush(30)
        settled = [-1.0]

        def is_settled() -> bool:
            settled.append(total(cluster))
            return settled[-1] == settled[-2] and settled[-1] >= 200

        wait_for(is_settled, "the hub has the rest", 15, every_s=1.5)
    one_commit = sum(1 for at in sent_at if at >= sent_at[-1] - 1.5)
    assert engine.next - 1 - one_commit <= total(cluster) <= engine.next - 1
    assert (node.agent.sample("statsbus_agent_state_losses_total") or 0) >= 1


def test_a_restart_in_order_keeps_everything(cluster: Cluster) -> None:
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        for _ in range(100):
            engine.records([STEP])
        assert node.agent.stop() == 0
        for _ in range(100):
            engine.records([STEP])
        node.agent.start().wait_ready()
        engine.flush()
        wait_for(lambda: total(cluster) >= 200, "the hub has all")
        assert total(cluster) == 200


def test_a_restarted_hub_shows_everything_again(cluster: Cluster) -> None:
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.records([STEP] * 100)
        engine.flush()
        wait_for(lambda: total(cluster) == 100, "the hub has all")
        before = {(n, *sorted(labels.items())): v for n, labels, v in samples(cluster.hub.metrics()) if n.startswith("vllm:")}
        cluster.hub.kill()
        cluster.hub.start()
        engine.records([STEP] * 10)
        cluster.hub.wait_ready()
        wait_for(lambda: total(cluster) == 110, "the hub has all again")
        after = {(n, *sorted(labels.items())) for n, labels, _ in samples(cluster.hub.metrics()) if n.startswith("vllm:")}
        assert after == set(before)


def test_a_second_agent_on_the_same_endpoints_does_not_start(cluster: Cluster) -> None:
    node = cluster.add_node()
    for taken in ("--engines", "--state"):
        command = list(node.agent.command)
        for flag, value in (("--engines", f"ipc://{node.folder}/other"), ("--replay", f"ipc://{node.folder}/other-replay"),
                            ("--state", f"{node.folder}/other.state"), ("--http", "127.0.0.1:0")):
            if flag != taken:
                command[command.index(flag) + 1] = value
        second = type(node.agent)(f"second-{taken[2:]}", command, node.folder)
        cluster.players.append(second)
        assert second.start().wait(10) != 0
        assert taken[2:] in second.log() or "lock" in second.log() or "holds" in second.log()
    assert node.agent.is_running()
