"""SIGTERM and SIGINT end the daemons in order, whatever they are doing."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemons import REPOSITORY, Cluster, http_get, wait_for
from engine import Engine


@pytest.mark.sanitized
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_ends_with_0_and_keeps_what_was_counted(cluster: Cluster, number: signal.Signals) -> None:
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        for _ in range(500):
            engine.step(0, None, {"num_generation_tokens": 1})
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total"), "the load is under way")
        for process in (node.agent, cluster.hub):
            process.send(number)
            assert process.wait(10) == 0
        cluster.hub.start()
        node.agent.start().wait_ready()
        engine.flush()
        wait_for(lambda: (cluster.hub.sample("vllm:generation_tokens_total") or 0) >= 500, "everything is there again")
        assert cluster.hub.sample("vllm:generation_tokens_total") == 500
        assert node.agent.sample("statsbus_agent_records_lost_total") == 0
        assert node.agent.sample("statsbus_agent_state_losses_total") == 0


def test_sigterm_while_nothing_is_connected(cluster: Cluster) -> None:
    node = cluster.add_node()
    assert node.agent.stop(5) == 0
    assert cluster.hub.stop(5) == 0


def test_an_agent_without_a_hub_is_alive_counts_and_catches_up(cluster: Cluster) -> None:
    assert cluster.hub.stop() == 0
    node = cluster.plan_node()
    node.agent.start()
    wait_for(lambda: node.agent.is_running() and alive(cluster), "the agent is alive")
    with Engine(node) as engine:
        engine.step(0, None, {"num_generation_tokens": 3})
        engine.flush()
        cluster.hub.start().wait_ready()
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 3, "the hub catches up", 20)


def alive(cluster: Cluster) -> bool:
    try:
        return cluster.nodes[0].agent.get("/healthz")[0] == 200
    except OSError:
        return False


@pytest.mark.sanitized
@pytest.mark.parametrize("program", ["statsbus-agent", "statsbus-hub"])
@pytest.mark.parametrize(("flags", "code", "words"), [
    (["--help"], 0, "--http"),
    (["--version"], 0, "0."),
    (["--no-such-flag"], None, "no-such-flag"),
    (["--http", "nowhere"], None, "nowhere"),
    (["--log-level", "shouting"], None, "shouting"),
])
def test_flags_are_explained(binaries: Path, program: str, flags: list[str], code: int | None, words: str, tmp_path: Path) -> None:
    if program == "statsbus-agent":
        flags = ["--engines", f"ipc://{tmp_path}/engines", "--replay", f"ipc://{tmp_path}/replay", "--state", f"{tmp_path}/state", *flags]
    done = subprocess.run([binaries / program, *flags], capture_output=True, text=True, timeout=20, cwd=tmp_path, check=False)
    assert words in done.stdout + done.stderr
    assert done.returncode == code if code is not None else done.returncode > 0


@contextmanager
def demo(binaries: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """The demo; one that a failed test leaves running is ended."""
    with subprocess.Popen([sys.executable, REPOSITORY / "scripts" / "demo.py", "--bin", binaries, *flags], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                running.send_signal(signal.SIGINT)


def test_demo_once_prints_numbers_and_leaves_nothing(binaries: Path) -> None:
    with demo(binaries, "--once") as running:
        text = running.communicate(timeout=60)[0]
    assert running.returncode == 0, text
    assert re.search(r"vllm:generation_tokens_total\{.*\} 3099\n", text), text


def test_demo_plays_until_ctrl_c_and_leaves_nothing(binaries: Path) -> None:
    with demo(binaries) as running:
        assert running.stdout is not None
        text = ""
        while "logs are in" not in text:
            line = running.stdout.readline()
            assert line, text
            text += line
        (port,) = re.findall(r"http://127.0.0.1:(\d+)/metrics +the hub", text)
        wait_for(lambda: b"vllm:num_requests_running{" in http_get(int(port), "/metrics?type=dp")[2], "numbers are shown")
        folder = Path(re.findall(r"logs are in (\S+)", text)[0])
        assert folder.is_dir()
        running.send_signal(signal.SIGINT)
        assert "stopping" in running.communicate(timeout=15)[0]
    assert running.returncode == 0
    assert not folder.exists()
