"""Several hubs side by side: each has everything, whatever happens to the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons import Cluster, Process, free_port, wait_for
from engine import Engine


def total(hub: Process) -> float:
    return hub.sample("vllm:generation_tokens_total", "full") or 0.0


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
