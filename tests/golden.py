"""Compares what a hub shows with what an engine shows: every series of the views `dp` and `full`, in both text formats."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from reference import Labels, Process, Series, engine_series, entries

# Labels that say which source: the engine prints none of them but `engine`, which is our dp_rank.
SOURCE_LABELS = {"service_name", "job_name", "instance_id", "role", "dp_rank", "stage", "replica", "node", "pod_ip"}
# What no stat logger sees, and a gauge whose value is a clock.
NOT_COMPARED = re.compile(r"vllm:(sleep_mode_|lora_requests_info$)")
MEAN_OVER_ENGINES = {"vllm:kv_cache_usage_perc"}
PASSED_THROUGH = {"vllm:cache_config_info"}

Row = tuple[str, str, Labels]  # (family, sample name, labels with dp_rank where the view has it)


class Duplicate(Exception):
    pass


def read_series(text: str, is_openmetrics: bool = False) -> Series:
    """The vllm: series of a scrape; a series that stands there twice raises."""
    out: Series = {}
    for family in (parse_openmetrics if is_openmetrics else parse_text)(text):
        if not family.name.startswith("vllm:") or NOT_COMPARED.match(family.name):
            continue
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            key = (family.name, sample.name, frozenset(sample.labels.items()))
            if key in out:
                raise Duplicate(f"{sample.name} {sample.labels} stands there twice")
            out[key] = sample.value
    return out


def expected(engine: Series, view: str) -> dict[Row, float]:
    """What the view must show for engines that all belong to one service."""
    out: dict[Row, float] = {}
    count: dict[Row, int] = {}
    for (family, name, labels), value in engine.items():
        rank = dict(labels).get("engine")
        rest = frozenset((k, v) for k, v in labels if k != "engine")
        if view == "dp":
            out[family, name, rest | ({("dp_rank", rank)} if rank is not None else set())] = value
            continue
        row = (family, name, rest)
        count[row] = count.get(row, 0) + 1
        out[row] = value if family in PASSED_THROUGH else out.get(row, 0.0) + value
    for row in out:
        if view == "full" and row[0] in MEAN_OVER_ENGINES:
            out[row] /= count[row]
    return out


def shown(text: str, view: str, is_openmetrics: bool, own_labels: dict[str, set[str]]) -> dict[Row, float]:
    """What the view shows, without the labels that say which source (but dp_rank)."""
    out: dict[Row, float] = {}
    for (family, name, labels), value in read_series(text, is_openmetrics).items():
        dropped = SOURCE_LABELS - own_labels.get(family, set())
        if view == "dp":
            dropped = dropped - {"dp_rank"}
        if family in PASSED_THROUGH:
            dropped = dropped | {"model_name"}
        row = (family, name, frozenset((k, v) for k, v in labels if k not in dropped))
        if row in out:
            raise Duplicate(f"{name} {dict(row[2])} has two rows")
        out[row] = value
    return out


def differences(engine: Series, text: str, view: str, is_openmetrics: bool) -> list[str]:
    """Sentences, one for each series that the view shows otherwise than the engine; empty when all are equal."""
    own_labels: dict[str, set[str]] = {}
    for family, _, labels in engine:
        own_labels.setdefault(family, set()).update(k for k, _ in labels)
    want = expected(engine, view)
    try:
        got = shown(text, view, is_openmetrics, own_labels)
    except (Duplicate, ValueError) as error:
        return [f"{view}: {error}"]
    out = [f"{view}: {name} {dict(labels)} is missing, the engine says {want[family, name, labels]}"
           for family, name, labels in want.keys() - got.keys()]
    out += [f"{view}: {name} {dict(labels)} = {got[family, name, labels]} is not the engine's"
            for family, name, labels in got.keys() - want.keys() if not is_derived(family)]
    out += [f"{view}: {row[1]} {dict(row[2])} is {got[row]}, the engine says {want[row]}"
            for row in want.keys() & got.keys() if not is_same(row, got[row], want[row])]
    return sorted(out)


def is_derived(family: str) -> bool:
    """Families that the hub computes from others have no counterpart in the engine."""
    return bool(re.search(r"(_mean|_p\d+|_max|_hit_rate|_per_second|_window)$", family))


def is_same(row: Row, a: float, b: float) -> bool:
    """What was counted is equal to the last bit. Sums of several engines' floats depend on the order, means on the division."""
    family, name, _ = row
    is_rounded = name.endswith("_sum") or family in MEAN_OVER_ENGINES
    return a == b or (is_rounded and math.isclose(a, b, rel_tol=1e-12))


def reference_after(streams: Iterable[Path], limits: dict[Path, int] | None = None) -> Series:
    """The engine's series after the first limits[stream] calls of each stream (all, without limits)."""
    processes = []
    for stream in streams:
        limit = limits[stream] if limits else None
        process = Process()
        for number, entry in enumerate(entries(stream)):
            if limit is not None and number >= limit:
                break
            process.feed(entry)
        if process.info:
            processes.append(process)
    return engine_series(processes)


def cuts(streams: list[Path], count: int) -> list[dict[Path, int]]:
    """Points inside the load, where gauges are not zero: how many calls of each stream lie before each of them."""
    calls = sorted(((entry["t"], number, stream, (entry.get("scheduler_stats") or {}).get("num_running_reqs", 0) > 0)
                    for stream in streams for number, entry in enumerate(entries(stream))), key=lambda call: call[:3])
    busy = [at for at, call in enumerate(calls) if call[3]]
    out = []
    for j in range(count):
        limits = dict.fromkeys(streams, 0)
        for _, number, stream, _ in calls[:busy[(2 * j + 1) * len(busy) // (2 * count)] + 1]:
            limits[stream] = number + 1
        out.append(limits)
    return out
