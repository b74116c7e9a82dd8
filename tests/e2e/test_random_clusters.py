"""Clusters that live at random, against a plain model of what the hub must say of them (tests/model).

Ten thousand events: engines join, leave, restart, move, change their role; agents are lost and come back, some so late that they must
begin anew; frames come late and twice; contributions end and are forgotten, and now and then nobody tells the hub. Every now and then every view must
say what the model says, to a line, and no counter of a row may ever have fallen while the row was there.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from daemons import Cluster, samples
from model.model import EARLY, Labels, Lines, View, labels_of
from wire_agent import RefusedError
from world import AGENT_TIMEOUT_S, CLOSED_AFTER_S, LINGER_S, World
from world_families import ALL_VIEWS, CUMULATIVE, GAUGES, OWN_VIEWS


def is_counter(name: str) -> bool:
    return name in CUMULATIVE or (name.startswith("statsbus_hub_") and name.endswith("_total"))


@dataclass
class WatchedRow:
    lived: float = -math.inf  # when it had a gauge last
    counters: Lines = field(default_factory=dict)  # the latest of each


class Watcher(threading.Thread):
    """Scrapes all the time, also in the middle of things: no line twice, and no counter falls while its row is there.

    Rows of views that keep them are there for good; others as long as one of their gauges was there within the linger.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.faults: list[str] = []
        self.is_stopping = threading.Event()
        self.rows: dict[str, dict[Labels, WatchedRow]] = {view.name: {} for view in ALL_VIEWS}
        self.n_scrapes = 0
        self.n_compared = 0  # counters of rows that go, with what they were

    def run(self) -> None:
        while not self.is_stopping.wait(0.1) and not self.faults:
            view = ALL_VIEWS[self.n_scrapes % len(ALL_VIEWS)]
            begin = time.monotonic()
            scrape = samples(self.cluster.hub.metrics(view.name))
            self.look(view, scrape, begin, time.monotonic())
            self.n_scrapes += 1

    def look(self, view: View, scrape: list[tuple[str, dict[str, str], float]], begin: float, end: float) -> None:
        rows: dict[Labels, Lines] = {}
        for name, labels, value in scrape:
            row, key = rows.setdefault(view.row_of(labels), {}), (name, labels_of(labels))
            if key in row:
                self.faults.append(f"{view.name}: {key} is there twice")
            row[key] = value
        for which, row in rows.items():
            before = self.rows[view.name].get(which)
            if not before or not (view.keep or end < before.lived + LINGER_S - EARLY):
                before = self.rows[view.name][which] = WatchedRow()  # it may be another one
            counters = {key: value for key, value in row.items() if is_counter(key[0])}
            self.faults += [f"{view.name}: {key} fell from {before.counters[key]!r} to {value!r}"
                            for key, value in counters.items() if value < before.counters.get(key, 0)]
            self.n_compared += len(before.counters) if not view.keep else 0
            before.counters.update(counters)
            if any(name in GAUGES for name, _ in row):
                before.lived = begin

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_stopping.set()
        self.join(30)


def run(cluster: Cluster, seed: int, n_events: int, check_every: int) -> World:
    world = World(cluster, seed)
    with Watcher(cluster) as watcher:
        for agent in world.agents:
            world.connect(agent)
        next_check = check_every
        while world.n_events < n_events:
            world.event()
            if world.n_events >= next_check:
                world.check()
                assert not watcher.faults, watcher.faults
                next_check = world.n_events + world.random.randint(1, 2 * check_every)
        world.pause(AGENT_TIMEOUT_S + LINGER_S + CLOSED_AFTER_S)
        world.check()
    assert not watcher.faults and watcher.n_scrapes > 0 and watcher.n_compared > 0, watcher.faults
    return world


def hub_flags(folder: Path) -> list[str]:
    views = folder / "views.yaml"
    views.write_text(OWN_VIEWS)
    assert set(yaml.safe_load(OWN_VIEWS)["views"]) < {view.name for view in ALL_VIEWS}
    return ["--agent-timeout", f"{AGENT_TIMEOUT_S:g}s", "--linger", f"{LINGER_S:g}s", "--closed-after", f"{CLOSED_AFTER_S:g}s",
            "--views", str(views)]


@pytest.mark.long
def test_every_view_of_a_random_cluster_agrees_with_the_model(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    seed = int(os.environ.get("STATSBUS_TEST_SEED", random.SystemRandom().randint(0, 2**32 - 1)))
    n_events = int(os.environ.get("STATSBUS_TEST_EVENTS", 10_000))
    try:
        world = run(new_cluster(hub_flags=hub_flags(tmp_path)), seed, n_events, check_every=120)
    except (AssertionError, RefusedError) as e:
        raise AssertionError(f"seed {seed} (STATSBUS_TEST_SEED={seed} repeats the events): {e}") from e
    print(f"seed {seed}: {world.n_checks} checks, {world.counts}")


@pytest.mark.sanitized
def test_a_short_life_of_a_random_cluster_agrees_with_the_model(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """The same with a seed that stays, short enough for every run."""
    run(new_cluster(hub_flags=hub_flags(tmp_path)), 4, 600, check_every=50)
