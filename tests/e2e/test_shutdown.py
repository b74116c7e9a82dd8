"""SIGTERM and SIGINT end the daemons in order, whatever they are doing."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from daemons import CAPTURES, Cluster, wait_for
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


@pytest.mark.long
def test_demo_once_prints_numbers_and_leaves_nothing(binaries: Path) -> None:
    assert (CAPTURES / "plain").is_dir()
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([root / ".venv" / "bin" / "python", root / "scripts" / "demo.py", "--bin", binaries, "--once"],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "vllm:generation_tokens_total{" in done.stdout
