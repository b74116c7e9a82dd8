"""MindIE-PyMotor's rules on one small deployment, every value worked out by hand, and each known fault of it done right.

Three instances of two data-parallel ranks each, of two roles, on two nodes:

    p-0  prefill  node-a  10.0.0.1  stage 0 replica 0
    d-0  decode   node-a  10.0.0.2  stage 1 replica 0
    d-1  decode   node-b  10.0.0.3  stage 1 replica 1
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import pytest

from daemons import Cluster, follows_time, samples, wait_for
from engine import Engine, source
from model.model import VIEWS, Contribution, Family, Series, labels_of
from wire_agent import WireAgent

pytestmark = pytest.mark.sanitized

INSTANCES = {
    "p-0": {"role": "prefill", "node": "node-a", "pod_ip": "10.0.0.1", "stage": "0", "replica": "0"},
    "d-0": {"role": "decode", "node": "node-a", "pod_ip": "10.0.0.2", "stage": "1", "replica": "0"},
    "d-1": {"role": "decode", "node": "node-b", "pod_ip": "10.0.0.3", "stage": "1", "replica": "1"},
}
RANKS = [(instance, rank) for instance in INSTANCES for rank in ("0", "1")]
SERVICE = {"service_name": "chat", "model_name": "tiny"}
BOUNDS = (0.1, 0.5, 1.0)


def catalog(name: str, kind: str, labels: dict[str, str] | None = None) -> Series:
    """A series of a family that the catalog knows; the hub is told nothing but its name."""
    return Series(Family(name, kind, "counter"), labels_of(labels or {}), BOUNDS if kind == "histogram" else None)


def described(name: str, kind: str, semantic: str, role_scope: tuple[str, ...] | None = None) -> Series:
    return Series(Family(name, kind, semantic, role_scope), (), BOUNDS if kind == "histogram" else None)


class Deployment:
    """One agent a node; every contribution is one rank of an instance."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.agents = {node: WireAgent(cluster, node.encode().ljust(16), node) for node in ("node-a", "node-b")}
        self.ranks: dict[tuple[str, str], Contribution] = {}
        for agent in self.agents.values():
            agent.connect()
        for epoch, (instance, rank) in enumerate(RANKS, 1):
            self.ranks[instance, rank] = self.define(epoch, instance, rank)

    def define(self, epoch: int, instance: str, rank: str, **changes: str) -> Contribution:
        where = INSTANCES[instance]
        key = {"service_name": "chat", "job_name": f"job-{instance}", "dp_rank": rank, "stage": where["stage"], "replica": where["replica"]}
        identity = {"model_name": "tiny", "instance_id": instance, **where, **key, **changes}
        made = Contribution(where["node"], epoch, "engine", labels_of(key), identity)
        self.agents[where["node"]].define(made)
        return made

    def agent(self, contribution: Contribution) -> WireAgent:
        return self.agents[contribution.identity["node"]]

    def frame(self, contribution: Contribution, cells: dict[Series, list[float]], gauges: dict[Series, float], live: bool = True) -> None:
        agent = self.agent(contribution)
        agent.send_bytes(agent.frame(contribution, cells, gauges, is_live=live)[1])

    def say(self, series: Series, values: list[Any]) -> None:
        """One value a rank, in the order of RANKS; None: it has none. Only for series that have no frame of others to replace."""
        for rank, value in zip(RANKS, values):
            if value is None:
                continue
            if series.family.type == "gauge":
                self.frame(self.ranks[rank], {}, {series: value})
            else:
                self.frame(self.ranks[rank], {series: value if isinstance(value, list) else [value]}, {})

    def say_all(self, table: dict[Series, list[Any]]) -> None:
        for i, rank in enumerate(RANKS):
            told = {series: values[i] for series, values in table.items() if values[i] is not None}
            self.frame(self.ranks[rank], {s: v if isinstance(v, list) else [v] for s, v in told.items() if s.family.type != "gauge"},
                       {s: v for s, v in told.items() if s.family.type == "gauge"})
        self.settle()

    def settle(self) -> None:
        for agent in self.agents.values():
            agent.settle()

    def drop(self) -> None:
        for agent in self.agents.values():
            agent.drop()


@contextmanager
def deployed(cluster: Cluster) -> Iterator[Deployment]:
    deployment = Deployment(cluster)
    try:
        yield deployment
    finally:
        deployment.drop()


@pytest.fixture
def deployment(cluster: Cluster) -> Iterator[Deployment]:
    with deployed(cluster) as made:
        yield made


GROUPS = {"all": list(INSTANCES), "decode": ["d-0", "d-1"], **{name: [name] for name in INSTANCES}}


def view_rows() -> Iterator[tuple[str, dict[str, str], str]]:
    """Every row of every view: view, the row's labels, and the group of ranks that are in it."""
    yield "full", {}, "all"
    for name, where in INSTANCES.items():
        yield "instance", {"instance_id": name, "role": where["role"]}, name
        yield "node", {"node": where["node"], "role": where["role"]}, name
        yield "pod", {"pod_ip": where["pod_ip"], "role": where["role"]}, name
        yield "replica", {"stage": where["stage"], "replica": where["replica"]}, name
        for rank in "01":
            yield "dp", {"dp_rank": rank, "role": where["role"], "instance_id": name, "pod_ip": where["pod_ip"]}, f"{name}/{rank}"
    yield "role", {"role": "prefill"}, "p-0"
    yield "role", {"role": "decode"}, "decode"
    yield "stage", {"stage": "0"}, "p-0"
    yield "stage", {"stage": "1"}, "decode"


ROWS = list(view_rows())


def scrape(cluster: Cluster, view: str, query: str = "") -> dict[tuple[tuple[str, str], ...], dict[str, float]]:
    """By a row's labels (all but `le` and own ones, which go to the name): its samples, without the hub's own."""
    keys = {"service_name", "model_name", *next(v.by for v in VIEWS if v.name == view)}
    rows: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for name, labels, value in samples(cluster.hub.metrics(view + query)):
        if name.startswith("statsbus_") or follows_time(name):
            continue
        own = ",".join(f"{k}={v}" for k, v in sorted(labels.items()) if k not in keys)
        row = rows.setdefault(labels_of({k: v for k, v in labels.items() if k in keys}), {})
        key = f"{name}{{{own}}}" if own else name
        assert key not in row, f"{view}: {key} twice"
        row[key] = value
    return rows


def assert_groups(cluster: Cluster, expected: dict[str, dict[str, float]], in_full: dict[str, float] | None = None,
                  only: str | tuple[str, ...] = "") -> None:
    """Every row of every view has exactly its group's samples (of those whose names start like `only`), and no view has another row."""
    for view in (v.name for v in VIEWS):
        wanted = {}
        for row_view, labels, group in ROWS:
            if row_view == view:
                values = in_full if view == "full" and in_full is not None else expected[group]
                if values:
                    wanted[labels_of({**SERVICE, **labels})] = pytest.approx(values, rel=1e-9)
        got = {row: {name: value for name, value in values.items() if name.startswith(only)} for row, values in scrape(cluster, view).items()}
        assert {row: values for row, values in got.items() if values} == wanted, view


# ---- every semantic in every view

NUMBERS = [1.0, 2.0, 10.0, 20.0, 100.0, 200.0]
SUMS: dict[str, float] = {"all": 333, "decode": 330, "p-0": 3, "d-0": 30, "d-1": 300,
        "p-0/0": 1, "p-0/1": 2, "d-0/0": 10, "d-0/1": 20, "d-1/0": 100, "d-1/1": 200}
MEANS: dict[str, float] = {**SUMS, "all": 55.5, "decode": 82.5, "p-0": 1.5, "d-0": 15, "d-1": 150}
MOSTS: dict[str, float] = {**SUMS, "all": 200, "decode": 200, "p-0": 2, "d-0": 20, "d-1": 200}

SEMANTICS: dict[str, tuple[str, dict[str, float]]] = {
    "counter": ("counter", SUMS), "throughput_counter": ("counter", SUMS), "ratio_numerator": ("counter", SUMS),
    "ratio_denominator": ("counter", SUMS), "state_gauge": ("gauge", SUMS), "queue_gauge": ("gauge", SUMS),
    "cache_metric": ("gauge", MEANS), "resource_utilization_gauge": ("gauge", MEANS), "hotspot_resource_gauge": ("gauge", MOSTS),
    "occupancy_metric": ("gauge", MOSTS), "metadata_gauge": ("gauge", MOSTS),
}


@pytest.mark.parametrize("semantic", SEMANTICS)
def test_a_semantic_in_every_view(deployment: Deployment, semantic: str) -> None:
    kind, groups = SEMANTICS[semantic]
    series = described(f"e:{semantic}" + ("_total" if kind == "counter" else ""), kind, semantic)
    for agent in deployment.agents.values():
        agent.described = {series.family.name}
    deployment.say(series, NUMBERS)
    deployment.settle()
    assert_groups(deployment.cluster, {group: {series.family.name: value} for group, value in groups.items()})


def test_families_that_say_no_semantic_go_by_their_type(deployment: Deployment) -> None:
    deployment.say_all({described("e:seen_total", "counter", "counter"): NUMBERS, described("e:now", "gauge", "state_gauge"): NUMBERS})
    assert_groups(deployment.cluster, {group: {"e:seen_total": value, "e:now": value} for group, value in SUMS.items()})


# ---- gauges of the catalog with their companions

RUNNING = catalog("vllm:num_requests_running", "gauge")
KV = catalog("vllm:kv_cache_usage_perc", "gauge")


def companions(running: float, most_running: float, kv: float | None, most_kv: float | None) -> dict[str, float]:
    out = {"vllm:num_requests_running": running, "vllm:num_requests_running_max": most_running}
    return out if kv is None or most_kv is None else {**out, "vllm:kv_cache_usage_perc": kv, "vllm:kv_cache_usage_perc_max": most_kv}


def test_running_adds_up_and_cache_usage_is_the_mean_of_those_that_have_one(deployment: Deployment) -> None:
    deployment.say_all({RUNNING: [4.0, 0.0, 7.0, 1.0, 2.0, 3.0], KV: [0.5, 0.25, 0.75, None, 1.0, 0.0]})
    assert_groups(deployment.cluster, {
        "p-0/0": companions(4, 4, 0.5, 0.5), "p-0/1": companions(0, 0, 0.25, 0.25),
        "d-0/0": companions(7, 7, 0.75, 0.75), "d-0/1": companions(1, 1, None, None),
        "d-1/0": companions(2, 2, 1, 1), "d-1/1": companions(3, 3, 0, 0),
        "p-0": companions(4, 4, 0.375, 0.5),      # 4 + 0; (0.5 + 0.25) / 2
        "d-0": companions(8, 7, 0.75, 0.75),      # 7 + 1; 0.75 / 1
        "d-1": companions(5, 3, 0.5, 1),          # 2 + 3; (1 + 0) / 2
        "decode": companions(13, 7, 1.75 / 3, 1),
        "all": companions(17, 7, 0.5, 1),         # 2.5 / 5
    })


def test_the_hit_rate_is_the_ratio_of_sums_and_absent_without_lookups(deployment: Deployment) -> None:
    hits, queries = catalog("vllm:prefix_cache_hits_total", "counter"), catalog("vllm:prefix_cache_queries_total", "counter")
    deployment.say_all({hits: [10.0, 20.0, 0.0, 5.0, 1.0, 0.0], queries: [20.0, 20.0, 0.0, 20.0, 4.0, 0.0]})

    def ratio(n: float, of: float, rate: float | None) -> dict[str, float]:
        out = {"vllm:prefix_cache_hits_total": n, "vllm:prefix_cache_queries_total": of}
        return out if rate is None else {**out, "vllm:prefix_cache_hit_rate": rate}

    assert_groups(deployment.cluster, {
        "p-0/0": ratio(10, 20, 0.5), "p-0/1": ratio(20, 20, 1), "d-0/0": ratio(0, 0, None), "d-0/1": ratio(5, 20, 0.25),
        "d-1/0": ratio(1, 4, 0.25), "d-1/1": ratio(0, 0, None),
        "p-0": ratio(30, 40, 0.75), "d-0": ratio(5, 20, 0.25), "d-1": ratio(1, 4, 0.25), "decode": ratio(6, 24, 0.25),
        "all": ratio(36, 64, 0.5625),
    })


def test_a_ratio_over_one_is_clamped(deployment: Deployment) -> None:
    hits, queries = catalog("vllm:prefix_cache_hits_total", "counter"), catalog("vllm:prefix_cache_queries_total", "counter")
    deployment.say_all({hits: [5.0, None, None, None, None, None], queries: [4.0, None, None, None, None, None]})
    assert deployment.cluster.hub.sample("vllm:prefix_cache_hit_rate") == 1


# ---- histograms

TTFT = catalog("vllm:time_to_first_token_seconds", "histogram")
# Counts of the buckets 0.1, 0.5, 1, +Inf, then the sum
TTFT_CELLS = [[5.0, 0.0, 0.0, 1.0, 3.0], [1.0, 1.0, 1.0, 1.0, 4.0],
              [4.0, 4.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0],
              [0.0, 6.0, 2.0, 2.0, 8.0], [6.0, 0.0, 0.0, 2.0, 6.0]]


def histogram(name: str, cumulative: list[int], total: float, quantiles: list[float] | None = None) -> dict[str, float]:
    out: dict[str, float] = {f"{name}_bucket{{le={le}}}": n for le, n in zip(("0.1", "0.5", "1.0", "+Inf"), cumulative)}
    out |= {f"{name}_sum": total, f"{name}_count": cumulative[-1]}
    if quantiles:
        out |= {f"{name}_p{q}{{quantile=0.{text}}}": v for q, text, v in zip((50, 95, 99), ("5", "95", "99"), quantiles)}
        out[f"{name}_mean"] = total / cumulative[-1]
    return out


def sla(*of: Any) -> dict[str, float]:
    return histogram(TTFT.family.name, *of)


TTFT_GROUPS = {
    "p-0/0": sla([5, 5, 5, 6], 3, [0.06, 1, 1]),              # rank 3 of 6: 0.1 * 3/5; above, only +Inf: the last bound
    "p-0/1": sla([1, 2, 3, 4], 4, [0.5, 1, 1]),               # rank 2: 0.1 + 0.4 * 1/1
    "d-0/0": sla([4, 8, 10, 10], 3, [0.2, 0.875, 0.975]),     # rank 5: 0.1 + 0.4 * 1/4; 9.5: 0.5 + 0.5 * 1.5/2; 9.9: 0.5 + 0.5 * 1.9/2
    "d-0/1": sla([0, 0, 0, 0], 0),                            # nothing observed: no quantile and no mean
    "d-1/0": sla([0, 6, 8, 10], 8, [0.1 + 0.4 * 5 / 6, 1, 1]),
    "d-1/1": sla([6, 6, 6, 8], 6, [0.1 * 4 / 6, 1, 1]),
    "p-0": sla([6, 7, 8, 10], 7, [0.1 * 5 / 6, 1, 1]),
    "d-0": sla([4, 8, 10, 10], 3, [0.2, 0.875, 0.975]),
    "d-1": sla([6, 12, 14, 18], 14, [0.3, 1, 1]),             # rank 9: 0.1 + 0.4 * 3/6
    "decode": sla([10, 20, 24, 28], 17, [0.26, 1, 1]),        # rank 14: 0.1 + 0.4 * 4/10; 26.6 is above 24
    "all": sla([16, 27, 32, 38], 24, [0.1 + 0.4 * 3 / 11, 1, 1]),  # rank 19
}


def test_sla_histograms_merge_with_quantiles_and_in_full_count_decode_alone(deployment: Deployment) -> None:
    deployment.say(TTFT, TTFT_CELLS)
    deployment.settle()
    assert_groups(deployment.cluster, TTFT_GROUPS, in_full=TTFT_GROUPS["decode"])


def test_role_scopes_can_be_lifted(new_cluster: Callable[..., Cluster]) -> None:
    with deployed(new_cluster(hub_flags=["--role-scope=false"])) as deployment:
        deployment.say(TTFT, TTFT_CELLS)
        deployment.settle()
        assert_groups(deployment.cluster, TTFT_GROUPS)


@pytest.mark.parametrize("name", ["vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds"])
def test_latency_histograms_have_quantiles(deployment: Deployment, name: str) -> None:
    deployment.say(catalog(name, "histogram"), TTFT_CELLS)
    deployment.settle()
    groups = {group: {key.replace(TTFT.family.name, name): value for key, value in values.items()} for group, values in TTFT_GROUPS.items()}
    assert_groups(deployment.cluster, groups, in_full=groups["decode"] if "e2e" in name else None)


@pytest.mark.parametrize("name", ["vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds", "vllm:request_params_n",
                                  "vllm:request_params_max_tokens", "vllm:iteration_tokens_total"])
def test_plain_histograms_merge_and_have_none(deployment: Deployment, name: str) -> None:
    deployment.say(catalog(name, "histogram"), TTFT_CELLS)
    deployment.settle()
    plain = {"p-0": ([6, 7, 8, 10], 7), "d-0": ([4, 8, 10, 10], 3), "d-1": ([6, 12, 14, 18], 14), "decode": ([10, 20, 24, 28], 17),
             "all": ([16, 27, 32, 38], 24), "p-0/0": ([5, 5, 5, 6], 3), "p-0/1": ([1, 2, 3, 4], 4), "d-0/0": ([4, 8, 10, 10], 3),
             "d-0/1": ([0, 0, 0, 0], 0), "d-1/0": ([0, 6, 8, 10], 8), "d-1/1": ([6, 6, 6, 8], 6)}
    assert_groups(deployment.cluster, {group: histogram(name, *of) for group, of in plain.items()})


SCOPED_GAUGE = described("e:decode_depth", "gauge", "queue_gauge", ("decode",))


def test_a_role_scope_holds_for_gauges_and_lets_both_and_none_pass(deployment: Deployment) -> None:
    for agent in deployment.agents.values():
        agent.described = {SCOPED_GAUGE.family.name}
    for epoch, role, value in ((11, "both", 1000.0), (12, "", 2000.0), (13, "encode", 4000.0)):
        extra = deployment.define(epoch, "d-1", f"{epoch}", role=role)
        deployment.frame(extra, {}, {SCOPED_GAUGE: value})
    deployment.say(SCOPED_GAUGE, NUMBERS)
    deployment.settle()
    assert deployment.cluster.hub.sample("e:decode_depth", "full") == 330 + 1000 + 2000
    assert deployment.cluster.hub.sample("e:decode_depth", "role", role="prefill") == 3
    assert deployment.cluster.hub.sample("e:decode_depth", "role", role="encode") == 4000


# ---- families of the process

def test_process_families_have_pymotors_semantics(deployment: Deployment) -> None:
    memory = catalog("process_resident_memory_bytes", "gauge")
    most_files = catalog("process_max_fds", "gauge")
    files = catalog("process_open_fds", "gauge")
    old, new = (catalog("python_info", "gauge", {"version": version}) for version in ("3.11", "3.12"))
    deployment.say_all({memory: [10.0, 20.0, 30.0, None, 50.0, 90.0], most_files: [1024.0, 1024.0, 2048.0, 1024.0, 512.0, None],
                        files: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], old: [1.0, 1.0, 1.0, None, None, None], new: [None, None, None, 1.0, 1.0, 1.0]})

    def process(rss: float | None, most: float | None, n: float, *versions: str) -> dict[str, float]:
        some = {"process_resident_memory_bytes": rss, "process_max_fds": most, "process_open_fds": n,
                **{f"python_info{{version={v}}}": 1.0 for v in versions}}
        return {name: value for name, value in some.items() if value is not None}

    assert_groups(deployment.cluster, {
        "p-0/0": process(10, 1024, 1, "3.11"), "p-0/1": process(20, 1024, 2, "3.11"), "d-0/0": process(30, 2048, 3, "3.11"),
        "d-0/1": process(None, 1024, 4, "3.12"), "d-1/0": process(50, 512, 5, "3.12"), "d-1/1": process(90, None, 6, "3.12"),
        "p-0": process(15, 1024, 3, "3.11"), "d-0": process(30, 2048, 7, "3.11", "3.12"), "d-1": process(70, 512, 11, "3.12"),
        "decode": process(170 / 3, 2048, 18, "3.11", "3.12"), "all": process(40, 2048, 21, "3.11", "3.12"),
    })


# ---- restarts

TOKENS = catalog("vllm:generation_tokens_total", "counter")


def test_an_instance_that_restarts_goes_on_where_its_row_does_not_name_it(deployment: Deployment) -> None:
    deployment.say_all({TOKENS: NUMBERS, TTFT: TTFT_CELLS, RUNNING: [1.0] * 6})
    for epoch, rank in enumerate("01", 21):
        old = deployment.ranks["d-1", rank]
        deployment.agent(old).end(old)
        new = deployment.define(epoch, "d-1", rank, instance_id="d-1b")
        deployment.frame(new, {TOKENS: [7.0], TTFT: [1.0, 0.0, 0.0, 0.0, 0.05]}, {RUNNING: 5.0})
    deployment.settle()
    hub = deployment.cluster.hub
    for view, labels in (("full", {}), ("role", {"role": "decode"}), ("stage", {"stage": "1"})):
        assert hub.sample("vllm:generation_tokens_total", view, **labels) == (333 if view == "full" else 330) + 14
        assert hub.sample("vllm:time_to_first_token_seconds_count", view, **labels) == 28 + 2
        assert hub.sample("vllm:time_to_first_token_seconds_bucket", view, le="0.1", **labels) == 10 + 2
        assert hub.sample("vllm:num_requests_running", view, **labels) == (4 if view == "full" else 2) + 10
    for view, labels in (("node", {"node": "node-b"}), ("pod", {"pod_ip": "10.0.0.3"}), ("replica", {"stage": "1", "replica": "1"})):
        assert hub.sample("vllm:generation_tokens_total", view, **labels) == 314
        assert hub.sample("vllm:time_to_first_token_seconds_count", view, **labels) == 20
        assert hub.sample("vllm:num_requests_running", view, **labels) == 10
    for view in ("instance", "dp"):
        assert hub.sample("vllm:generation_tokens_total", view, instance_id="d-1") == 300
        assert hub.sample("vllm:generation_tokens_total", view, instance_id="d-1b") == 14
        assert hub.sample("vllm:num_requests_running", view, instance_id="d-1") is None
        assert hub.sample("vllm:num_requests_running", view, instance_id="d-1b") == 10


# ---- faults of it that are not repeated

ALL_VIEWS = [view.name for view in VIEWS]


def test_a_restart_that_looks_like_nothing_is_counted_whole(cluster: Cluster) -> None:
    """Its rule: without a new instance id, a counter that drops by a tenth or less did not restart."""
    node = cluster.add_node()
    for tokens in (100, 95):
        with Engine(node) as engine:
            engine.wait_subscribed()
            engine.step(0, None, {"num_generation_tokens": tokens})
            engine.flush()
            engine.bye()
            engine.drain()
    for view in ALL_VIEWS:
        wait_for(lambda view=view: cluster.hub.sample("vllm:generation_tokens_total", view) == 195, f"195 in {view}")  # type: ignore[misc]


def test_every_counter_and_histogram_survives_a_restart(cluster: Cluster) -> None:
    """It corrects nine counters and no histogram."""
    node = cluster.add_node()
    families = [{"name": "e:odd_total", "type": "counter", "help": "x", "labels": []},
                {"name": "e:odd_seconds", "type": "histogram", "help": "x", "labels": [], "buckets": [1.0, 2.0]}]
    for life in ("i-1", "i-2"):
        with Engine(node, [source(0, instance_id=life)], hello={"families": families}) as engine:
            engine.wait_subscribed()
            engine.observe(["e:odd_total", None, 3], ["e:odd_seconds", None, [0.5, 1.5, 5.0]], ["vllm:num_preemptions_total", None, 2])
            engine.step(0, None, {"finished_requests": [{"finish_reason": "stop", "e2e_latency": 0.4}]})
            engine.flush()
            engine.bye()
            engine.drain()
    expected = {"e:odd_total": 6, "e:odd_seconds_count": 6, "e:odd_seconds_sum": 14, "vllm:num_preemptions_total": 4,
                "vllm:request_success_total": 2, "vllm:e2e_request_latency_seconds_count": 2}
    for view in ALL_VIEWS:
        for name, value in expected.items():
            wait_for(lambda v=view, n=name, x=value: cluster.hub.sample(n, v) == x, f"{name} in {view} is {value}")  # type: ignore[misc]


def test_totals_survive_the_hub(new_cluster: Callable[..., Cluster]) -> None:
    """Its state dies with it."""
    cluster = new_cluster()
    with deployed(cluster) as deployment:
        deployment.say_all({TOKENS: NUMBERS})
        cluster.hub.kill()
        cluster.hub.start().wait_ready()
        for agent in deployment.agents.values():
            agent.connect()
        for contribution in deployment.ranks.values():
            deployment.agent(contribution).define(contribution)
        deployment.say_all({TOKENS: NUMBERS})
        assert_groups(cluster, {group: {TOKENS.family.name: value} for group, value in SUMS.items()})


@pytest.mark.parametrize("how", ["end", "not live", "silent"])
def test_the_dead_are_not_zeros_in_a_mean(new_cluster: Callable[..., Cluster], how: str) -> None:
    cluster = new_cluster(hub_flags=["--agent-timeout", "2s"])
    with deployed(cluster) as deployment:
        deployment.say_all({KV: [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]})
        assert cluster.hub.sample("vllm:kv_cache_usage_perc") == pytest.approx(4 / 6)
        for rank in "01":
            dead = deployment.ranks["d-1", rank]
            if how == "end":
                deployment.agent(dead).end(dead)
            elif how == "not live":
                deployment.frame(dead, {}, {}, live=False)

        def is_dead() -> bool:
            deployment.agents["node-a"].beat()
            if how != "silent":
                deployment.agents["node-b"].beat()
            return cluster.hub.sample("vllm:kv_cache_usage_perc", "node", node="node-b") is None

        wait_for(is_dead, "the gauges of d-1 left")
        for view, labels in (("full", {}), ("role", {"role": "decode"})):
            value = cluster.hub.sample("vllm:kv_cache_usage_perc", view, **labels)
            assert value == pytest.approx(0.5 if view == "full" else 0.7)
        assert cluster.hub.sample("vllm:kv_cache_usage_perc_max") == 0.8


def test_what_one_agent_says_wrong_costs_nobody_else(deployment: Deployment) -> None:
    """One bad line of one endpoint voids its whole cycle."""
    deployment.say_all({TOKENS: NUMBERS, KV: [0.5] * 6})
    bad = WireAgent(deployment.cluster, b"bad".ljust(16))
    for message in (b"\xc1", msgspec.msgpack.encode(["FRAME", 1, 1, 99, 0, True, b"", b"", b"abc", b""]), b""):
        bad.connect()
        bad.send_bytes(message)
        assert bad.socket and bad.socket.poll(10_000)
    assert_groups(deployment.cluster, {group: {TOKENS.family.name: value} for group, value in SUMS.items()}, only=TOKENS.family.name)
    bad.drop()


UNLIKE = (0.5,), (0.5, 1.0)


def test_unlike_buckets_are_never_added_by_position(deployment: Deployment) -> None:
    """Case 2's numbers, in every view: p-0 and d-0 have {0.5, 1}, d-1 has {0.5}."""
    few, many = (Series(Family("vllm:request_queue_time_seconds", "histogram", "histogram_latency"), (), bounds) for bounds in UNLIKE)
    for (instance, rank), contribution in deployment.ranks.items():
        if rank == "0":
            cells = {few: [5.0, 4.0, 9.25]} if instance == "d-1" else {many: [10.0, 2.0, 8.0, 20.0]}
            deployment.frame(contribution, cells, {})
    deployment.settle()
    name = "vllm:request_queue_time_seconds"

    def shown(values: dict[str, float], total: float, *q: float) -> dict[str, float]:
        out = {f"{name}_bucket{{le={le}}}": n for le, n in values.items()}
        return {**out, f"{name}_sum": total, f"{name}_count": values["+Inf"], f"{name}_p50{{quantile=0.5}}": q[0],
                f"{name}_p95{{quantile=0.95}}": q[1], f"{name}_p99{{quantile=0.99}}": q[2], f"{name}_mean": total / values["+Inf"]}

    one = shown({"0.5": 10, "1.0": 12, "+Inf": 20}, 20, 0.5, 1, 1)     # rank 10 of 20: 0.5 * 10/10
    other = shown({"0.5": 5, "+Inf": 9}, 9.25, 0.45, 0.5, 0.5)         # rank 4.5: 0.5 * 4.5/5
    assert_groups(deployment.cluster, {
        "p-0/0": one, "d-0/0": one, "d-1/0": other, "p-0/1": {}, "d-0/1": {}, "d-1/1": {}, "p-0": one, "d-0": one, "d-1": other,
        "decode": shown({"0.5": 15, "+Inf": 29}, 29.25, 0.5 * 14.5 / 15, 0.5, 0.5),
        "all": shown({"0.5": 25, "+Inf": 49}, 49.25, 0.5 * 24.5 / 25, 0.5, 0.5),
    })
    assert deployment.cluster.hub.sample("statsbus_hub_bounds_conflicts_total", family=name) == 1


def test_all_that_is_passed_through_is_shown(deployment: Deployment) -> None:
    """It shows whichever instance came first."""
    big, small = (catalog("vllm:cache_config_info", "gauge", {"block_size": size}) for size in ("32", "16"))
    start = catalog("process_start_time_seconds", "gauge")
    deployment.say_all({small: [1.0, 1.0, 1.0, None, None, None], big: [None, None, None, 1.0, 1.0, 1.0],
                        start: [5.0, 9.0, 7.0, 3.0, 2.0, 1.0]})
    full = scrape(deployment.cluster, "full")[labels_of(SERVICE)]
    assert full == {"vllm:cache_config_info{block_size=16}": 1, "vllm:cache_config_info{block_size=32}": 1, "process_start_time_seconds": 9}


def test_nobody_waits_for_one_that_is_slow(new_cluster: Callable[..., Cluster]) -> None:
    """It asks its engines one after the other. Here a stopped agent, a mute one and scrapers that never read hold up nobody."""
    cluster = new_cluster(hub_flags=["--agent-timeout", "60s"])
    stopped = cluster.add_node("node-s")
    stopped.agent.send(signal.SIGSTOP)
    try:
        with deployed(cluster) as deployment, ExitStack() as stack:
            mute = WireAgent(cluster, b"mute".ljust(16))
            mute.connect()
            for _ in range(4):
                scraper = stack.enter_context(socket.create_connection(("127.0.0.1", cluster.hub.port or 0)))
                scraper.sendall(b"GET /metrics?type=dp HTTP/1.1\r\nHost: x\r\n\r\n")
            deployment.say_all({TOKENS: NUMBERS})
            assert_groups(cluster, {group: {TOKENS.family.name: value} for group, value in SUMS.items()})
            mute.drop()
    finally:
        stopped.agent.send(signal.SIGCONT)
