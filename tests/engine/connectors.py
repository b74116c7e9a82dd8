"""
Connectors' families with vLLM's own classes: what the plugin makes of a connector's stats is what vLLM's Prometheus
metrics make of them, series by series. Run by scripts/test-engine, with the engine's Python; needs no accelerator.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "publisher" / "python"))

import prometheus_client  # noqa: E402
import yaml  # noqa: E402
from statsbus.vllm import connectors as connectors_of_vllm  # noqa: E402
from statsbus.vllm.connectors import Connectors  # noqa: E402
from vllm.config import KVTransferConfig  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorProm  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import NixlKVConnectorStats  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402

MODEL = "tiny"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def nixl(number: int) -> dict[str, Any]:
    stats = NixlKVConnectorStats()
    for name, values in {"transfer_duration": [0.004 * number, 2.0], "post_duration": [0.0005, 0.3], "bytes_transferred": [4096 * number, 9e9],
                         "num_descriptors": [25, 70000], "num_failed_transfers": [1] * number, "num_kv_expired_reqs": [1]}.items():
        stats.data[name] += values
    return stats.to_dict()


def offloading(number: int) -> dict[str, Any]:
    stats = OffloadingConnectorStats()
    prefix = "vllm:kv_offload_"
    stats.increase_counter(prefix + "load_bytes", 1000 * number)
    stats.increase_counter(prefix + "store_time", 0.25)
    stats.increase_counter(prefix + "allocation_failure", 1)
    stats.observe_histogram(prefix + "load_size", 3e6 * number)
    stats.observe_histogram(prefix + "load_size", 5e8)
    stats.observe_histogram(prefix + "lookup_sync_delay_seconds", 0.0004)
    return stats.to_dict()


# name: (configuration, what it reports)
CASES: dict[str, tuple[dict[str, Any], Callable[[int], dict[str, Any]]]] = {
    "OffloadingConnector": ({"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
                             "kv_connector_extra_config": {"cpu_bytes_to_use": 1 << 20, "num_cpu_blocks": 8}}, offloading),
    "MultiConnector": ({"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"connectors": [
        {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
        {"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
         "kv_connector_extra_config": {"cpu_bytes_to_use": 1 << 20, "num_cpu_blocks": 8}}]}},
        lambda number: {"NixlPullConnector": nixl(number), "OffloadingConnector": offloading(number)}),
}


def own_series(engine: int) -> Series:
    """What Prometheus' client would print of the connector for one engine, without the labels that say whose it is."""
    out: Series = {}
    for family in prometheus_client.REGISTRY.collect():
        for sample in family.samples:
            if family.name.startswith("vllm:") and sample.labels.get("engine") == str(engine) and not sample.name.endswith("_created"):
                labels = frozenset((k, v) for k, v in sample.labels.items() if k not in ("model_name", "engine"))
                out[sample.name, labels] = sample.value
    return out


def observed_series(connectors: Connectors, observations: Iterable[Any]) -> Series:
    """What the observations add up to, by Prometheus' own client."""
    registry = prometheus_client.CollectorRegistry()
    metrics = {}
    for name, family in connectors.families.items():
        kind = {"counter": prometheus_client.Counter, "gauge": prometheus_client.Gauge, "histogram": prometheus_client.Histogram}[family.type]
        more = {"buckets": family.buckets} if family.type == "histogram" else {}
        metrics[name] = (family.type, kind(name, family.help, family.labels, registry=registry, **more))
    for name, labels, value in observations:
        kind_name, metric = metrics[name]
        child = metric.labels(**labels) if labels else metric
        if kind_name == "counter":
            child.inc(value)
        elif kind_name == "gauge":
            child.set(value)
        else:
            for number in value:
                child.observe(number)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in registry.collect() for sample in family.samples
            if not sample.name.endswith("_created")}


def configured(model: str, transfer: dict[str, Any]) -> Any:
    config = EngineArgs(model=model, served_model_name=MODEL, max_model_len=512, enforce_eager=True, load_format="dummy").create_engine_config()
    config.kv_transfer_config = KVTransferConfig(**transfer)
    return config


def check(name: str, model: str) -> list[str]:
    transfer, report = CASES[name]
    config = configured(model, transfer)
    for collector in list(prometheus_client.REGISTRY._collector_to_names):
        if getattr(collector, "_name", "").startswith("vllm:"):
            prometheus_client.REGISTRY.unregister(collector)
    own = KVConnectorProm(config, ["model_name", "engine"], {0: [MODEL, "0"], 1: [MODEL, "1"]})
    connectors = Connectors(config, MODEL)
    observed = {index: list(connectors.add(index)) for index in (0, 1)}
    for number in range(1, 6):
        own.observe(report(number), number % 2)
        observed[number % 2] += connectors.take(number % 2, "kv_connector_stats", report(number))
    out = []
    for index in (0, 1):
        want, got = own_series(index), observed_series(connectors, observed[index])
        print(f"    {name}, engine {index}: {len(want)} series, {len(connectors.families)} families")
        if not want:
            out.append(f"{name}: vLLM prints nothing")
        out += [f"{name}, engine {index}: {key[0]} {dict(key[1])} is {got.get(key)}, vLLM says {want.get(key)}"
                for key in sorted(want.keys() | got.keys(), key=str)
                if want.get(key, 0.0) != got.get(key)]  # vLLM shows an unlabelled series from its first use on, we from the start
    return out


def check_catalog(name: str, model: str) -> list[str]:
    """The catalog has the families of a connector whose maps travel as they are: names, types, own labels, bounds."""
    config = configured(model, {"kv_connector": name, "kv_role": "kv_both"})
    sink = connectors_of_vllm._Sink()
    assert connectors_of_vllm._reader("kv_connector_stats", KVConnectorProm.__module__, "KVConnectorProm", config, sink, {0: [MODEL, "0"]})
    catalog = yaml.safe_load((ROOT / "schemas" / "catalog" / "vllm.yaml").read_text())
    out = []
    for family in sink.families.values():
        ours = catalog["families"].get(family.name)
        if ours is None:
            out.append(f"{name}: the catalog has no {family.name}")
        elif ours["type"] != family.type:
            out.append(f"{name}: {family.name} is a {family.type}")
        elif family.type == "histogram" and [float(b) for b in catalog["bucket_sets"][ours["buckets"]]] != family.buckets:
            out.append(f"{name}: {family.name} has the bounds {family.buckets}")
    print(f"    {name}: {len(sink.families)} families are in the catalog" if not out else f"    {name}: not as in the catalog")
    return out if sink.families else [f"{name}: vLLM describes nothing"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    print("== connectors: their families, by vLLM's own classes")
    found = [line for name in CASES for line in check(name, args.model)]
    found += [line for name in connectors_of_vllm.IN_CATALOG for line in check_catalog(name, args.model)]
    print("== connectors:", f"FAILED, {len(found)} differences\n  " + "\n  ".join(found[:20]) if found else "ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
