"""Computed metrics of the real hub, declared in YAML."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from daemons import REPOSITORY, Cluster, sample, wait_for
from model.model import Family, Series
from players import CELLS, GAUGES, Player

DOCUMENT = (REPOSITORY / "docs" / "computed.md").read_text()
NEW_TOKENS = Series(Family("vllm:new_tokens_total", "counter", "counter"))
SUCCESS = Series(Family("vllm:request_success_total", "counter", "counter"), (("finished_reason", "stop"),))
WAITING = Series(Family("vllm:num_requests_waiting", "gauge", "queue_gauge"))
RATE_WINDOW_S = 2.0
FLAGS = ["--rate-window", f"{RATE_WINDOW_S:.0f}s"]


def document_file(folder: Path) -> str:
    (found,) = re.findall(r"(?m)^    # computed.yaml\n((?:    .*\n)+)", DOCUMENT)
    path = folder / "computed.yaml"
    path.write_text(re.sub(r"(?m)^    ", "", found))
    return str(path)


def test_metrics_of_the_document_are_edits_of_yaml(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = new_cluster(hub_flags=["--computed", document_file(tmp_path), *FLAGS])
    player = Player(cluster)
    sources = [player.define(job, role=role) for job, role in (("d0", "decode"), ("d1", "decode"), ("p0", "prefill"))]
    for n, made in enumerate(sources):
        player.say(made, {**CELLS, NEW_TOKENS: [1000.0]}, {**GAUGES, WAITING: float(10 ** n)})
    assert cluster.hub.sample("motor_decode_queue_depth") == 11
    assert cluster.hub.sample("motor_decode_queue_depth", "role") is None
    assert cluster.hub.sample("motor_active_decode_workers") == 2

    def counted() -> bool:
        for made in sources:
            player.say(made, {NEW_TOKENS: [1000.0]}, GAUGES)
        return cluster.hub.sample("motor_new_tokens_per_second") == 0

    wait_for(counted, "totals of the past are not a rate")
    for made in sources:
        player.say(made, {NEW_TOKENS: [1000.0 + 30]}, GAUGES)
    wait_for(lambda: (cluster.hub.sample("motor_new_tokens_per_second") or 0) > 0, "a rate over the window")
    for view in ("dp", "role", "node"):
        for_all = sample(cluster.hub.metrics(view), "motor_new_tokens_per_second")
        assert for_all == pytest.approx(cluster.hub.sample("motor_new_tokens_per_second"), rel=0.8), view


def test_a_steady_flow_has_its_rate_in_every_view(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(hub_flags=FLAGS)
    player = Player(cluster)
    made = [player.define(job, role="decode") for job in ("d0", "d1")]
    step = 0

    def flow() -> bool:
        nonlocal step
        step += 1
        for each in made:
            player.say(each, {**CELLS, SUCCESS: [5.0 * step]}, GAUGES)
        rates = [cluster.hub.sample("motor_request_rate", view) for view in ("full", "role", "dp", "node", "instance")]
        return None not in rates and min(r or 0 for r in rates) > 0

    wait_for(flow, "rates in all views", every_s=0.2)
    assert len([1 for line in cluster.hub.metrics("dp").splitlines() if line.startswith("motor_request_rate{")]) == 2
    for each in made:
        player.end(each)
    assert cluster.hub.sample("motor_request_rate") is None
    assert cluster.hub.sample("motor_active_decode_workers") == 0
    assert cluster.hub.sample("motor_inactive_decode_workers") == 2


def test_prefix_and_expected_workers_are_settings(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(hub_flags=["--computed-prefix", "motor:", "--expected-workers", "decode=3"])
    player = Player(cluster)
    player.join("d0", role="decode")
    player.join("p0", role="prefill")
    hub = cluster.hub
    assert [hub.sample(f"motor:{state}_decode_workers") for state in ("active", "inactive")] == [1, 2]
    assert hub.sample("motor:pd_ratio_current") == 1
    assert "motor_" not in hub.metrics()


def test_check_config_tells_where_a_mistake_is(binaries: Path, tmp_path: Path) -> None:
    path = tmp_path / "computed.yaml"
    for text, reason in (
        ("version: 1\ncomputed:\n  a: {type: sum, phase: after_aggregation, help: h}\n", "computed.yaml:3: 'motor_a' needs a type"),
        ("version: 1\ncomputed:\n  a: {type: counter_rate, phase: before_aggregation, sources: [vllm:num_requests_running], help: h}\n",
         "computed.yaml:3: 'motor_a': vllm:num_requests_running is a gauge"),
    ):
        path.write_text(text)
        done = subprocess.run([binaries / "statsbus-hub", "--check-config", "--computed", str(path)], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and reason in done.stderr, done.stderr
    path.write_text("version: 1\ncomputed:\n  running: {type: worker_count, phase: after_aggregation, help: h}\n")
    done = subprocess.run([binaries / "statsbus-hub", "--check-config", "--computed", str(path), "--computed-prefix", "vllm:num_requests_"],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "computed.yaml:3: 'vllm:num_requests_running' is the name of a family" in done.stderr, done.stderr
    done = subprocess.run([binaries / "statsbus-hub", "--check-config", "--computed", document_file(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
