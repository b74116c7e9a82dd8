"""An agent played by a test: speaks schemas/hub-wire.md over a real socket, and says whatever it is told, late and twice too."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import zmq

from daemons import Cluster, wait_for
from model.model import Contribution, Family, Series

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class RefusedError(Exception):
    """The hub ended the session."""


def settle(cluster: Cluster, agents: Iterable[WireAgent]) -> None:
    """Until the hub has read what the agents have sent so far: behind it comes a message of a type that it skips and counts."""
    def skipped() -> float:
        return cluster.hub.sample("statsbus_hub_skipped_total", "full&name[]=statsbus_hub_skipped_total") or 0

    wanted = skipped()
    for agent in agents:
        agent.send("NOTHING")
        wanted += 1
    wait_for(lambda: skipped() >= wanted, "the hub reads what was sent", every_s=0.001)


def packed(values: dict[int, float]) -> tuple[bytes, bytes]:
    return struct.pack(f"<{len(values)}I", *values), struct.pack(f"<{len(values)}d", *values.values())


@dataclass
class Session:
    """What the ids of one session mean."""
    number: int = 0
    acked: int = 0
    families: dict[tuple[str, tuple[float, ...] | None], int] = field(default_factory=dict)
    series: dict[Series, int] = field(default_factory=dict)
    next_cell: int = 0
    contributions: dict[int, int] = field(default_factory=dict)  # epoch to id
    next_contribution: int = 0


class WireAgent:
    """`described`: families that the hub's catalog doesn't know, which are sent with help, semantic and role scope."""

    def __init__(self, cluster: Cluster, lineage: bytes, node: str = "node-a", described: Iterable[Family] = ()) -> None:
        assert len(lineage) == 16
        self.cluster = cluster
        self.lineage = lineage
        self.node = node
        self.described = {family.name for family in described}
        self.generation = 1
        self.session = Session()
        self.socket: zmq.Socket[bytes] | None = None

    # The session

    def connect(self, limit_s: float = 10.0) -> list[Any]:
        """A new session; the WELCOME."""
        self.drop()
        self.session = Session()
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        for option, value in ((zmq.LINGER, 0), (zmq.RECONNECT_IVL, -1), (zmq.SNDHWM, 0), (zmq.RCVHWM, 0)):
            self.socket.setsockopt(option, value)
        self.socket.connect(self.cluster.hub_endpoint)
        self.send("HELLO", 1, self.node, self.lineage, self.generation, "test")
        return self.receive("WELCOME", limit_s)

    def drop(self) -> None:
        """The connection is gone, without a word."""
        if self.socket:
            self.socket.close()
        self.socket = None

    def send(self, *message: Any) -> None:
        assert self.socket
        self.socket.send(_encode(list(message)))

    def receive(self, kind: str, limit_s: float = 10.0) -> list[Any]:
        """The next message of this kind; heartbeats are passed over."""
        assert self.socket
        while self.socket.poll(int(limit_s * 1000)):
            message: list[Any] = _decode(self.socket.recv())
            if message[0] == "ACK":
                self.session.acked = message[1]
            if message[0] == kind:
                return message
            if message[0] == "REFUSED":
                raise RefusedError(message[1])
        raise AssertionError(f"no {kind} within {limit_s} s")

    def settle(self) -> None:
        """Until the hub has applied everything sent so far."""
        settle(self.cluster, [self])
        while self.session.acked < self.session.number:
            self.receive("ACK")

    def beat(self) -> None:
        assert self.socket
        self.send("FRAME")
        while self.socket.poll(0):
            message = _decode(self.socket.recv())
            if message[0] == "REFUSED":
                raise RefusedError(message[1])

    # Definitions

    def define(self, contribution: Contribution) -> None:
        """The contribution alone; its series follow with the frames that need them."""
        session = self.session
        number = session.contributions[contribution.epoch] = session.next_contribution
        session.next_contribution += 1
        source = dict(contribution.source)
        identity = {name: value for name, value in contribution.identity.items() if name not in source}
        self.send("DEFINE", [], [], [[number, contribution.epoch, contribution.kind, source, identity]])

    def _define_series(self, wanted: Iterable[Series]) -> None:
        session = self.session
        families, series = [], []
        for each in wanted:
            if each in session.series:
                continue
            key = (each.family.name, each.bounds)
            if key not in session.families:
                session.families[key] = len(session.families)
                families.append(self._family(session.families[key], each))
            session.series[each] = session.next_cell
            series.append([session.next_cell, session.families[key], dict(each.labels)])
            session.next_cell += each.size
        if series:
            self.send("DEFINE", families, series, [])

    def _family(self, number: int, series: Series) -> list[Any]:
        family = series.family
        own: list[Any] = [None, None, None]
        if family.name in self.described:
            own = ["Said by a test", family.semantic, list(family.role_scope) if family.role_scope else None]
        bounds = list(series.bounds) if series.bounds is not None else None
        return [number, family.name, family.type, None, bounds, *own]

    # Frames

    def frame(self, contribution: Contribution, cells: dict[Series, list[float]], gauges: dict[Series, float],
              age_s: float = 0.0, is_live: bool = True) -> tuple[int, bytes]:
        """The next frame of the session, not sent yet: its number, and its bytes."""
        self._define_series([*cells, *gauges])
        session = self.session
        session.number += 1
        self.generation += 1
        by_id = {session.series[series] + i: value for series, values in cells.items() for i, value in enumerate(values)}
        gauges_by_id = {session.series[series]: value for series, value in gauges.items()} if is_live else {}
        message = ["FRAME", session.number, self.generation, session.contributions[contribution.epoch], int(age_s * 1000), is_live,
                   *packed(gauges_by_id), *packed(by_id)]
        return session.number, _encode(message)

    def send_bytes(self, message: bytes) -> None:
        assert self.socket
        self.socket.send(message)

    def end(self, *contributions: Contribution) -> None:
        self.send("END", [self.session.contributions[each.epoch] for each in contributions])

    def forget(self, *contributions: Contribution) -> None:
        self.send("FORGET", [self.session.contributions.pop(each.epoch) for each in contributions])
