"""Runs a hub and agents on free ports of this machine, in a folder of their own. Used by scripts/demo and the tests."""

from __future__ import annotations

import ctypes
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

REPOSITORY = Path(__file__).resolve().parent.parent
CAPTURES = REPOSITORY / "tests" / "data" / "captures"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
POLL_S = 0.02  # between two looks at something that is waited for
T = TypeVar("T")


class DaemonError(Exception):
    """A daemon did not do what it has to; the text holds the end of its log."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(look: Callable[[], T], what: str, limit_s: float = 15.0, every_s: float = POLL_S) -> T:
    """Asks until the answer is true in Python's sense, and returns it."""
    end = time.monotonic() + limit_s
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise DaemonError(f"not within {limit_s:g} s: {what}")
        time.sleep(every_s)


def http_get(port: int, path: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def _before_exec() -> None:
    """In the child: a group of its own, so that Ctrl-C reaches us alone, and it dies with us, however we end."""
    os.setpgid(0, 0)
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A child with a log file. `port` is its HTTP side, if it has one."""

    def __init__(self, name: str, command: list[str], folder: Path, port: int | None = None) -> None:
        self.name = name
        self.command = command
        self.port = port
        self.log_path = folder / f"{name}.log"
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        with open(self.log_path, "ab") as log:
            self._popen = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           cwd=REPOSITORY, preexec_fn=_before_exec)
        return self

    @property
    def pid(self) -> int:
        assert self._popen is not None
        return self._popen.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def poll(self) -> int | None:
        return self._popen.poll() if self._popen else None

    def is_running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        assert self._popen is not None
        self._popen.send_signal(number)

    def wait(self, limit_s: float = 60.0) -> int:
        assert self._popen is not None
        try:
            return self._popen.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise DaemonError(f"{self.name} still runs after {limit_s:g} s; its log ends:\n{self.log()[-2000:]}") from None

    def finish(self, limit_s: float = 60.0) -> None:
        """Waits for the end, which must be a good one."""
        code = self.wait(limit_s)
        if code != 0:
            raise DaemonError(f"{self.name} ended with {code}; its log ends:\n{self.log()[-2000:]}")

    def stop(self, limit_s: float = 15.0) -> int:
        """SIGTERM; the exit code."""
        if self.is_running():
            self.send(signal.SIGTERM)
        return self.wait(limit_s)

    def kill(self) -> None:
        if self.is_running():
            self.send(signal.SIGKILL)
            self.wait()

    # The HTTP side

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
        assert self.port is not None
        return http_get(self.port, path, headers)

    def metrics(self, view: str = "", accept: str = "text/plain") -> str:
        status, _, body = self.get("/metrics" + (f"?type={view}" if view else ""), {"Accept": accept})
        if status != 200:
            raise DaemonError(f"{self.name}: /metrics answers {status}: {body[:300]!r}")
        return body.decode()

    def sample(self, name: str, view: str = "", **labels: str) -> float | None:
        """The sum of the samples with this name whose labels include the given ones; None when there is none."""
        return sample(self.metrics(view), name, **labels)

    def wait_ready(self, limit_s: float = 30.0) -> Process:
        def is_ready() -> bool:
            if not self.is_running():
                raise DaemonError(f"{self.name} ended with {self.poll()}; its log ends:\n{self.log()[-2000:]}")
            try:
                return self.get("/readyz")[0] == 200
            except OSError:
                return False

        wait_for(is_ready, f"{self.name} is ready", limit_s)
        return self


_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    """Every sample line of a scrape. Not a checking parser: tests use prometheus_client's where validity counts."""
    out = []
    for line in text.split("\n"):  # not splitlines(), to which further characters end a line
        if match := _LINE.match(line):
            labels = {name: _ESCAPE.sub(lambda m: {"n": "\n"}.get(m[1], m[1]), value)
                      for name, value in _LABEL.findall(match[2] or "")}
            out.append((match[1], labels, float(match[3])))
    return out


def follows_time(name: str) -> bool:
    """Computed metrics and windows: what they show depends on when a view is scraped, and tests of totals leave them out."""
    return name.startswith("motor_") or "_window" in name


def sample(text: str, name: str, **labels: str) -> float | None:
    values = [value for found, have, value in samples(text)
              if found == name and all(have.get(k) == v for k, v in labels.items())]
    return sum(values) if values else None


class Node:
    """One agent and its endpoints."""

    def __init__(self, folder: Path, binaries: Path, hub_endpoint: str, name: str, flags: list[str]) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.engines = f"ipc://{self.folder}/engines"
        self.replay = f"ipc://{self.folder}/replay"
        self.state = self.folder / "agent.state"
        self.port = free_port()
        command = [str(binaries / "statsbus-agent"), "--engines", self.engines, "--replay", self.replay, "--hub", hub_endpoint,
                   "--node", name, "--state", str(self.state), "--http", f"127.0.0.1:{self.port}", *flags]
        self.agent = Process("agent", command, self.folder, self.port)


class Cluster:
    """A hub, agents, and players of recordings. Everything ends with the `with` block."""

    def __init__(self, binaries: Path, hub_flags: list[str] | None = None) -> None:
        self.binaries = binaries
        self.folder = Path(tempfile.mkdtemp(prefix="statsbus-"))
        self.agents_port = free_port()
        self.hub_endpoint = f"tcp://127.0.0.1:{self.agents_port}"
        port = free_port()
        self.hub = Process("hub", [str(binaries / "statsbus-hub"), "--agents", self.hub_endpoint,
                                   "--http", f"127.0.0.1:{port}", *(hub_flags or [])], self.folder, port)
        self.nodes: list[Node] = []
        self.players: list[Process] = []
        self._n_players = 0  # ever; players may be taken out of the list

    def __enter__(self) -> Cluster:
        try:
            self.hub.start().wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan_node(self, name: str = "node-a", flags: list[str] | None = None) -> Node:
        """A node whose agent has not been started."""
        node = Node(self.folder, self.binaries, self.hub_endpoint, name, flags or [])
        self.nodes.append(node)
        return node

    def add_node(self, name: str = "node-a", flags: list[str] | None = None) -> Node:
        node = self.plan_node(name, flags)
        node.agent.start().wait_ready()
        return node

    def player(self, node: Node, stream: Path, *flags: str, speed: str = "max", service: str = "demo", job_name: str = "engine-0",
               instance_id: str = "i-1", role: str = "both") -> Process:
        """An engine that replays a recording; started."""
        command = [sys.executable, "-m", "statsbus", "replay", str(stream), "--engines", node.engines, "--replay", node.replay,
                   "--speed", speed, "--service", service, "--job-name", job_name, "--instance-id", instance_id,
                   "--role", role, *flags]
        player = Process(f"player-{self._n_players}", command, self.folder)
        self._n_players += 1
        self.players.append(player)
        return player.start()

    def close(self) -> None:
        for process in [*self.players, *(node.agent for node in self.nodes), self.hub]:
            if process.is_running():
                try:
                    process.stop(10)
                except DaemonError:
                    process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
