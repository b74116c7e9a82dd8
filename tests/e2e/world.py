"""A cluster that lives at random: what happens is told to the hub, over its wire, and to the model of tests/model alike."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from daemons import Cluster, follows_time, samples
from model.model import Contribution, Labels, Lines, Model, Narrow, Series, Shown, View, labels_of
from wire_agent import RefusedError, WireAgent, settle
from world_families import (ALL_VIEWS, BOUNDS, CONFIG, CUMULATIVE, DERIVED, DESCRIBED, FULLEST, HITS, KV, NAMES, PREFILL, QUERIES, QUEUED, REASONS,
                            REJECTED, RUNNING, SECONDS, SOURCE_COUNTERS, STAGED, TOKENS, TTFT, WAITING)

AGENT_TIMEOUT_S = 4.0
LINGER_S = 4.0
CLOSED_AFTER_S = 9.0
SURELY_S = 2.0  # what must be named before it is final is named that long before
BEAT_S = 0.4
N_AGENTS = 7
MOST_LIVES = 26
MOST_CONTRIBUTIONS = 90


@dataclass(eq=False)
class Life:
    """One contribution as its agent knows it."""
    agent: Agent
    contribution: Contribution
    cells: dict[Series, list[float]] = field(default_factory=dict)
    gauges: dict[Series, float] = field(default_factory=dict)
    bounds: tuple[float, ...] = BOUNDS[0]
    is_live: bool = True
    is_ended: bool = False
    last: tuple[int, bytes] | None = None  # the frame sent last in this session

    @property
    def is_engine(self) -> bool:
        return self.contribution.kind == "engine"


@dataclass(eq=False)
class Held:
    """A frame that is under way for long."""
    life: Life
    number: int
    message: bytes
    cells: dict[Series, list[float]]
    gauges: dict[Series, float]
    age_s: float
    is_live: bool


class Agent:
    def __init__(self, number: int, cluster: Cluster) -> None:
        self.number = number
        self.key = f"lineage-{number}"
        self.node = f"node-{number % 3}"
        self.wire = WireAgent(cluster, self.key.encode().ljust(16, b"."), self.node, DESCRIBED)
        self.lives: list[Life] = []
        self.held: list[Held] = []
        self.epoch = 0
        self.n_lineages = 1
        self.is_connected = False

    def begin_lineage(self) -> None:
        """As if all had been lost."""
        self.n_lineages += 1
        self.key = f"lineage-{self.number}.{self.n_lineages}"
        self.wire.lineage = self.key.encode().ljust(16, b".")
        self.wire.generation = 1
        self.lives = []
        self.epoch = 0


class World:
    """The cluster: what happens is told to the hub and to the model alike."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.model = Model(ALL_VIEWS, DERIVED, AGENT_TIMEOUT_S, LINGER_S, closed_after=CLOSED_AFTER_S)
        self.agents = [Agent(i, cluster) for i in range(N_AGENTS)]
        self.highest: dict[tuple[str, int], Lines] = {}
        self.highest_of_sources: dict[tuple[str, Labels], float] = {}  # by family
        self.maybe_gone: set[Labels] = set()  # sources whose row may have gone since it was looked at
        self.next_beat = 0.0
        self.beaten = math.inf
        self.n_instances = 0
        self.instances: dict[Labels, set[tuple[str, str]]] = {}  # that a source ever had, each with the lineage that told of it
        self.n_events = 0
        self.n_checks = 0
        self.counts: dict[str, int] = {}

    # Time

    def tick(self) -> None:
        now = time.monotonic()
        if now - self.beaten > AGENT_TIMEOUT_S / 2:
            # This process stood still, so that the hub may think the agents silent: begin all sessions anew.
            self.beaten = now
            for agent in self.connected():
                self.connect(agent)
        self.model.tick(now)
        self.maybe_gone |= {source for source in self.model.lived if self.model.source_may_be_gone(source)}
        if now >= self.next_beat:
            self.next_beat = now + BEAT_S
            self.beaten = now
            for agent in self.connected():
                agent.wire.beat()
                self.model.heard(agent.key)

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
            self.tick()

    # Who there is

    def connected(self) -> list[Agent]:
        return [agent for agent in self.agents if agent.is_connected]

    def lives(self, look: Callable[[Life], bool] = lambda _: True) -> list[Life]:
        """Those whose agent has a session that knows them."""
        return [life for agent in self.connected() for life in agent.lives
                if life.contribution.epoch in agent.wire.session.contributions and look(life)]

    def n_contributions(self) -> int:
        return sum(len(agent.lives) for agent in self.agents)

    # What happens

    def connect(self, agent: Agent, leave_out: Life | None = None) -> None:
        agent.held.clear()
        agent.is_connected = True
        began = time.monotonic()
        is_closed = agent.wire.connect()[3] > agent.wire.generation
        now = time.monotonic()
        may, must = self.model.may_be_closed(agent.key, began, now)
        assert may if is_closed else not must, f"{agent.key} is {'' if is_closed else 'not '}closed"
        self.model.tick(now)
        if is_closed:
            self.begin_anew(agent)
            return
        self.model.hello(agent.key)
        for life in list(agent.lives):
            first = life.contribution.left_out_first
            if first is not None and now > first + CLOSED_AFTER_S - SURELY_S:
                agent.lives.remove(life)  # too late to name it again
            elif life is not leave_out:
                self.define(life)
                self.frame(life)
                if life.is_ended:
                    self.end(life)

    def begin_anew(self, agent: Agent) -> None:
        """The hub has closed the lineage: a new one, in which engines that live count from zero."""
        if not self.model.lineages[agent.key].is_closed:
            self.model.close(agent.key)
        lives = [life for life in agent.lives if life.is_live]
        agent.begin_lineage()
        self.connect(agent)
        for life in lives:
            c = life.contribution
            self.begin(agent, dict(c.source), {k: v for k, v in c.identity.items() if k not in dict(c.source)}, c.kind)
        self.counts["closed"] = self.counts.get("closed", 0) + 1

    def define(self, life: Life) -> None:
        c = life.contribution
        agent = life.agent
        agent.wire.define(c)
        self.model.heard(agent.key)
        known = self.model.define(agent.key, c.epoch, c.kind, dict(c.source), c.identity)
        life.contribution = known
        life.last = None

    def frame(self, life: Life, some: bool = False, hold: bool = False, age_s: float | None = None) -> None:
        agent = life.agent
        cells = {s: list(v) for s, v in life.cells.items() if not some or self.random.random() < 0.5}
        gauges = dict(life.gauges) if life.is_live else {}
        age_s = self.random.choice((0, 0, 1, 5)) if age_s is None else age_s
        number, message = agent.wire.frame(life.contribution, cells, gauges, age_s, life.is_live)
        if hold:
            agent.held.append(Held(life, number, message, cells, gauges, age_s, life.is_live))
            return
        agent.wire.send_bytes(message)
        life.last = (number, message)
        self.model.frame(life.contribution, number, cells, gauges, age_s, life.is_live)

    def release(self, agent: Agent) -> None:
        """Frames that were under way arrive: the late ones in any order, then those that nothing has overtaken."""
        self.random.shuffle(agent.held)
        for held in sorted(agent.held, key=lambda h: h.number if h.number > h.life.contribution.last_number else 0):
            agent.wire.send_bytes(held.message)
            self.model.frame(held.life.contribution, held.number, held.cells, held.gauges, held.age_s, held.is_live)
        agent.held.clear()

    def end(self, life: Life) -> None:
        self.release(life.agent)
        life.is_live, life.is_ended, life.gauges = False, True, {}
        life.agent.wire.end(life.contribution)
        self.model.end(life.contribution)

    def begin(self, agent: Agent, source: dict[str, str], identity: dict[str, str], kind: str = "engine",
              bounds: tuple[float, ...] | None = None) -> Life | None:
        """A new contribution, with a first frame."""
        if not self.model.may_join({**identity, **source}):
            return None
        agent.epoch += 1
        made = Contribution(agent.key, agent.epoch, kind, labels_of(source), {k: v for k, v in {**identity, **source}.items() if v})
        self.instances.setdefault(made.source, set()).add((made.identity["instance_id"], agent.key))
        life = Life(agent, made, bounds=bounds or self.random.choice(BOUNDS))
        agent.lives.append(life)
        self.define(life)
        self.grow(life)
        self.frame(life)
        return life

    def grow(self, life: Life) -> None:
        """An engine works: some of its numbers change."""
        pick = self.random
        if not life.is_engine:
            self.add(life, Series(REJECTED, (("reason", pick.choice(("queue", "tokens"))),)), [float(pick.randint(0, 3))])
            return
        self.add(life, Series(TOKENS), [float(pick.randint(0, 100))])
        self.add(life, Series(REASONS, (("finished_reason", pick.choice(("stop", "length", 'odd "one"'))),)), [1.0])
        if pick.random() < 0.7:
            queries = float(pick.randint(0, 50))
            self.add(life, Series(QUERIES), [queries])
            self.add(life, Series(HITS), [float(pick.randint(0, int(queries)))])
        if pick.random() < 0.5:
            self.add(life, Series(SECONDS), [pick.random() * pick.choice((1e-6, 1.0, 1e6))])
        for family in (TTFT, QUEUED, PREFILL):
            if pick.random() < 0.6:
                self.observe(life, Series(family, (), life.bounds))
        if pick.random() < 0.4:
            self.observe(life, Series(STAGED, (("stage", pick.choice("01")), ("x", "y")), (1.0, 2.0)))
        life.gauges = {series: value for series, value in (
            (Series(RUNNING), float(pick.randint(0, 40))),
            (Series(KV), pick.random()),
            (Series(FULLEST), pick.random()),
            (Series(WAITING, (("reason", "capacity"),)), float(pick.randint(0, 9))),
            (Series(WAITING, (("reason", "deferred"),)), float(pick.randint(0, 9))),
            (Series(CONFIG, (("block_size", pick.choice(("16", "32"))), ("role", "x"))), 1.0),
        ) if pick.random() < 0.85}

    def add(self, life: Life, series: Series, more: list[float]) -> None:
        have = life.cells.setdefault(series, [0.0] * series.size)
        life.cells[series] = [a + b for a, b in zip(have, more)]

    def observe(self, life: Life, series: Series) -> None:
        assert series.bounds is not None
        value = self.random.choice((0.1, 0.3, 0.7, 2.0, 5.0, 100.0)) * self.random.random()
        if self.random.random() < 0.15:
            self.add(life, series, [0.0] * series.size)  # it exists, and nothing was observed
            return
        bucket = next((i for i, bound in enumerate(series.bounds) if value <= bound), len(series.bounds))
        self.add(life, series, [*(float(i == bucket) for i in range(len(series.bounds) + 1)), value])

    # Events, by name

    def event(self) -> None:
        names = list(EVENTS)
        (name,) = self.random.choices(names, [EVENTS[name] for name in names])
        self.tick()
        if getattr(self, "on_" + name)() is not False:
            self.n_events += 1
            self.counts[name] = self.counts.get(name, 0) + 1

    def on_step(self) -> bool:
        lives = self.lives(lambda life: life.is_live)
        if not lives:
            return False
        life = self.random.choice(lives)
        self.grow(life)
        self.frame(life, some=self.random.random() < 0.5, hold=self.random.random() < 0.1)
        return True

    def on_duplicate(self) -> bool:
        lives = self.lives(lambda life: life.last is not None)
        if not lives:
            return False
        life = self.random.choice(lives)
        assert life.last is not None
        number, message = life.last
        life.agent.wire.send_bytes(message)
        self.model.heard(life.agent.key)  # and nothing else changes
        return True

    def on_release(self) -> bool:
        agents = [agent for agent in self.connected() if agent.held]
        if agents:
            self.release(self.random.choice(agents))
        return bool(agents)

    def on_join(self) -> bool:
        pick = self.random
        if len(self.lives(lambda life: life.is_live)) >= MOST_LIVES or self.n_contributions() >= MOST_CONTRIBUTIONS:
            return False
        agents = self.connected()
        if not agents:
            return False
        agent = pick.choice(agents)
        source = {"service_name": pick.choice(("chat", "chat", "mail", "")), "job_name": f"job-{pick.randint(0, 5)}"}
        identity = {"model_name": pick.choice(("tiny", "/models/big")), **self.place(agent), "role": self.role(),
                    "tenant": pick.choice(("", "red", "blue"))}
        if pick.random() < 0.1:
            return self.begin(agent, source, identity, "front-end") is not None
        source |= {"dp_rank": pick.choice("01"), "stage": pick.choice(("", "0", "1")), "replica": pick.choice(("", "0"))}
        return self.begin(agent, source, identity) is not None

    def role(self) -> str:
        return self.random.choice(("prefill", "decode", "decode", "both", "", "encode"))

    def place(self, agent: Agent) -> dict[str, str]:
        self.n_instances += 1
        return {"instance_id": f"i-{self.n_instances}", "node": agent.node, "pod_ip": f"10.0.{agent.node[-1]}.{self.random.randint(1, 3)}"}

    def again(self, agent: Agent | None, **changes: str) -> bool:
        """An engine's next life; what becomes of the one before is left to chance."""
        lives = self.lives(lambda life: life.is_live and life.is_engine)
        if not lives or self.n_contributions() >= MOST_CONTRIBUTIONS:
            return False
        old = self.random.choice(lives)
        agent = agent or old.agent
        source = dict(old.contribution.source)
        identity = {k: v for k, v in old.contribution.identity.items() if k not in source}
        if "bounds" not in changes:
            identity |= self.place(agent) | changes
        made = self.begin(agent, source, identity)
        if not made:
            return False
        how = self.random.random()
        if how < 0.45:
            self.end(old)
        elif how < 0.8:
            old.is_live, old.gauges = False, {}
            self.frame(old)
        return True  # else the old one lives on beside it

    def on_restart(self) -> bool:
        return self.again(None)

    def on_rebound(self) -> bool:
        """The same incarnation under other bucket bounds: an epoch of its own."""
        return self.again(None, bounds="other")

    def on_move(self) -> bool:
        agents = self.connected()
        return bool(agents) and self.again(self.random.choice(agents))

    def on_role(self) -> bool:
        return self.again(None, role=self.role())

    def on_leave(self) -> bool:
        lives = self.lives(lambda life: life.is_live)
        if len(lives) < 6:
            return False
        self.end(self.random.choice(lives))
        return True

    def on_forget(self) -> bool:
        lives = self.lives(lambda life: life.is_ended)
        if not lives:
            return False
        life = self.random.choice(lives)
        self.release(life.agent)
        self.frame(life)  # the final values, which every hub has before it is told to forget
        life.agent.wire.forget(life.contribution)
        settle(self.cluster, [life.agent.wire])  # or a session that ends now would take the message along
        self.model.heard(life.agent.key)
        self.model.forget(life.contribution)
        life.agent.lives.remove(life)
        return True

    def on_forget_lost(self) -> bool:
        """FORGET is lost with its session, and at times END before it."""
        lives = self.lives(lambda life: not life.is_live)
        if not lives:
            return False
        life = self.random.choice(lives)
        self.release(life.agent)
        self.frame(life)
        settle(self.cluster, [life.agent.wire])
        self.model.heard(life.agent.key)
        life.agent.lives.remove(life)
        self.connect(life.agent)
        return True

    def on_revenant(self) -> bool:
        """An agent has a state from before, and names what is final."""
        agents = {agent.key: agent for agent in self.connected()}
        finals = [c for c in self.model.final if c.lineage in agents]
        if not finals:
            return False
        contribution = self.random.choice(finals)
        agent = agents[contribution.lineage]
        self.release(agent)
        agent.wire.define(contribution)
        try:
            agent.wire.receive("nothing")
        except RefusedError as e:
            assert "final" in str(e), e
        self.model.tick(time.monotonic())
        self.model.close(agent.key)
        agent.held.clear()
        agent.wire.connect()
        self.begin_anew(agent)
        return True

    def on_buried(self) -> bool:
        """What doesn't live any more ends in order, so that it can be forgotten."""
        lives = self.lives(lambda life: not life.is_live and not life.is_ended)
        if not lives:
            return False
        self.end(self.random.choice(lives))
        return True

    def on_reconnect(self) -> bool:
        """A session is lost and the next begins at once; at times it leaves something out for long."""
        agents = self.connected()
        if not agents:
            return False
        agent = self.random.choice(agents)
        lives = self.lives(lambda life: life.agent is agent)
        leave_out = self.random.choice(lives) if lives and self.random.random() < 0.2 else None
        self.connect(agent, leave_out)
        return True

    def on_lose(self) -> bool:
        """An agent falls silent, with or without its connection."""
        agents = self.connected()
        if len(agents) < 4:
            return False
        agent = self.random.choice(agents)
        if self.random.random() < 0.5:
            agent.wire.drop()
        agent.is_connected = False
        return True

    def on_return(self) -> bool:
        agents = [agent for agent in self.agents if not agent.is_connected]
        if not agents:
            return False
        self.connect(self.random.choice(agents))
        return True

    # What is looked at

    def settle(self) -> None:
        """Until what the hub shows is certain."""
        while True:
            self.tick()
            for agent in self.connected():
                self.release(agent)
            for rivals in self.model.rivals():
                self.part(rivals)
            if self.model.is_settled():
                break
            self.pause(0.1)
        settle(self.cluster, [agent.wire for agent in self.connected()])
        for agent in self.connected():
            self.model.heard(agent.key)

    def part(self, rivals: list[Contribution]) -> None:
        """Gauges of one source that came at nearly one moment: makes clear which are the youngest."""
        known = {id(life.contribution): life for life in self.lives(lambda life: life.is_live)}
        for place, contribution in enumerate(sorted(rivals, key=lambda c: (c.lineage, c.epoch))):
            life = known.get(id(contribution))
            if life and life.gauges:
                self.frame(life, age_s=10.0 * place)

    def check(self) -> None:
        self.n_checks += 1
        for view in ALL_VIEWS:
            self.look(view, None)
        for view in self.random.sample(ALL_VIEWS, 2):
            self.look(view, self.narrow())

    def narrow(self) -> Narrow:
        """A query's filters, some of them for what there is none of."""
        def some(*values: str) -> set[str] | None:
            return set(self.random.sample(values, self.random.randint(1, 2))) if self.random.random() < 0.4 else None

        return Narrow(role=some("prefill", "decode", "both", "", "nosuch"), model_name=some("tiny", "/models/big", "nosuch"),
                      service_name=some("chat", "mail", ""), name=some(*sorted(NAMES)))

    def look(self, view: View, narrow: Narrow | None) -> None:
        while True:
            self.settle()
            status, _, body = self.cluster.hub.get(f"/metrics?type={view.name}{query_of(narrow)}")
            assert status == 200, body
            self.model.tick(time.monotonic())
            if self.model.is_settled():
                break
        lines: Lines = {}
        sources: dict[str, dict[Labels, float]] = {}
        for name, labels, value in samples(body.decode()):
            key = name, labels_of(labels)
            assert key not in lines, f"{view.name}: {key} is there twice"
            if follows_time(name):
                continue
            if not name.startswith("statsbus_"):
                lines[key] = value
            elif name == "statsbus_hub_contributions":
                surely = sum(not self.model.may_be_retired(c) for c in self.model.contributions.values())
                assert surely <= value <= len(self.model.contributions), (surely, value, len(self.model.contributions))
            elif name.startswith("statsbus_source_"):
                sources.setdefault(name, {})[labels_of({k: v for k, v in labels.items() if k != "model_name"})] = value
        self.compare(view, lines, narrow)
        if view.name == "full" and not narrow:
            self.compare_sources(sources["statsbus_source_up"], sources["statsbus_source_incarnations_total"])
            for name in SOURCE_COUNTERS:
                self.compare_counters(name, sources[name])
            self.maybe_gone.clear()

    def compare_counters(self, name: str, values: dict[Labels, float]) -> None:
        for source, value in values.items():
            before = self.highest_of_sources.get((name, source), 0.0)
            assert value >= before or source in self.maybe_gone, f"{name} of {source} fell from {before} to {value}"
            self.highest_of_sources[name, source] = value

    def compare_sources(self, up: dict[Labels, float], incarnations: dict[Labels, float]) -> None:
        engines = [c for c in self.model.contributions.values() if c.kind == "engine"]
        live = {c.source for c in engines if c.is_live}
        assert {source for source, value in up.items() if value == 1} == live, (up, live)
        gone = {source for source in up if self.model.source_is_gone(source)}
        assert not gone, f"told of although all of them ended long ago: {gone}"
        for source in live:
            ids = {c.identity["instance_id"] for c in engines if c.source == source and not self.model.may_be_retired(c)}
            assert len(ids) <= incarnations[source] <= len(self.instances[source]), (source, incarnations[source], ids)

    def compare(self, view: View, lines: Lines, narrow: Narrow | None) -> None:
        left = dict(lines)
        faults = []
        for row, shown, expected in self.model.scrape(view.name, narrow):
            present = {key: left.pop(key) for key in expected if key in left}
            if shown is Shown.YES or (shown is Shown.MAYBE and present):
                faults += [f"{key}: not there, expected {expected[key]}" for key in expected if key not in present]
            if shown is Shown.NO:
                faults += [f"{key}: there, though its row is gone" for key in present]
            faults += [f"{key} is {value}, expected {expected[key]}" for key, value in present.items()
                       if not math.isclose(value, expected[key], rel_tol=1e-9, abs_tol=1e-9)]
            faults += [] if narrow else self.fallen(view, row.number, present)
        faults += [f"{key} is {value}, expected nothing" for key, value in left.items()]
        assert not faults, "\n".join([f"view {view.name} {narrow or ''} after {self.n_events} events, {len(faults)} faults:", *faults[:12]])

    def fallen(self, view: View, row: int, present: Lines) -> list[str]:
        before = self.highest.setdefault((view.name, row), {})
        faults = [f"{key} fell from {before[key]!r} to {value!r}" for key, value in present.items()
                  if key[0] in CUMULATIVE and value < before.get(key, 0)]
        before.update(present)
        return faults


def query_of(narrow: Narrow | None) -> str:
    if not narrow:
        return ""
    filters = (("role", narrow.role), ("model_name", narrow.model_name), ("service_name", narrow.service_name), ("name[]", narrow.name))
    return "".join(f"&{name}={quote(value, safe='')}" for name, values in filters for value in sorted(values or ()))


EVENTS = {"step": 60, "duplicate": 6, "release": 5, "join": 6, "restart": 2, "rebound": 1, "move": 2, "role": 2, "leave": 2, "forget": 5,
          "buried": 3, "forget_lost": 1.5, "revenant": 0.1, "reconnect": 1, "lose": 0.2, "return": 0.4}
