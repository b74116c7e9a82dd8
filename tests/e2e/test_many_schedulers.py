"""Hundreds of (stage, replica) schedulers on one agent: none of their snapshots is late at the hub, none of their counts is lost."""

from __future__ import annotations

import threading
import time

import pytest

from daemons import Cluster, samples, wait_for
from engine import Engine, source

STAGES, REPLICAS = 4, 64
SCHEDULERS = STAGES * REPLICAS
STEP_S = 0.02  # 50 a second each
LATEST_S = 1.1  # the period of snapshots, and 0.1 s
PEAKS = 12  # periods that are looked at, at most: on a busy machine some are late


class Load(threading.Thread):
    """One orchestrator: all its schedulers step, until it is told to stop."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(daemon=True)
        self.engine = engine
        self.n_rounds = 0
        self.is_over = threading.Event()

    def round(self, running: int) -> None:
        now_s = time.monotonic()
        content = {"scheduler_stats": {"num_running_reqs": running}, "iteration_stats": {"num_generation_tokens": 1}}
        self.engine.records([["step", index, now_s, content] for index in range(SCHEDULERS)])
        self.n_rounds += 1

    def run(self) -> None:
        due_s = time.monotonic()
        while not self.is_over.is_set():
            self.round(running=100)
            due_s = max(due_s + STEP_S, time.monotonic())
            self.is_over.wait(due_s - time.monotonic())


def next_peak(cluster: Cluster) -> float:
    """The age that the oldest snapshot had before newer ones came."""
    peak = 0.0
    while True:
        age = cluster.hub.sample("statsbus_hub_snapshot_age_seconds")
        assert age is not None
        if age < peak / 2:
            return peak
        peak = max(peak, age)
        time.sleep(0.01)


@pytest.mark.long
def test_no_scheduler_of_hundreds_is_late_or_loses_anything(cluster: Cluster) -> None:
    node = cluster.add_node()
    sources = [source(index, dp_rank="", stage=str(index // REPLICAS), replica=str(index % REPLICAS), instance_id=f"i-{index}")
               for index in range(SCHEDULERS)]
    with Engine(node, sources) as engine:
        engine.wait_subscribed()
        load = Load(engine)
        load.start()
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 100 * SCHEDULERS, "all schedulers are there")
        peaks: list[float] = []
        while len(peaks) < PEAKS and not (peaks and peaks[-1] <= LATEST_S):
            peaks.append(next_peak(cluster))
        load.is_over.set()
        load.join()
        assert min(peaks) <= LATEST_S, peaks
        load.round(running=0)  # the last before silence, within a period of the one before
        engine.flush()
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 0, "the last snapshot of each is there", 5)
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == load.n_rounds * SCHEDULERS, "every step is counted", 5)
        rows = [(labels, value) for name, labels, value in samples(cluster.hub.metrics("replica")) if name == "vllm:generation_tokens_total"]
        assert len(rows) == SCHEDULERS and {value for _, value in rows} == {load.n_rounds}
