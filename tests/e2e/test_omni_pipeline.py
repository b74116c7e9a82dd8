"""Two pipelines of vLLM-Omni on two nodes, with replicas that come and go: every number of every family, in each view."""

from __future__ import annotations

import math
import re

import pytest

from daemons import Cluster, DaemonError, samples, wait_for
from omni_world import BY_PAIR, CODE2WAV, DATA, PAINTER, TALKER, THINKER, Orchestrator, Series, Tally

VIEWS = ("full", "stage", "replica", "node")
DERIVED = re.compile(r"_(p\d+|mean|window)$")
COMPARED_VLLM = {"vllm:generation_tokens_total", "vllm:num_requests_running"}


def shown(cluster: Cluster, view: str) -> Series:
    """vLLM-Omni's families, by their names without prefix, what statsbus makes of them, and what is compared of vLLM's."""
    out: Series = {}
    for name, labels, value in samples(cluster.hub.metrics(view)):
        if name in COMPARED_VLLM or (name.startswith(("vllm_omni:", "statsbus_omni_")) and not DERIVED.search(name)):
            assert labels.pop("service_name") == "voice" and labels.pop("model_name") == "omni"
            le = labels.pop("le", None)
            key = (name.removeprefix("vllm_omni:"), frozenset(labels.items()) | ({("le", repr(float(le)))} if le else set()))
            assert key not in out, (view, key)
            out[key] = value
    return out


def differences(cluster: Cluster, tally: Tally, view: str) -> list[str]:
    found, expected = shown(cluster, view), tally.expected(view)
    out = [f"{view}: {name} {dict(labels)}: {found.get((name, labels))} instead of {expected.get((name, labels))}"
           for name, labels in found.keys() | expected.keys()
           if not is_same(found.get((name, labels)), expected.get((name, labels)))]
    return sorted(out)


def is_same(found: float | None, expected: float | None) -> bool:
    return found is not None and expected is not None and math.isclose(found, expected, rel_tol=1e-9)


def assert_shown(cluster: Cluster, tally: Tally) -> None:
    for view in VIEWS:
        try:
            wait_for(lambda view=view: not differences(cluster, tally, view), view, every_s=0.2)  # type: ignore[misc]
        except DaemonError:
            assert not differences(cluster, tally, view)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_every_family_in_every_view_while_replicas_come_and_go(cluster: Cluster, seed: int) -> None:
    tally = Tally()
    both = [Orchestrator(cluster.add_node(name), name, tally, seed * 10 + i) for i, name in enumerate(("node-a", "node-b"))]
    a, b = both

    def run(n: int) -> None:
        for _ in range(n):
            for each in both:
                each.request()

    run(40)
    a.add(TALKER, 2)
    b.add(PAINTER, 2)
    run(40)
    for each in both:
        assert each.pipeline.flush(15.0)
    assert_shown(cluster, tally)
    a.remove(TALKER, 1)
    b.remove(THINKER, 0)
    b.remove(PAINTER, 1)
    assert_shown(cluster, tally)
    run(30)
    a.add(TALKER, 1)
    b.add(THINKER, 0)
    a.remove(CODE2WAV, 0)
    assert_shown(cluster, tally)
    run(30)
    for each in both:
        assert each.pipeline.flush(15.0)
        assert {name: n for name, n in each.pipeline.counts().items() if name in ("faults", "omni_faults", "salvaged") and n} == {}
    assert_shown(cluster, tally)
    told = {family for _, family, _ in tally.counts} | {family for _, family, _ in tally.observed} | {family for _, family in tally.gauges}
    assert {family for family in told if not family.startswith(BY_PAIR)} == set(DATA["facts"]) | COMPARED_VLLM
    a.pipeline.close()
    tally.gauges = {key: value for key, value in tally.gauges.items() if key[0].node != "node-a"}
    assert_shown(cluster, tally)
    b.pipeline.close()
