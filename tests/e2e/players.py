"""An agent of a test with a few sources, each with the same numbers unless it is said otherwise."""

from __future__ import annotations

from typing import Any

from daemons import Cluster, follows_time, samples, wait_for
from model.model import Contribution, Family, Series, labels_of
from wire_agent import WireAgent

TOKENS = Series(Family("vllm:generation_tokens_total", "counter", "throughput_counter"))
HITS = Series(Family("vllm:prefix_cache_hits_total", "counter", "ratio_numerator"))
QUERIES = Series(Family("vllm:prefix_cache_queries_total", "counter", "ratio_denominator"))
RUNNING = Series(Family("vllm:num_requests_running", "gauge", "state_gauge"))
KV = Series(Family("vllm:kv_cache_usage_perc", "gauge", "cache_metric"))
TTFT = Series(Family("vllm:time_to_first_token_seconds", "histogram", "sla_metric"), (), (0.5, 1.0))
CELLS: dict[Series, list[float]] = {TOKENS: [10.0], HITS: [1.0], QUERIES: [4.0], TTFT: [1.0, 1.0, 0.0, 1.0]}
GAUGES = {RUNNING: 2.0, KV: 0.5}


class Player:
    """One agent and its contributions."""

    def __init__(self, cluster: Cluster, name: str = "one", described: Any = ()) -> None:
        self.name = name
        self.wire = WireAgent(cluster, name.encode().ljust(16), f"node-{name}", described)
        self.wire.connect()
        self.epoch = 0

    def define(self, job: str = "j", kind: str = "engine", **labels: str) -> Contribution:
        self.epoch += 1
        key = {"service_name": "chat", "job_name": job, "dp_rank": "0" if kind == "engine" else ""}
        identity = {"model_name": "tiny", "instance_id": f"i-{job}", "role": "both", "node": self.wire.node, **key, **labels}
        key = {name: identity[name] for name in (*key, "stage", "replica") if identity.get(name)}
        made = Contribution(self.name, self.epoch, kind, labels_of(key), {k: v for k, v in identity.items() if v})
        self.wire.define(made)
        return made

    def say(self, contribution: Contribution, cells: dict[Series, list[float]] | None = None, gauges: dict[Series, float] | None = None,
            live: bool = True) -> None:
        cells = CELLS if cells is None else cells
        self.wire.send_bytes(self.wire.frame(contribution, cells, (GAUGES if gauges is None else gauges) if live else {}, is_live=live)[1])
        self.wire.settle()

    def join(self, job: str = "j", kind: str = "engine", **labels: str) -> Contribution:
        made = self.define(job, kind, **labels)
        self.say(made, gauges=None if kind == "engine" else {})
        return made

    def end(self, contribution: Contribution) -> None:
        self.wire.end(contribution)
        self.wire.settle()

    def forget(self, contribution: Contribution) -> None:
        self.wire.forget(contribution)
        self.wire.settle()


def names(text: str) -> set[str]:
    return {name for name, _, _ in samples(text) if not name.startswith("statsbus_") and not follows_time(name)}


def scrape(cluster: Cluster, query: str, accept: str = "text/plain") -> str:
    status, _, body = cluster.hub.get("/metrics?" + query, {"Accept": accept})
    assert status == 200, (query, body)
    return body.decode()


def tokens(cluster: Cluster, view: str, **labels: str) -> float | None:
    return cluster.hub.sample("vllm:generation_tokens_total", view, **labels)


def gone(cluster: Cluster, *players: Player, view: str = "dp", **labels: str) -> None:
    def is_gone() -> bool:
        for player in players:
            player.wire.beat()
        return tokens(cluster, view, **labels) is None

    wait_for(is_gone, f"the row {labels} left {view}")
