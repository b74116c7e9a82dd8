"""Windows and rates against a model that is a list of what was counted when. Time is the test's own, so values agree to the last bit
of what they can."""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from daemons import samples
from hub_play import HubPlay, PlayedAgent
from model.model import Contribution, Family, Labels, Series, labels_of, quantile, quantile_name

BOUNDS = (0.1, 0.5, 2.0)
TTFT = Series(Family("vllm:time_to_first_token_seconds", "histogram", "sla_metric", ("decode", "both")), (), BOUNDS)
OTHER = Series(TTFT.family, (), (0.1, 2.0))  # other bounds: shared ones are 0.1 and 2
QUEUE = Series(Family("vllm:request_queue_time_seconds", "histogram", "histogram_latency"), (), BOUNDS)
HITS = Series(Family("vllm:prefix_cache_hits_total", "counter", "ratio_numerator"))
LOOKS = Series(Family("vllm:prefix_cache_queries_total", "counter", "ratio_denominator"))
TOKENS = Series(Family("vllm:generation_tokens_total", "counter", "throughput_counter"))
ALL = (TTFT, OTHER, QUEUE, HITS, LOOKS, TOKENS)

STEP_MS = 500  # between two looks of the hub
TIMEOUT_MS, SETTLED_MS = 15_000, 3_000
WINDOWS = {"10s": 10_000, "60s": 60_000}
RATE_WINDOW_MS = 10_000
VIEWS = {"full": (), "role": ("role",), "stage": ("stage",)}
EVENTS = int(os.environ.get("STATSBUS_TEST_EVENTS", "700"))


@dataclass
class Counted:
    """What came of one contribution while the hub watched."""
    at_ms: int
    identity: dict[str, str]
    series: Series
    cells: list[float]


@dataclass(eq=False)
class Life:
    """One contribution: its totals, those that the hub was told, and whether what is told next was seen to come."""
    contribution: Contribution
    totals: dict[Series, list[float]]
    told: dict[Series, list[float]]
    is_seen: bool
    is_ended: bool = False
    is_forgotten: bool = False


@dataclass
class Agent:
    wire: PlayedAgent
    began_ms: int
    heard_ms: int
    lives: list[Life] = field(default_factory=list)
    is_cut: bool = False
    epoch: int = 0


class World:
    def __init__(self, hub: HubPlay, seed: int) -> None:
        self.hub, self.random = hub, random.Random(seed)
        self.now_ms = 1_000_000
        self.counted: list[Counted] = []
        self.n_lives = 0
        hub.time(self.now_ms)
        self.agents = [Agent(PlayedAgent(hub, bytes([n]) * 16, f"n{n}"), self.now_ms, self.now_ms) for n in (1, 2, 3)]
        for agent in self.agents:
            agent.wire.connect()

    # --- what happens

    def join(self, agent: Agent) -> None:
        self.n_lives += 1
        agent.epoch += 1
        key = {"service_name": "chat", "job_name": f"j{self.random.randrange(4)}", "dp_rank": str(agent.epoch % 2), "stage": self.random.choice(["", "0", "1"])}
        identity = {"model_name": self.random.choice(["a", "b"]), "role": self.random.choice(["prefill", "decode", "both", ""]),
                    "instance_id": f"i{self.n_lives}", **key}
        made = Contribution(agent.wire.node, agent.epoch, "engine", labels_of(key), {k: v for k, v in identity.items() if v})
        zeros = {series: [0.0] * series.size for series in ALL}
        life = Life(made, zeros, {series: list(cells) for series, cells in zeros.items()}, False)
        agent.lives.append(life)
        if not agent.is_cut:
            self.define(agent, life, is_new=True)

    def define(self, agent: Agent, life: Life, is_new: bool) -> None:
        agent.wire.define(life.contribution)
        agent.heard_ms = self.now_ms
        if is_new and self.now_ms - agent.began_ms >= SETTLED_MS:
            life.is_seen = True

    def work(self, life: Life) -> None:
        for series, n in ((TTFT, 5), (OTHER, 2), (QUEUE, 3)):
            for _ in range(self.random.randrange(n)):
                bucket = self.random.randrange(series.size - 1)
                life.totals[series][bucket] += 1
                life.totals[series][-1] += self.random.randrange(1, 64) / 16  # sums that doubles hold exactly
        looks = self.random.randrange(20)
        life.totals[LOOKS][0] += looks
        life.totals[HITS][0] += self.random.randrange(looks + 1)
        life.totals[TOKENS][0] += self.random.randrange(100)

    def tell(self, agent: Agent, life: Life, is_live: bool = True) -> None:
        for series in ALL:
            more = [after - before for after, before in zip(life.totals[series], life.told[series])]
            if life.is_seen and any(more):
                self.counted.append(Counted(self.now_ms, life.contribution.identity, series, more))
            life.told[series] = list(life.totals[series])
        life.is_seen = True
        agent.wire.send_bytes(agent.wire.frame(life.contribution, {s: list(c) for s, c in life.totals.items()}, {}, is_live=is_live)[1])
        agent.heard_ms = self.now_ms

    def reconnect(self, agent: Agent) -> None:
        agent.wire.connect()
        agent.is_cut, agent.began_ms, agent.heard_ms = False, self.now_ms, self.now_ms
        for life in agent.lives:
            if not life.is_forgotten:
                self.define(agent, life, is_new=False)
                self.tell(agent, life, is_live=not life.is_ended)

    def event(self) -> None:
        agent = self.random.choice(self.agents)
        live = [life for life in agent.lives if not life.is_ended]
        kind = self.random.choices(["join", "work", "end", "forget", "cut", "back", "pass", "wait"], [3, 30, 2, 2, 1, 2, 20, 1])[0]
        if kind == "join" and len(live) < 4:
            self.join(agent)
        elif kind == "work" and live:
            life = self.random.choice(live)
            self.work(life)
            if not agent.is_cut:
                self.tell(agent, life)
        elif kind == "end" and live and not agent.is_cut:
            life = self.random.choice(live)
            agent.wire.end(life.contribution)
            life.is_ended = True
            self.work(life)  # the last of it comes behind the end
            self.tell(agent, life, is_live=False)
        elif kind == "forget" and not agent.is_cut:
            for life in [life for life in agent.lives if life.is_ended and not life.is_forgotten][:1]:
                agent.wire.forget(life.contribution)
                life.is_forgotten = True
        elif kind == "cut":
            agent.is_cut = True
        elif kind == "back" and agent.is_cut:
            self.reconnect(agent)
        elif kind == "pass":
            self.pass_time(self.random.choice([1, 1, 2, 5]))
        elif kind == "wait":
            self.pass_time(self.random.choice([20, 60, 150]))

    def pass_time(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += STEP_MS
            for agent in self.agents:
                if not agent.is_cut:
                    agent.wire.send("FRAME")
                    agent.heard_ms = self.now_ms
                elif self.now_ms - agent.heard_ms >= TIMEOUT_MS:
                    for life in agent.lives:
                        life.is_seen = life.is_seen and life.is_ended
            self.hub.time(self.now_ms)

    # --- what there must be

    def expected(self, view: str, window: str, begin_ms: int) -> dict[tuple[str, Labels], float]:
        rows: dict[Labels, dict[Series, list[float]]] = {}
        for each in self.counted:
            role = each.identity.get("role", "")
            if each.at_ms < begin_ms or (view == "full" and not each.series.family.counts(role)):
                continue
            row = labels_of({name: each.identity.get(name, "") for name in ("service_name", "model_name", *VIEWS[view])})
            into = rows.setdefault(row, {}).setdefault(each.series, [0.0] * each.series.size)
            into[:] = [a + b for a, b in zip(into, each.cells)]
        lines: dict[tuple[str, Labels], float] = {}
        for row, totals in rows.items():
            row = labels_of({**dict(row), "window": window})
            self.put_histogram(lines, row, TTFT.family.name, self.merged(view, dict(row), totals))
            if QUEUE in totals:
                self.put_histogram(lines, row, QUEUE.family.name, (BOUNDS, totals[QUEUE]))
            if totals.get(LOOKS, [0.0])[0] > 0 and view != "full":  # which leaves it out, see views.yaml
                lines["vllm:prefix_cache_hit_rate_window", row] = totals.get(HITS, [0.0])[0] / totals[LOOKS][0]
        return lines

    @staticmethod
    def merged(view: str, row: dict[str, str], totals: dict[Series, list[float]]) -> tuple[tuple[float, ...], list[float]]:
        """Every source has both sets of bounds at zero, so that their shared bounds are those of the row."""
        a, b = totals.get(TTFT, [0.0] * TTFT.size), totals.get(OTHER, [0.0] * OTHER.size)
        return (0.1, 2.0), [a[0] + b[0], a[1] + a[2] + b[1], a[3] + b[2], a[4] + b[3]]

    @staticmethod
    def put_histogram(lines: dict[tuple[str, Labels], float], row: Labels, name: str, merged: tuple[tuple[float, ...], list[float]]) -> None:
        bounds, (*counts, total) = merged
        if sum(counts) == 0:
            return
        lines[f"{name}_window_mean", row] = total / sum(counts)
        for q in (0.5, 0.95, 0.99):
            value = quantile(q, bounds, counts)
            assert value is not None
            lines[f"{name}_window_{quantile_name(q)}", labels_of({**dict(row), "quantile": f"{q:g}"})] = value

    def check(self, view: str) -> None:
        shown: dict[tuple[str, Labels], float] = {}
        for name, labels, value in samples(self.hub.scrape(view)):
            if "_window" in name:
                shown[name, labels_of(labels)] = value
        for window, length_ms in WINDOWS.items():
            is_of = {key: value for key, value in shown.items() if dict(key[1])["window"] == window}
            # A window begins at the last copy that is as old as it: copies are a sixtieth apart, or a look where that is longer.
            latest = self.now_ms - length_ms
            candidates = [self.expected(view, window, latest - late) for late in range(0, length_ms // 60 + STEP_MS + 1, STEP_MS)]
            differences = [{(key, is_of.get(key), wanted.get(key)) for key in is_of.keys() | wanted.keys()
                            if not math.isclose(is_of.get(key, math.nan), wanted.get(key, math.nan), rel_tol=1e-12)} for wanted in candidates]
            assert set() in differences, f"{view} {window} at {self.now_ms}: {min(differences, key=len)}"


@pytest.mark.parametrize("fixed_seed", [1, 2, 3, None])  # None: another each time
def test_windows_of_random_events_agree_with_the_model(binaries: Path, fixed_seed: int | None) -> None:
    seed = fixed_seed or int(os.environ.get("STATSBUS_TEST_SEED", random.randrange(1, 1 << 32)))
    print(f"seed {seed} (STATSBUS_TEST_SEED={seed} repeats the events)")
    n_values = 0
    with HubPlay(binaries, ",".join(WINDOWS), RATE_WINDOW_MS / 1000) as hub:
        world = World(hub, seed)
        for n in range(EVENTS):
            world.event()
            if n % 5 == 0:
                world.pass_time(1)
                for view in VIEWS:
                    world.check(view)
                n_values += len(world.expected("full", "60s", world.now_ms - 60_000))
        assert n_values > EVENTS, f"seed {seed} tried too little"
