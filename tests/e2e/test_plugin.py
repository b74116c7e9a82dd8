"""The vLLM plugin with the real agent and hub, on stand-ins of vLLM's classes: an agent that is away, stopped, or has a full disk."""

from __future__ import annotations

import importlib
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from daemons import REPOSITORY, Cluster, Node, wait_for

PUBLISHER_TESTS = REPOSITORY / "publisher" / "python" / "tests"
sys.path.insert(0, str(PUBLISHER_TESTS))
import fake_vllm  # noqa: E402

LATENCIES = 64
STEP_S = 0.002
RECORD_S = 0.0005  # what a recording call may take in the middle, on a machine that does other things; an fsync takes more


class Server:
    """An API server's part of vLLM: steps at an engine's pace, and what each call of the logger took."""

    def __init__(self, loggers: Any, indexes: list[int] | None = None) -> None:
        plugin = importlib.import_module("statsbus.vllm.plugin").StatsbusStatLogger
        self.manager = loggers.StatLoggerManager(fake_vllm.config(), indexes or [0], [plugin])
        self.manager.call("log_engine_initialized")
        self.logger = self.manager.stat_loggers[0]
        self.spent: list[float] = []
        self.tokens = 0

    def step(self, running: int = 1) -> None:
        iteration = fake_vllm.IterationStats()
        iteration.num_generation_tokens = LATENCIES
        iteration.inter_token_latencies_iter = [0.02] * LATENCIES
        start = time.perf_counter()
        self.logger.record(fake_vllm.SchedulerStats(running), iteration, mm_cache_stats=None, engine_idx=0)
        self.spent.append(time.perf_counter() - start)
        self.tokens += LATENCIES

    def run(self, seconds: float) -> float:
        """Steps for a while; the middle of what the calls took."""
        first = len(self.spent)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()
            time.sleep(STEP_S)  # the engine computes
        return statistics.median(self.spent[first:])

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = self.logger.engine.publisher.counts()
        return found

    def close(self) -> None:
        self.logger.engine.publisher.close(timeout_s=1.0)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    loggers = fake_vllm.install(monkeypatch)
    made: list[Server] = []

    def start(node: Node, **environment: str) -> Server:
        given = {"STATSBUS_ENGINES": node.engines, "STATSBUS_SERVICE": "chat", "STATSBUS_JOB_NAME": "engine-0", **environment}
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        made.append(Server(loggers))
        return made[-1]

    yield start
    for server in made:
        server.close()


def tokens(cluster: Cluster) -> float | None:
    return cluster.hub.sample("vllm:generation_tokens_total")


def wait_for_tokens(cluster: Cluster, server: Server) -> None:
    wait_for(lambda: tokens(cluster) == server.tokens, f"the hub has all {server.tokens} tokens")


def test_an_agent_that_comes_late_counts_what_the_ring_held(cluster: Cluster, serve: Callable[..., Server]) -> None:
    node = cluster.plan_node()
    server = serve(node)
    assert server.run(1.0) < RECORD_S
    node.agent.start().wait_ready()
    wait_for_tokens(cluster, server)
    assert node.agent.sample("statsbus_agent_records_lost_total") == 0


def test_a_stopped_agent_costs_the_engine_nothing_and_misses_nothing(cluster: Cluster, serve: Callable[..., Server]) -> None:
    node = cluster.add_node()
    server = serve(node)
    before = server.run(1.0)
    wait_for_tokens(cluster, server)
    node.agent.send(signal.SIGSTOP)
    during = server.run(3.0)
    node.agent.send(signal.SIGCONT)
    assert max(before, during) < RECORD_S, (before, during)
    wait_for_tokens(cluster, server)
    assert server.counts()["faults"] == 0
    assert node.agent.sample("statsbus_agent_records_lost_total") == 0


def test_what_left_the_ring_of_an_agent_that_stayed_away_is_reported_lost(cluster: Cluster, serve: Callable[..., Server],
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    from statsbus import publisher

    small = 500
    make = publisher.Ledger
    monkeypatch.setattr(publisher, "Ledger", lambda records, size, fault: make(small, size, fault))
    node = cluster.plan_node()
    server = serve(node)
    steps = 4 * small
    for _ in range(steps):
        server.step()
    node.agent.start().wait_ready()
    lost = wait_for(lambda: node.agent.sample("statsbus_agent_records_lost_total"), "records are reported lost")
    wait_for(lambda: tokens(cluster) and node.agent.sample("statsbus_agent_missing_records") == 0, "the rest is counted")
    recorded = server.counts()["recorded"]
    assert recorded == steps + 1  # and that the engine is awake
    applied = node.agent.sample("statsbus_agent_records_applied_total")
    assert lost + (applied or 0) == recorded and applied and applied >= small - 1, (lost, applied)
    wait_for(lambda: tokens(cluster) == (applied or 0) * LATENCIES, "each of the rest once")


def test_an_agent_that_cannot_write_its_state_is_no_matter_to_the_engine(cluster: Cluster, serve: Callable[..., Server]) -> None:
    node = cluster.add_node()
    server = serve(node)
    server.run(0.5)
    wait_for_tokens(cluster, server)
    before = tokens(cluster)
    obstacle = node.state.with_name(node.state.name + ".tmp")
    obstacle.mkdir()  # where the next file is to be written, as on a full disk
    assert server.run(3.0) < RECORD_S
    wait_for(lambda: (node.agent.sample("statsbus_agent_commit_failures_total") or 0) >= 2, "commits fail")
    assert tokens(cluster) == before, "counters stand still: nothing is shown that isn't on disk"
    obstacle.rmdir()
    wait_for_tokens(cluster, server)
    assert server.counts()["faults"] == 0
    assert node.agent.sample("statsbus_agent_records_lost_total") == 0
