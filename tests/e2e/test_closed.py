"""An agent that comes back after its lineage was closed: what is counted meanwhile arrives, and nothing twice."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from daemons import Cluster, Node, Process, free_port, wait_for
from engine import Engine

pytestmark = pytest.mark.sanitized

HUB_FLAGS = ["--agent-timeout", "1s", "--closed-after", "2s"]


class Wire:
    """Passes bytes on to a port, until it is cut; mended, it takes new connections."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.ends: list[socket.socket] = []
        self.is_cut = False
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self.is_cut = True
        for end in self.ends:
            with suppress(OSError):  # one that is gone already
                end.shutdown(socket.SHUT_RDWR)
        self.ends.clear()

    def mend(self) -> None:
        self.is_cut = False

    def close(self) -> None:
        self.cut()
        self.server.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.to))
            self.ends += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return


def total(hub: Process) -> float:
    return hub.sample("vllm:generation_tokens_total", "full") or 0.0


def count(node: Node, name: str) -> float:
    return node.agent.sample(f"statsbus_agent_{name}") or 0.0


def publish(engine: Engine, n: int) -> None:
    for _ in range(n):
        engine.step(iteration={"num_generation_tokens": 1})


def wait_closed(hub: Process) -> None:
    wait_for(lambda: hub.sample("statsbus_hub_contributions") == 0, "all that the agent counted is retired")


def test_an_agent_that_was_stopped_for_long_brings_what_engines_counted_meanwhile(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(hub_flags=HUB_FLAGS)
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        publish(engine, 10)
        engine.flush()
        wait_for(lambda: total(cluster.hub) == 10, "the hub has ten")
        assert node.agent.stop() == 0
        publish(engine, 7)  # into the ring
        wait_closed(cluster.hub)
        assert total(cluster.hub) == 10
        node.agent.start().wait_ready()
        wait_for(lambda: total(cluster.hub) == 17, "the hub has what the ring kept, and nothing twice")
        publish(engine, 3)
        engine.flush()
        wait_for(lambda: total(cluster.hub) == 20, "it goes on")
        assert (count(node, "lineages_closed_total"), count(node, "state_losses_total"), count(node, "records_lost_total")) == (1, 0, 0)


def test_an_agent_that_was_cut_off_for_long_brings_what_it_counted_meanwhile(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(hub_flags=HUB_FLAGS)
    wire = Wire(cluster.agents_port)
    node = cluster.add_node(flags=["--hub", f"tcp://127.0.0.1:{wire.port}"])
    with Engine(node) as engine:
        engine.wait_subscribed()
        publish(engine, 10)
        wait_for(lambda: total(cluster.hub) == 10, "the hub has ten")
        wire.cut()
        publish(engine, 7)
        engine.flush()
        wait_closed(cluster.hub)
        wire.mend()
        wait_for(lambda: total(cluster.hub) == 17, "the hub has what was counted meanwhile, and nothing twice")
        publish(engine, 3)
        engine.flush()
        wait_for(lambda: total(cluster.hub) == 20, "it goes on")
        assert (count(node, "lineages_closed_total"), count(node, "state_losses_total")) == (1, 0)
        node.agent.kill()
        node.agent.start().wait_ready()  # the new lineage is in the file
        publish(engine, 5)
        engine.flush()
        wait_for(lambda: total(cluster.hub) >= 25, "and on")
        assert total(cluster.hub) == 25
    wire.close()


def test_of_two_hubs_the_one_that_was_cut_off_lacks_what_the_other_was_told(new_cluster: Callable[..., Cluster], binaries: Path) -> None:
    cluster = new_cluster(hub_flags=HUB_FLAGS)
    wire = Wire(cluster.agents_port)
    agents, http = free_port(), free_port()
    second = Process("hub-2", [str(binaries / "statsbus-hub"), "--agents", f"tcp://127.0.0.1:{agents}", "--http", f"127.0.0.1:{http}"],
                     cluster.folder, http).start().wait_ready()
    try:
        node = cluster.add_node(flags=["--hub", f"tcp://127.0.0.1:{wire.port}, tcp://127.0.0.1:{agents}"])
        with Engine(node) as engine:
            engine.wait_subscribed()
            publish(engine, 10)
            wait_for(lambda: total(cluster.hub) == 10 and total(second) == 10, "both have ten")
            wire.cut()
            publish(engine, 7)
            wait_for(lambda: total(second) == 17, "the other hub goes on")
            wait_closed(cluster.hub)
            wire.mend()
            wait_for(lambda: count(node, "lineages_closed_total") == 1, "the first hub has told")
            publish(engine, 3)
            engine.flush()
            wait_for(lambda: total(cluster.hub) >= 13 and total(second) >= 20, "both go on")
            assert (total(cluster.hub), total(second)) == (13, 20)
    finally:
        second.stop()
        wire.close()
