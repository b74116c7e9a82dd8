"""Each family of vLLM-Omni, from a publisher to the hub's text: name, type, labels and bounds, under both prefixes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemons import REPOSITORY, Cluster, wait_for
from statsbus import Publisher

DATA = json.loads((REPOSITORY / "tests/data/omni/families.json").read_text())
PLACES = {(): 0, ("stage",): 1, ("replica", "stage"): 2}  # labels of a family that are its source's, to the source


@pytest.fixture(params=sorted(DATA["documents"]))
def prefix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def omni_cluster(binaries: Path, prefix: str) -> Iterator[Cluster]:
    with Cluster(binaries, ["--omni-prefix", prefix]) as running:
        yield running


def publisher(cluster: Cluster, **options: Any) -> Publisher:
    node = cluster.add_node()
    same = {"service_name": "s", "model_name": "m", "observed": True}
    return Publisher([same, {**same, "stage": "1"}, {**same, "stage": "1", "replica": "0"}], engines=node.engines, replay=node.replay, **options)


def test_every_family_has_its_name_type_labels_and_bounds(omni_cluster: Cluster, prefix: str) -> None:
    with publisher(omni_cluster) as told:
        for name, (type_, labels, _) in DATA["facts"].items():
            own = [label for label in labels if label not in ("stage", "replica")]
            source = PLACES[tuple(label for label in labels if label not in own)]
            told.observe(source, [("vllm_omni:" + name, {label: "x" for label in own}, 1)])
        assert told.flush()
        last = prefix + name
        wait_for(lambda: last in omni_cluster.hub.metrics("replica"), f"{last} at the hub")
        families = {family.name: family for family in parse_text(omni_cluster.hub.metrics("replica"))}
    for name, (type_, labels, bucket_set) in DATA["facts"].items():
        family = families[prefix + name.removesuffix("_total")]
        assert family.type == type_, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == {"service_name", "model_name", *labels}, name
        bounds = [float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")]
        if bucket_set in ("SECONDS", "SECONDS_FAST", "RTF", "BYTES"):
            assert bounds == [*DATA["bucket_sets"][bucket_set], float("inf")], name
    derived = {name for name, family in families.items() if any(name.endswith(end) for end in ("_p50", "_p95", "_p99", "_mean"))}
    others = {name for name in families if not name.startswith("vllm:") or name.startswith("vllm:omni_")} - derived
    others = {name for name in others if not name.startswith("statsbus_omni_")}
    assert others == {prefix + name.removesuffix("_total") for name in DATA["facts"]}


def test_names_are_asked_for_as_they_are_shown(omni_cluster: Cluster, prefix: str) -> None:
    with publisher(omni_cluster) as told:
        told.observe(0, [("vllm_omni:image_count_total", None, 3)])
        assert told.flush()
        wait_for(lambda: omni_cluster.hub.sample(prefix + "image_count_total") == 3, "the count at the hub")
        _, _, body = omni_cluster.hub.get(f"/metrics?name[]={prefix}image_count")
    assert f'\n{prefix}image_count_total{{model_name="m",service_name="s"}} 3\n' in body.decode()


def test_bounds_of_steps_and_pixels_are_the_senders_if_it_has_some(cluster: Cluster) -> None:
    with publisher(cluster, buckets={"omni_steps": [10, 20]}) as told:
        told.observe(0, [("vllm_omni:num_inference_steps", None, 15)])
        assert told.flush()
        name = "vllm_omni:num_inference_steps_bucket"
        wait_for(lambda: cluster.hub.sample(name, le="20.0") == 1, "the histogram at the hub")
        assert cluster.hub.sample(name, le="10.0") == 0 and cluster.hub.sample(name, le="30.0") is None
