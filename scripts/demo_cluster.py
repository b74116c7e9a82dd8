"""The cluster of scripts/demo: two nodes, engines that replay recordings, one of which restarts now and then."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import NamedTuple

from daemons import CAPTURES, REPOSITORY, Cluster, DaemonError, Node, Process, free_port

SERVICE = "demo"
NODES = ("node-a", "node-b")
# Quicker than by default, so that what happens is seen to happen: a killed engine's gauges go, an ended one's row goes.
AGENT_FLAGS = ["--source-timeout", "5s"]
HUB_FLAGS = ["--linger", "20s"]


class Engine(NamedTuple):
    name: str
    node: str
    role: str
    capture: str
    restarts: bool = False


ENGINES = (
    Engine("prefill-0", "node-a", "prefill", "plain"),
    Engine("decode-0", "node-a", "decode", "dp2"),  # two data parallel ranks, behind two API server processes
    Engine("prefill-1", "node-b", "prefill", "spec", restarts=True),
    Engine("decode-1", "node-b", "decode", "smallkv"),  # a cache that is too small: requests wait
)


class Lives:
    """When an engine that restarts now and then ends and begins: for `up_s` it runs, then it is away for `down_s`."""

    def __init__(self, up_s: float, down_s: float, now: float) -> None:
        self._up_s, self._down_s = up_s, down_s
        self._next = now + up_s
        self.life = 1
        self.is_up = True

    def is_due(self, now: float) -> bool:
        """True once for each change; `is_up` and `life` say what it is to be from then on."""
        if now < self._next:
            return False
        self.is_up = not self.is_up
        self.life += self.is_up
        self._next = now + (self._up_s if self.is_up else self._down_s)
        return True

    @property
    def is_killed(self) -> bool:
        """Every second life ends without a word, as when a machine fails."""
        return self.life % 2 == 0


class Played:
    """An engine of the demo: its processes, one for each stream of its recording."""

    def __init__(self, cluster: Cluster, node: Node, engine: Engine) -> None:
        self.engine = engine
        self._cluster, self._node = cluster, node
        self._processes: list[Process] = []

    def start(self, life: int) -> None:
        streams = sorted((CAPTURES / self.engine.capture).glob("stream*.bin.gz"))
        self._processes = [
            self._cluster.player(self._node, stream, "--loop", "--bye", speed="1", service=SERVICE, job_name=self.engine.name,
                                 instance_id=f"{self.engine.name}-{life}", role=self.engine.role) for stream in streams]

    def end(self, is_killed: bool) -> None:
        for process in self._processes:
            process.send(signal.SIGKILL if is_killed else signal.SIGTERM)
        for process in self._processes:
            process.wait()
            self._cluster.players.remove(process)
        self._processes = []

    def processes(self) -> list[Process]:
        return self._processes


class Demo:
    """All of it, running from `start` on; `step` is to be called often."""

    def __init__(self, cluster: Cluster, up_s: float, down_s: float, now: float) -> None:
        self._cluster = cluster
        nodes = {name: cluster.add_node(name, AGENT_FLAGS) for name in NODES}
        self.engines = [Played(cluster, nodes[engine.node], engine) for engine in ENGINES]
        for played in self.engines:
            played.start(life=1)
        self._lives = Lives(up_s, down_s, now)
        self.prometheus: Process | None = None

    def step(self, now: float) -> None:
        """Raises DaemonError when something ended that should not."""
        for process in [*self._processes_that_stay(), *(node.agent for node in self._cluster.nodes), self._cluster.hub]:
            if not process.is_running():
                raise DaemonError(f"{process.name} ended with {process.poll()}; its log ends:\n{process.log()[-2000:]}")
        if not self._lives.is_due(now):
            return
        for played in self.engines:
            if played.engine.restarts and self._lives.is_up:
                played.start(self._lives.life)
            elif played.engine.restarts:
                played.end(self._lives.is_killed)

    def _processes_that_stay(self) -> list[Process]:
        return [process for played in self.engines for process in played.processes()] + ([self.prometheus] if self.prometheus else [])

    def start_prometheus(self) -> None:
        """The one of docker/prometheus.yml, with this cluster's addresses in it."""
        if not shutil.which("prometheus"):
            raise DaemonError("prometheus is not installed (it is the program `prometheus` on the PATH)")
        folder, port = self._cluster.folder, free_port()
        config = folder / "prometheus.yml"
        config.write_text(prometheus_config((REPOSITORY / "docker" / "prometheus.yml").read_text(), self._cluster))
        self.prometheus = Process("prometheus", prometheus_command(config, folder / "tsdb", port), folder, port)
        self._cluster.players.append(self.prometheus)  # ends with the cluster
        self.prometheus.start()


def prometheus_config(text: str, cluster: Cluster) -> str:
    """Puts ports of this machine in the place of the services of compose.yaml."""
    agents = ("agent-a:9465", "agent-b:9466")
    ports = {"hub:9464": cluster.hub.port, **{name: node.agent.port for name, node in zip(agents, cluster.nodes)}}
    for target, port in ports.items():
        if f'"{target}"' not in text:
            raise DaemonError(f"docker/prometheus.yml has no target {target}")
        text = text.replace(f'"{target}"', f'"127.0.0.1:{port}"')
    return text


def prometheus_command(config: Path, storage: Path, port: int) -> list[str]:
    return ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={storage}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
