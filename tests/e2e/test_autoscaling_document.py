"""What docs/autoscaling.md shows can be read, and names what a hub has."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from daemons import REPOSITORY, Cluster, samples, wait_for
from model.model import Family, Series
from players import CELLS, GAUGES, Player

DOCUMENT = (REPOSITORY / "docs" / "autoscaling.md").read_text()
ITL = Series(Family("vllm:inter_token_latency_seconds", "histogram", "sla_metric"), (), (0.05, 1.0))
WAITING = Series(Family("vllm:num_requests_waiting", "gauge", "queue_gauge"))


def block(name: str) -> str:
    (found,) = re.findall(rf"(?m)^    # {re.escape(name)}\n((?:    .*\n)+)", DOCUMENT)
    return re.sub(r"(?m)^    ", "", found)


def document(name: str) -> Any:
    return yaml.safe_load(block(name))


def test_the_documents_parse_and_name_what_the_hub_shows(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    (tmp_path / "computed.yaml").write_text(block("computed.yaml"))
    cluster = new_cluster(hub_flags=["--computed", str(tmp_path / "computed.yaml"), "--capacity-signals", "--rate-window", "2s"])
    player = Player(cluster)
    made = [player.define(role, role=role) for role in ("prefill", "decode")]
    n = 0

    def shown() -> dict[str, list[dict[str, str]]]:
        nonlocal n
        n += 1
        for each in made:
            cells = {**CELLS, ITL: [float(n), 0.0, 0.0, n / 100], Series(Family("vllm:prompt_tokens_total", "counter", "counter")): [float(n)]}
            cells = {series: [value + n for value in values] if series.family.type == "counter" else values for series, values in cells.items()}
            player.say(each, cells, {**GAUGES, WAITING: 1.0})
        found: dict[str, list[dict[str, str]]] = {}
        for view in ("full", "role"):
            for name, labels, _ in samples(cluster.hub.metrics(view)):
                found.setdefault(name, []).append({**labels, "view": view})
        return found

    wanted = {name for role in ("prefill", "decode") for name in
              (f"motor_{role}_demand", f"motor_{role}_capacity", f"motor_{role}_utilisation", f"motor_{role}_required_replicas")}
    wait_for(lambda: wanted | {"vllm:inter_token_latency_seconds_window_p95"} <= shown().keys(), "all signals", every_s=0.2)
    found = shown()
    assert set(re.findall(r"`(motor_\w+)`", DOCUMENT)) <= found.keys()

    keda = document("scaledobject.yaml")
    assert (keda["apiVersion"], keda["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    for trigger in keda["spec"]["triggers"]:
        assert trigger["type"] == "prometheus" and float(trigger["metadata"]["threshold"]) > 0
        query = re.fullmatch(r"max\(([\w:]+)\{(.*)\}\)", trigger["metadata"]["query"])
        assert query
        matchers = dict(re.findall(r'(\w+)="([^"]*)"', query[2]))
        assert any(matchers.items() <= labels.items() for labels in found[query[1]]), trigger

    hpa = document("hpa.yaml")
    assert (hpa["apiVersion"], hpa["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    for metric in hpa["spec"]["metrics"]:
        named = metric["external"]["metric"]
        assert any(named["selector"]["matchLabels"].items() <= labels.items() for labels in found[named["name"]]), metric
