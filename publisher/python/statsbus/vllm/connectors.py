"""
Families that connectors describe themselves.

What a KV or encoder-cache connector reports is a map of its own shape, which only its own class can read: vLLM has it
feed Prometheus metrics that it makes of the classes it is handed. Here it is handed look-alikes, which keep what they
are told as observations. So every connector works that vLLM's own /metrics works with, under the same names.
"""

from __future__ import annotations

import importlib
import logging
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..encoding import Observation
from ..wire import Family

# KV connectors whose maps travel as they are: those of the features in schemas/catalog/vllm.yaml
IN_CATALOG = ("NixlConnector", "NixlPullConnector", "NixlPushConnector", "MooncakeStoreConnector")
SOURCE_LABELS = ("model_name", "engine")  # the agent knows them: they are not the family's own
DEFAULT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)  # Prometheus' own

log = logging.getLogger("statsbus")

LabelSet = Tuple[Tuple[str, str], ...]


class _Sink:
    """What look-alikes have been told since it was last drained, and what gauges stand at."""

    def __init__(self) -> None:
        self.families: Dict[str, Family] = {}
        self._told: Dict[Tuple[str, LabelSet], Any] = {}
        self._gauges: Dict[str, Dict[LabelSet, float]] = {}
        self._changed: Dict[str, None] = {}  # gauge families, in order

    def add(self, family: str, labels: LabelSet, value: float) -> None:
        key = (family, labels)
        self._told[key] = self._told.get(key, 0) + value

    def observe(self, family: str, labels: LabelSet, values: Iterable[float]) -> None:
        self._told.setdefault((family, labels), []).extend(values)

    def set(self, family: str, labels: LabelSet, value: float) -> None:
        self._gauges.setdefault(family, {})[labels] = value
        self._changed[family] = None

    def value(self, family: str, labels: LabelSet) -> float:
        return self._gauges.get(family, {}).get(labels, 0.0)

    def drain(self) -> List[Observation]:
        told, self._told = self._told, {}
        changed, self._changed = self._changed, {}
        out: List[Observation] = [(family, dict(labels) or None, value) for (family, labels), value in told.items()]
        for family in changed:  # all of a gauge's samples: an observation of it replaces those before
            out += [(family, dict(labels) or None, value) for labels, value in self._gauges[family].items()]
        return out


class _Series:
    """A metric with its label values."""

    def __init__(self, sink: _Sink, family: str, labels: LabelSet) -> None:
        self._sink, self._family, self._labels = sink, family, labels


class _CounterSeries(_Series):
    def inc(self, amount: float = 1, *_: Any, **__: Any) -> None:
        self._sink.add(self._family, self._labels, amount)


class _GaugeSeries(_Series):
    def set(self, value: float) -> None:
        self._sink.set(self._family, self._labels, value)

    def inc(self, amount: float = 1) -> None:
        self.set(self._sink.value(self._family, self._labels) + amount)

    def dec(self, amount: float = 1) -> None:
        self.inc(-amount)

    def set_to_current_time(self) -> None:
        self.set(time.time())


class _HistogramSeries(_Series):
    def observe(self, amount: float, *_: Any, **__: Any) -> None:
        self._sink.observe(self._family, self._labels, (amount,))


class _Metric:
    """A look-alike of prometheus_client's metric classes, as far as connectors use them."""

    sink: _Sink
    type = ""
    series_class = _Series

    def __init__(
        self,
        name: str,
        documentation: str = "",
        labelnames: Iterable[str] = (),
        buckets: Optional[Sequence[float]] = None,
        **_: Any,
    ) -> None:
        if self.type == "counter" and not name.endswith("_total"):
            name += "_total"
        self._name = name
        self._label_names = tuple(str(label) for label in labelnames)
        self._children: Dict[LabelSet, Any] = {}
        own = [label for label in self._label_names if label not in SOURCE_LABELS]
        bounds = [float(b) for b in (buckets or DEFAULT_BOUNDS) if b != float("inf")]
        self.sink.families[name] = Family(
            name=name,
            type=self.type,
            help=" ".join(str(documentation).split()),
            labels=own,
            buckets=bounds if self.type == "histogram" else None,
        )

    def labels(self, *values: Any, **by_name: Any) -> Any:
        given: Mapping[str, Any] = {**dict(zip(self._label_names, values)), **by_name}
        labels = tuple((name, str(given[name])) for name in self._label_names if name not in SOURCE_LABELS)
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._make(labels)
        return child

    def _make(self, labels: LabelSet) -> Any:
        if labels and self.type == "counter":  # like Prometheus' client: a labelled series is there from now on, at 0
            self.sink.add(self._name, labels, 0)
        elif labels and self.type == "histogram":
            self.sink.observe(self._name, labels, ())
        return self.series_class(self.sink, self._name, labels)

    def __getattr__(self, name: str) -> Any:
        """inc, set, observe of a metric without labels."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.labels(), name)


def look_alikes(sink: _Sink) -> Dict[str, type]:
    kinds = {"counter": _CounterSeries, "gauge": _GaugeSeries, "histogram": _HistogramSeries}
    return {
        kind: type(kind.capitalize(), (_Metric,), {"sink": sink, "type": kind, "series_class": series})
        for kind, series in kinds.items()
    }


class Connectors:
    """The connectors of one engine process."""

    def __init__(self, vllm_config: Any, model_name: Optional[str]) -> None:
        self._vllm_config = vllm_config
        self._model_name = model_name or ""
        self._sinks: Dict[int, _Sink] = {}
        self._readers: Dict[int, Dict[str, Any]] = {}
        self.families: Dict[str, Family] = {}  # by name; they go into the hello
        self.fields: Tuple[str, ...] = ()  # of the scheduler's stats, that are read here

    def add(self, index: int) -> List[Observation]:
        """Begins an engine; the labelled series that it has from the start, at 0."""
        # A connector tells its metrics apart by engine, and so do we: each engine has a sink, and readers, of its own.
        sink = self._sinks[index] = _Sink()
        readers = self._readers[index] = _readers(self._vllm_config, sink, {index: [self._model_name, str(index)]})
        self.families.update(sink.families)
        self.fields = tuple(readers)
        return sink.drain()

    def take(self, index: int, field: str, stats: Any) -> List[Observation]:
        """What a connector's map says, as observations. Raises what the connector's own class raises."""
        self._readers[index][field].observe(stats, index)
        return self._sinks[index].drain()


def _readers(vllm_config: Any, sink: _Sink, labels: Dict[int, List[object]]) -> Dict[str, Any]:
    """Field of the scheduler's stats to what reads it."""
    wanted = []
    kv = getattr(getattr(vllm_config, "kv_transfer_config", None), "kv_connector", None)
    if kv and kv not in IN_CATALOG:
        wanted.append(("kv_connector_stats", "vllm.distributed.kv_transfer.kv_connector.v1.metrics", "KVConnectorProm"))
    if getattr(getattr(vllm_config, "ec_transfer_config", None), "ec_connector", None):
        wanted.append(("ec_connector_stats", "vllm.distributed.ec_transfer.ec_connector.metrics", "ECConnectorProm"))
    out = {}
    for field, module, name in wanted:
        reader = _reader(field, module, name, vllm_config, sink, labels)
        if reader is not None:
            out[field] = reader
    return out


def _reader(
    field: str, module: str, name: str, vllm_config: Any, sink: _Sink, labels: Dict[int, List[object]]
) -> Optional[Any]:
    """None in releases without that class, and for connectors that describe nothing: their maps travel as they are."""
    try:
        base = getattr(importlib.import_module(module), name)
        slots = {f"_{kind}_cls": made for kind, made in look_alikes(sink).items()}
        reader = type(name, (base,), slots)(vllm_config, list(SOURCE_LABELS), labels)
    except (ImportError, AttributeError):
        return None
    except Exception as error:
        log.warning("statsbus: families of the connector behind %s are not to be had: %r", field, error)
        return None
    return reader if getattr(reader, "prom_metrics", None) is not None else None
