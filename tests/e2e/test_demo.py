"""scripts/demo: what a new user sees first."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from daemons import REPOSITORY, http_get, wait_for
from demo_cluster import Lives
from screen import Screen
from watch_view import CELL, NAME_MIN


def command(binaries: Path, *flags: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "scripts" / "demo.py"), "--bin", str(binaries), *flags]


def start(binaries: Path, folder: Path, *flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command(binaries, *flags), env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def test_once_prints_numbers_and_no_address_that_is_gone(binaries: Path, tmp_path: Path) -> None:
    process = start(binaries, tmp_path, "--once")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert "vllm:generation_tokens_total{" in out and "http://" not in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_nothing_behind(binaries: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = start(binaries, tmp_path)
    assert process.stdout
    wait_for(lambda: "Ctrl-C" in (process.stdout.readline() if process.stdout else ""), "it says how to stop it", every_s=0)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and "stopping" in out, out
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_restarts_is_killed_every_second_time() -> None:
    lives = Lives(up_s=30, down_s=4, now=100)
    seen = []
    for now in range(100, 205):
        if lives.is_due(now):
            seen.append((now, lives.is_up, lives.life, lives.is_killed))
    assert seen == [(130, False, 1, False), (134, True, 2, True), (164, False, 2, True), (168, True, 3, False), (198, False, 3, False),
                    (202, True, 4, True)]


@pytest.fixture
def screen(binaries: Path, tmp_path: Path) -> Iterator[Screen]:
    screen = Screen(command(binaries, "--up", "8"), columns=80, lines=24, env={**os.environ, "TMPDIR": str(tmp_path)})
    yield screen
    screen.close()


def rows(lines: list[str]) -> dict[tuple[str, ...], list[str]]:
    """Name to numbers; columns are cut by the places of their headings."""
    return {tuple(line[:NAME_MIN].split()): [line[at:at + CELL].strip() for at in range(NAME_MIN, len(line), CELL)]
            for line in lines if len(line) > NAME_MIN}


INSTANCES = {("prefill-0-1", "prefill"), ("prefill-1-1", "prefill"), ("decode-0-1", "decode"), ("decode-1-1", "decode")}
PLACES = {("prefill",), ("decode",), ("node-a", "prefill"), ("node-a", "decode"), ("node-b", "prefill"), ("node-b", "decode"),
          ("demo", "tiny")}


@pytest.mark.long
def test_its_table_shows_two_nodes_four_engines_and_a_restart(screen: Screen, tmp_path: Path) -> None:
    lines = screen.wait_for_frame(lambda lines: INSTANCES <= rows(lines).keys(), "four engines", 60)
    assert lines[2].startswith("agents 2, live 5/5 ")  # one of the engines has two ranks
    assert PLACES <= rows(lines).keys()
    (page,) = [line.split()[0] for line in lines if "the hub;" in line]
    port = int(page.split(":")[2].split("/")[0])

    lines = screen.wait_for_frame(lambda lines: "-" not in rows(lines)[("demo", "tiny")], "the service has every number", 60)
    # The first engine that restarts ends in order: its gauges go, its counts stay, and its next life comes as a row of its own.
    screen.wait_for_frame(lambda lines: rows(lines)[("prefill-1-1", "prefill")][:3] == ["-", "-", "-"], "the first life ends", 60)
    screen.wait_for_frame(lambda lines: ("prefill-1-2", "prefill") in rows(lines), "its next life", 60)
    # That one is killed: its source is silent, until the third life.
    screen.wait_for_frame(lambda lines: ("prefill-1-3", "prefill") in rows(lines), "the life after a kill", 60)
    text = http_get(port, "/metrics?type=instance")[2].decode()
    assert 'vllm:generation_tokens_total{instance_id="prefill-1-2"' in text

    assert screen.end().strip() == "demo: stopping"
    assert list(tmp_path.iterdir()) == []
    assert not re.search(re.escape(str(tmp_path)), subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout)


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("prometheus"), reason="no Prometheus here")
def test_prometheus_has_the_service_and_each_instance(binaries: Path, tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    folder = Path(tempfile.mkdtemp(prefix="demo-"))  # a short path: that of a socket has 107 bytes
    with printed.open("w") as out:
        process = subprocess.Popen(command(binaries, "--prometheus"), env={**os.environ, "TMPDIR": str(folder)}, stdout=out, stderr=out)
    try:
        page = wait_for(lambda: re.search(r"http://127.0.0.1:(\d+)/graph", printed.read_text()), "its page", 60)
        port = int(page[1])

        def query(text: str) -> dict[tuple[str, ...], float]:
            try:
                body = json.loads(http_get(port, f"/api/v1/query?query={quote(text)}")[2])
            except (OSError, ValueError):
                return {}
            return {tuple(sorted(row["metric"].values())): float(row["value"][1]) for row in body["data"]["result"]}

        wait_for(lambda: len(query("up == 1")) == 4, "hub twice and two agents are scraped", 30)
        one = wait_for(lambda: query("sum(vllm:generation_tokens_total) > 0"), "the service's tokens", 30)
        wait_for(lambda: len(query("sum by (instance_id) (instance:vllm:generation_tokens_total)")) == 4, "four instances", 30)
        assert list(query("count(vllm:generation_tokens_total)").values()) == [1] and one
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert code == 0, printed.read_text()
    folder.rmdir()  # which it leaves empty


def test_prometheus_that_is_not_installed_is_said(binaries: Path, tmp_path: Path) -> None:
    done = subprocess.run(command(binaries, "--prometheus"), env={"TMPDIR": str(tmp_path), "PATH": "/nowhere"}, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 1 and "prometheus is not installed" in done.stderr
    assert list(tmp_path.iterdir()) == []
