"""scripts/watch.py: the table of a hub in a terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import golden
from daemons import CAPTURES, REPOSITORY, Cluster, free_port
from reference import Series
from screen import Screen
from watch import EVERY_S
from watch_view import CELL, MISSING, NAME_MIN, WINDOW_S

STREAMS = sorted((CAPTURES / "smallkv").glob("stream*.bin.gz"))  # requests wait in it


@pytest.fixture
def new_screen() -> Iterator[Callable[..., Screen]]:
    made: list[Screen] = []

    def make(*command: object, **options: int) -> Screen:
        made.append(Screen([sys.executable, str(REPOSITORY / "scripts" / "watch.py"), *map(str, command)], **options))
        return made[-1]

    yield make
    for screen in made:
        screen.close()


def only(engine: Series, name: str) -> float:
    """A number that the engine has once."""
    (value,) = [value for (_, sample, _), value in engine.items() if sample == name]
    return value


def quantile(engine: Series, family: str, q: float) -> float:
    """As Prometheus' histogram_quantile has it."""
    buckets = sorted((float(dict(labels)["le"]), value) for (_, sample, labels), value in engine.items() if sample == f"{family}_bucket")
    rank = q * buckets[-1][1]
    below, bound = 0.0, 0.0
    for upper, count in buckets:
        if count >= rank:
            return bound + (upper - bound) * (rank - below) / (count - below)
        below, bound = count, upper
    raise AssertionError("no bucket holds it")


def cells(lines: list[str], at: int) -> list[str]:
    """The numbers of a line, by the places of the headings above; [] where there is no such line or no number in it."""
    if len(lines) <= at or len(lines[at]) <= NAME_MIN:
        return []
    return [lines[at][start:start + CELL].strip() for start in range(NAME_MIN, NAME_MIN + 9 * CELL, CELL)]


def rate_of(lines: list[str]) -> float | None:
    """Tokens a second of the first row."""
    row = cells(lines, 4)
    return float(row[4]) if row and row[4] != MISSING else None


def test_a_recording_stopped_inside_its_load_is_shown_with_its_numbers(cluster: Cluster, new_screen: Callable[..., Screen]) -> None:
    limits = golden.cuts(STREAMS, 3)[1]
    engine = golden.reference_after(STREAMS, limits)
    running, waiting, used = (only(engine, f"vllm:{name}") for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"))
    assert running > 0 and waiting > 0, "this cut shows nothing"
    node = cluster.add_node("node-x", ["--source-timeout", "1h"])
    screen = new_screen(f"http://127.0.0.1:{cluster.hub.port}")
    screen.wait_for_frame(lambda lines: "live 0/0" in lines[2], "an empty hub is an empty table")

    cluster.player(node, STREAMS[0], "--limit", str(limits[STREAMS[0]]), job_name="decode-0", instance_id="d-1", role="decode").finish()
    want = [f"{running:.0f}", f"{waiting:.0f}", f"{100 * used:.1f}"]
    # Gauges come first, counters and quantiles with a commit; then the rates come to rest.
    lines = screen.wait_for_frame(lambda lines: MISSING not in cells(lines, 4) and rate_of(lines) == 0, "its numbers")
    assert lines[2].startswith("agents 1, live 1/1 ")
    assert [line[:NAME_MIN].split() for line in lines[4:]] == [["demo", "tiny"], ["role"], ["decode"], ["node"], ["node-x", "decode"],
                                                        ["instance"], ["d-1", "decode"]]
    for at in (4, 6, 8, 10):
        row = cells(lines, at)
        assert row[:3] == want
        assert row[3:5] == ["0", "0"], "nothing was counted in the last seconds"
        for text, (family, q) in zip(row[5:], (("time_to_first_token", 0.5), ("time_to_first_token", 0.99),
                                               ("inter_token_latency", 0.5), ("inter_token_latency", 0.99)), strict=True):
            assert float(text) / 1000 == pytest.approx(quantile(engine, f"vllm:{family}_seconds", q), rel=0.01)
    assert screen.end() == ""


def test_tokens_a_second_are_those_of_the_engine(cluster: Cluster, new_screen: Callable[..., Screen]) -> None:
    limits = golden.cuts(STREAMS, 3)[0]
    node = cluster.add_node("node-x", ["--source-timeout", "1h"])
    # Known with 0 tokens first: a row that has just come has no rate.
    cluster.player(node, STREAMS[0], "--limit", "1", instance_id="d-1").finish()
    screen = new_screen(f"127.0.0.1:{cluster.hub.port}")
    screen.wait_for_frame(lambda lines: rate_of(lines) == 0, "a row that rests")
    tokens = only(golden.reference_after(STREAMS, limits), "vllm:generation_tokens_total")
    cluster.player(node, STREAMS[0], "--limit", str(limits[STREAMS[0]]), instance_id="d-2").finish()

    def is_whole(lines: list[str]) -> bool:
        rate = rate_of(lines)
        return bool(rate) and WINDOW_S * 0.99 < tokens / rate < WINDOW_S + 3 * EVERY_S

    screen.wait_for_frame(is_whole, "all tokens are in one window, which is a scrape or two longer than it says")
    screen.wait_for_frame(lambda lines: rate_of(lines) == 0, "the window has passed")


def test_an_address_without_a_hub_is_said_before_the_screen_changes(new_screen: Callable[..., Screen]) -> None:
    screen = new_screen(f"http://127.0.0.1:{free_port()}")
    assert screen.process.wait(30) == 1
    screen.frame()
    assert "Connection refused" in screen.text and "\x1b" not in screen.text


def test_a_hub_that_goes_and_comes_back_is_shown_again(cluster: Cluster, new_screen: Callable[..., Screen]) -> None:
    screen = new_screen(f"http://127.0.0.1:{cluster.hub.port}", lines=24, columns=80)
    screen.wait_for_frame(lambda lines: "agents 0" in lines[2], "the hub's")
    cluster.hub.stop()
    screen.wait_for_frame(lambda lines: any("doesn't answer now" in line for line in lines), "it says so")
    cluster.hub.start().wait_ready()
    screen.wait_for_frame(lambda lines: "agents 0" in lines[2], "the hub's again")
    screen.end()


def test_it_needs_a_terminal() -> None:
    done = subprocess.run([sys.executable, REPOSITORY / "scripts" / "watch.py"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "needs a terminal" in done.stderr
