"""Recordings of real engines, replayed, show at the hub what the engines printed: at the end and inside the load."""

from __future__ import annotations

from pathlib import Path

import pytest

import golden
from daemons import CAPTURES, OPENMETRICS, Cluster, wait_for
from golden import differences, reference_after
from reference import Series

CUTS = 3
NAMES = sorted(path.name for path in CAPTURES.iterdir() if path.is_dir())
SHORT = {("plain", None), ("dp2", 1)}  # also in the quick and in the sanitized run


def streams_of(capture: str) -> list[Path]:
    return sorted((CAPTURES / capture).glob("stream*.bin.gz"))


def cases() -> list[object]:
    return [pytest.param(name, cut, id=f"{name}-{'end' if cut is None else f'cut{cut}'}",
                         marks=pytest.mark.sanitized if (name, cut) in SHORT else pytest.mark.long)
            for name in NAMES for cut in (None, *range(CUTS))]


def all_differences(cluster: Cluster, engine: Series) -> list[str]:
    return [line for view in ("dp", "full") for accept in ("text/plain", OPENMETRICS)
            for line in differences(engine, cluster.hub.metrics(view, accept), view, accept == OPENMETRICS)]


@pytest.mark.parametrize(("capture", "cut"), cases())
def test_every_series_is_the_engines(cluster: Cluster, capture: str, cut: int | None) -> None:
    streams = streams_of(capture)
    limits = None if cut is None else golden.cuts(streams, CUTS)[cut]
    if limits is None:
        engine = golden.read_series((CAPTURES / capture / "metrics.prom").read_text())
    else:
        engine = reference_after(streams, limits)
    node = cluster.add_node()
    players = [cluster.player(node, stream, *([] if limits is None else ["--limit", str(limits[stream])]))
               for stream in streams if limits is None or limits[stream]]
    for player in players:
        player.finish()

    found: list[str] = []

    def is_equal() -> bool:
        found[:] = all_differences(cluster, engine)
        return not found

    try:
        wait_for(is_equal, "the hub shows the engine's numbers", 10)
    except Exception:
        pytest.fail(f"{len(found)} differences:\n" + "\n".join(found[:20]))
    # Nothing is under way any more, and it is still the same.
    agent = node.agent
    wait_for(lambda: agent.sample("statsbus_agent_missing_records") == 0 and
             agent.sample("statsbus_agent_generation") == agent.sample("statsbus_agent_released_generation"), "the agent has settled")
    assert all_differences(cluster, engine) == []
    assert [node.agent.stop(), cluster.hub.stop()] == [0, 0]

