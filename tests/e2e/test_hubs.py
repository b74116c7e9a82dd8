"""Several hubs side by side: each has everything, whatever happens to the other."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from daemons import Cluster, Process, free_port, wait_for
from engine import Engine


def total(hub: Process) -> float:
    return hub.sample("vllm:generation_tokens_total", "full") or 0.0


@pytest.mark.sanitized
def test_a_hub_whose_name_is_unknown_is_logged_with_a_reason(cluster: Cluster) -> None:
    node = cluster.add_node(flags=["--hub", "tcp://no-such-hub.invalid:5577", "--hub-timeout", "1s"])
    line = 'msg="no session with a hub" hub=tcp://no-such-hub.invalid:5577 reason="no connection: its name is unknown, or nobody answers"'
    wait_for(lambda: line in node.agent.log(), "the reason is logged")


@pytest.mark.sanitized
def test_a_hub_that_takes_connections_and_says_nothing_is_called_silent(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        node = cluster.add_node(flags=["--hub", f"tcp://127.0.0.1:{mute.getsockname()[1]}", "--hub-timeout", "1s"])
        wait_for(lambda: 'reason="the hub is silent"' in node.agent.log(), "the reason is logged")


@pytest.mark.sanitized
def test_two_hubs_each_have_everything(cluster: Cluster, binaries: Path) -> None:
    agents, http = free_port(), free_port()
    second = Process("hub-2", [str(binaries / "statsbus-hub"), "--agents", f"tcp://127.0.0.1:{agents}",
                               "--http", f"127.0.0.1:{http}"], cluster.folder, http)
    node = cluster.add_node(flags=["--hub", f"{cluster.hub_endpoint}, tcp://127.0.0.1:{agents}"])
    try:
        with Engine(node) as engine:
            engine.wait_subscribed()
            engine.step(iteration={"num_generation_tokens": 7})
            wait_for(lambda: total(cluster.hub) == 7, "the first hub has it, the other isn't there")
            second.start().wait_ready()
            wait_for(lambda: total(second) == 7, "the second hub has what was before it")
            second.kill()
            engine.step(iteration={"num_generation_tokens": 5})
            wait_for(lambda: total(cluster.hub) == 12, "the first hub goes on")
            second.start().wait_ready()
            wait_for(lambda: total(second) == 12, "the second has all again")
            assert node.agent.sample("statsbus_agent_hubs_connected") == 2
            assert node.agent.stop() == 0
    finally:
        if second.is_running():
            second.stop()
