"""Connectors describe their families through vLLM's own classes; stand-ins for those, shaped as in vLLM 0.32."""

from __future__ import annotations

import sys
import types

import fake_vllm
import pytest
from prometheus_client import Counter, Gauge, Histogram
from statsbus.vllm.connectors import Connectors

MODULE = "vllm.distributed.kv_transfer.kv_connector.v1.metrics"


class OffloadingLike:
    """Labels of its own, counters, gauges and histograms; some labelled series from the start."""

    def __init__(self, metric_types, labelnames, per_engine_labelvalues):
        self.values = per_engine_labelvalues
        self.loaded = metric_types[Counter](
            name="vllm:kv_offload_load_bytes", documentation="Bytes\n  loaded.", labelnames=labelnames
        )
        self.total = metric_types[Counter](
            name="vllm:kv_offload_total_bytes", documentation="Bytes.", labelnames=labelnames + ["transfer_type"]
        )
        self.size = metric_types[Histogram](
            name="vllm:kv_offload_size", documentation="Sizes.", buckets=[1e6, 5e6, float("inf")],
            labelnames=labelnames + ["transfer_type"],
        )  # fmt: skip
        self.usage = metric_types[Gauge](
            name="vllm:kv_offload_usage", documentation="Usage.", labelnames=labelnames + ["tier"],
            multiprocess_mode="mostrecent",
        )  # fmt: skip
        for values in per_engine_labelvalues.values():
            self.total.labels(*values, "load")
            self.size.labels(*values, "load")

    def observe(self, stats, engine_idx=0):
        values = self.values[engine_idx]
        for (name,), amount in stats["bytes"].items():  # keys that are tuples: nothing that could be encoded
            self.loaded.labels(*values).inc(amount)
            self.total.labels(*values, name).inc(amount)
            self.size.labels(model_name=values[0], engine=values[1], transfer_type=name).observe(amount)
        for tier, share in stats.get("usage", {}).items():
            self.usage.labels(*values, tier).set(share)


@pytest.fixture
def connector(monkeypatch):
    """Has vLLM's module for connectors make this class; returns a configuration that uses it."""
    fake_vllm.install(monkeypatch)

    def use(kind, name="OffloadingConnector"):
        class KVConnectorProm:
            _gauge_cls, _counter_cls, _histogram_cls = Gauge, Counter, Histogram

            def __init__(self, vllm_config, labelnames, per_engine_labelvalues):
                types_ = {Gauge: self._gauge_cls, Counter: self._counter_cls, Histogram: self._histogram_cls}
                self.prom_metrics = kind and kind(types_, labelnames, per_engine_labelvalues)

            def observe(self, stats, engine_idx=0):
                self.prom_metrics.observe(stats, engine_idx)

        module = types.ModuleType(MODULE)
        module.KVConnectorProm = KVConnectorProm
        parents = MODULE.split(".")
        for at in range(2, len(parents)):
            monkeypatch.setitem(sys.modules, ".".join(parents[:at]), types.ModuleType(".".join(parents[:at])))
        monkeypatch.setitem(sys.modules, MODULE, module)
        return fake_vllm.config(kv_transfer_config=types.SimpleNamespace(kv_connector=name, kv_role="kv_both"))

    return use


def test_families_and_their_own_labels_are_described(connector):
    connectors = Connectors(connector(OffloadingLike), "tiny")
    first = connectors.add(0)
    assert {name: (f.type, f.help, f.labels, f.buckets) for name, f in connectors.families.items()} == {
        "vllm:kv_offload_load_bytes_total": ("counter", "Bytes loaded.", [], None),
        "vllm:kv_offload_total_bytes_total": ("counter", "Bytes.", ["transfer_type"], None),
        "vllm:kv_offload_size": ("histogram", "Sizes.", ["transfer_type"], [1e6, 5e6]),
        "vllm:kv_offload_usage": ("gauge", "Usage.", ["tier"], None),
    }
    load = {"transfer_type": "load"}
    assert first == [("vllm:kv_offload_total_bytes_total", load, 0), ("vllm:kv_offload_size", load, [])]


def test_what_a_connector_reports_becomes_observations_of_its_engine(connector):
    connectors = Connectors(connector(OffloadingLike), "tiny")
    connectors.add(0)
    connectors.add(1)
    stats = {"bytes": {("load",): 100, ("store",): 3}, "usage": {"cpu": 0.5, "disk": 0.1}}
    told = connectors.take(1, "kv_connector_stats", stats)
    assert sorted(told, key=str) == sorted(
        [
            ("vllm:kv_offload_load_bytes_total", None, 103),
            ("vllm:kv_offload_total_bytes_total", {"transfer_type": "load"}, 100),
            ("vllm:kv_offload_total_bytes_total", {"transfer_type": "store"}, 3),
            ("vllm:kv_offload_size", {"transfer_type": "load"}, [100]),
            ("vllm:kv_offload_size", {"transfer_type": "store"}, [3]),
            ("vllm:kv_offload_usage", {"tier": "cpu"}, 0.5),
            ("vllm:kv_offload_usage", {"tier": "disk"}, 0.1),
        ],
        key=str,
    )
    told = connectors.take(1, "kv_connector_stats", {"bytes": {}, "usage": {"cpu": 0.7}})
    assert told == [
        ("vllm:kv_offload_usage", {"tier": "cpu"}, 0.7),
        ("vllm:kv_offload_usage", {"tier": "disk"}, 0.1),
    ], "an observation of a gauge replaces all of its samples, so all are told"
    assert connectors.take(0, "kv_connector_stats", {"bytes": {}}) == []


@pytest.mark.parametrize("name", ["NixlConnector", "MooncakeStoreConnector"])
def test_connectors_of_the_catalog_travel_as_they_are(connector, name):
    connectors = Connectors(connector(OffloadingLike, name), "tiny")
    assert connectors.add(0) == [] and connectors.fields == () and connectors.families == {}


def test_a_connector_that_describes_nothing_travels_as_it_is(connector):
    connectors = Connectors(connector(None), "tiny")
    assert connectors.add(0) == [] and connectors.fields == ()


def test_a_connector_that_fails_to_describe_itself_is_said(connector, caplog):
    def fails(*_):
        raise RuntimeError("no spec")

    connectors = Connectors(connector(fails), "tiny")
    assert connectors.add(0) == [] and connectors.fields == () and "no spec" in caplog.text


def test_an_engine_without_a_connector_reads_nothing(monkeypatch):
    fake_vllm.install(monkeypatch)
    connectors = Connectors(fake_vllm.config(), "tiny")
    assert connectors.add(0) == [] and connectors.fields == ()
