"""A connection whose other end is gone without a word, as after a host's power failure."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, List

from statsbus import Publisher
from statsbus import link as link_module

ITERATION = {"num_generation_tokens": 3}


def records_of(agent, publisher):
    return agent.records.get(publisher.id, {})


class Swallower:
    """A TCP proxy. What it swallows stays open on both sides, and nothing comes through any more."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: List[List[Any]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        for pair in self._open:
            pair.append("swallowed")

    def close(self) -> None:
        self._listener.close()
        for near, far, *_ in self._open:
            near.close()
            far.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                host, _, port = self._target[len("tcp://") :].partition(":")
                pair = [near, socket.create_connection((host, int(port)))]
                self._open.append(pair)
                for a, b in (pair, pair[::-1]):
                    threading.Thread(target=self._pump, args=(a, b, pair), daemon=True).start()

    def _pump(self, source: Any, target: Any, pair: List[Any]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if len(pair) == 2:
                    target.sendall(data)


def test_an_agent_that_vanished_without_a_word_is_found_again(agent, monkeypatch):
    monkeypatch.setattr(link_module, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(link_module, "HEARTBEAT_TIMEOUT_S", 0.6)
    ports = [agent.stats.bind_to_random_port("tcp://127.0.0.1"), agent.router.bind_to_random_port("tcp://127.0.0.1")]
    engines, replay = (Swallower(f"tcp://127.0.0.1:{port}") for port in ports)
    publisher = Publisher([{}], engines=engines.endpoint, replay=replay.endpoint, batch_s=0.01, beat_s=0.2)
    try:
        agent.until(lambda: agent.of("hello"))
        agent.say(publisher.id, "hello")
        agent.until(lambda: [m for m in agent.of("hello") if m.is_replay])
        engines.swallow()
        replay.swallow()
        publisher.step(0, None, ITERATION)
        agent.until(lambda: len(agent.of("hello")) >= 3)  # it has connected again
        publisher.step(0, None, ITERATION)
        agent.until(lambda: 2 in records_of(agent, publisher))
        agent.say(publisher.id, "ask", 1, 1)
        agent.until(lambda: 1 in records_of(agent, publisher))
    finally:
        publisher.close(timeout_s=0.0)
        engines.close()
        replay.close()
