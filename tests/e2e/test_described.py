"""Families that an engine's connectors describe: from a look-alike of Prometheus' metrics to the hub's /metrics."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from daemons import REPOSITORY, Cluster, wait_for

sys.path.insert(0, str(REPOSITORY / "publisher" / "python" / "tests"))
import fake_vllm  # noqa: E402
import test_vllm_connectors  # noqa: E402
from test_vllm_connectors import OffloadingLike  # noqa: E402

connector = test_vllm_connectors.connector  # the fixture
assert connector


class Behind:
    """MultiConnector: NIXL, which the catalog has, and offloading, which it has not."""

    def __init__(self, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any) -> None:
        from prometheus_client import Counter, Histogram

        self.values = per_engine_labelvalues
        self.offloading = OffloadingLike(metric_types, labelnames, per_engine_labelvalues)
        self.time = metric_types[Histogram](name="vllm:nixl_xfer_time_seconds", documentation="d", buckets=[0.1, 1], labelnames=labelnames)
        self.expired = metric_types[Counter](name="vllm:nixl_num_kv_expired_reqs", documentation="d", labelnames=labelnames)

    def observe(self, stats: Any, engine_idx: int = 0) -> None:
        values = self.values[engine_idx]
        for seconds in stats.get("NixlConnector", {}).get("transfer_duration", ()):
            self.time.labels(*values).observe(seconds)
        self.expired.labels(*values).inc(len(stats.get("NixlConnector", {}).get("num_kv_expired_reqs", ())))
        if "OffloadingConnector" in stats:
            self.offloading.observe(stats["OffloadingConnector"], engine_idx)


def test_connectors_behind_a_connector_are_shown(cluster: Cluster, connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from statsbus.vllm.engine import Engine

    node = cluster.add_node()
    for name, value in (("STATSBUS_ENGINES", node.engines), ("STATSBUS_SERVICE", "chat"), ("STATSBUS_JOB_NAME", "engine-0")):
        monkeypatch.setenv(name, value)
    config = connector(Behind, "MultiConnector")
    engine = Engine.of(config, [0])
    record = engine.calls()["record"]
    hub = cluster.hub

    def shown(name: str, **labels: str) -> float | None:
        return hub.sample(name, "full", **labels)

    try:
        wait_for(lambda: shown("vllm:kv_offload_load_bytes_total") == 0, "families are there before anything happened")
        wait_for(lambda: shown("vllm:kv_offload_total_bytes_total", transfer_type="load") == 0, "so are their labelled series")
        assert shown("vllm:kv_offload_size_count", transfer_type="load") == 0
        assert shown("vllm:nixl_xfer_time_seconds_count") == 0 and shown("vllm:kv_offload_usage") is None
        for n in range(10):
            stats = {"NixlConnector": {"transfer_duration": [0.5, 2.0], "num_kv_expired_reqs": [1]},
                     "OffloadingConnector": {"bytes": {("load",): 2e6, ("store",): 3}, "usage": {"cpu": n / 10, "disk": 0.5}}}
            record(fake_vllm.SchedulerStats(n, kv_connector_stats=stats), None)
        wait_for(lambda: shown("vllm:nixl_xfer_time_seconds_bucket", le="1.0") == 10 and shown("vllm:nixl_xfer_time_seconds_count") == 20,
                 "NIXL's transfers are counted")
        assert shown("vllm:nixl_num_kv_expired_reqs_total") == 10
        assert shown("vllm:kv_offload_total_bytes_total", transfer_type="load") == 2e7
        assert shown("vllm:kv_offload_size_bucket", transfer_type="store", le="1e+06") == 10
        wait_for(lambda: shown("vllm:num_requests_running") == 9 and
                 [shown("vllm:kv_offload_usage", tier=tier) for tier in ("cpu", "disk")] == [0.9, 0.5], "gauges follow in a second")
        assert node.agent.sample("statsbus_agent_families_refused_total") == 0
        assert node.agent.sample("statsbus_agent_observations_unknown_total") == 0
        assert engine.publisher.counts()["faults"] == 0
    finally:
        engine.publisher.close(timeout_s=1.0)


