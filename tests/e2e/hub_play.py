"""A hub without sockets whose clock a test sets (tests/unit/hub/hub_play.c), and agents that speak to it."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import Any

from wire_agent import Session, WireAgent


class HubPlay:
    def __init__(self, binaries: Path, windows: str = "60s", rate_window_s: float = 10.0) -> None:
        program = binaries.parent / "tests" / "hub_play"
        self.process = subprocess.Popen([program, windows, str(int(rate_window_s * 1000))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.n_sessions = 0

    def __enter__(self) -> HubPlay:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=30)
        assert self.process.returncode == 0

    def say(self, command: bytes, *parts: int | bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(command + b"".join(struct.pack("<Q", part) if isinstance(part, int) else part for part in parts))

    def time(self, ms: int) -> None:
        self.say(b"T", ms)

    def begin_session(self) -> int:
        self.n_sessions += 1
        self.say(b"N", self.n_sessions)
        return self.n_sessions

    def scrape(self, view: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.say(b"S", len(view), view.encode())
        self.process.stdin.flush()
        (n,) = struct.unpack("<Q", self.process.stdout.read(8))
        return self.process.stdout.read(n).decode()


class _Line:
    """In the place of a socket."""

    def __init__(self, hub: HubPlay) -> None:
        self.hub, self.session = hub, hub.begin_session()

    def send(self, message: bytes) -> None:
        self.hub.say(b"M", self.session, len(message), message)


class PlayedAgent(WireAgent):
    """Gets no answers, and needs none: what is refused ends the hub."""

    def __init__(self, hub: HubPlay, lineage: bytes, node: str) -> None:
        super().__init__(None, lineage, node)  # type: ignore[arg-type]
        self.hub = hub

    def connect(self, limit_s: float = 0.0) -> list[Any]:
        self.session = Session()
        self.socket = _Line(self.hub)  # type: ignore[assignment]
        self.send("HELLO", 1, self.node, self.lineage, self.generation, "test")
        return []
