"""--log-stats: lines about each source in the agent's log, and a table in the hub's."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest

from daemons import Cluster, Process, wait_for
from engine import Engine, source

SCHEDULER = {"num_running_reqs": 3, "num_waiting_reqs": 2, "num_skipped_waiting_reqs": 0, "kv_cache_usage": 0.5}


def lines(process: Process) -> list[dict[str, str]]:
    found = [line for line in process.log().splitlines() if ' level=info ' in line and ' msg="statistics" ' in line]
    return [{key: value.strip('"') for key, value in re.findall(r'(\w+)=("[^"]*"|\S+)', line)} for line in found]


def test_agent_and_hub_say_what_their_sources_do(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(hub_flags=["--log-stats", "1s"])
    node = cluster.add_node("node-a", ["--log-stats", "1"])
    sources = [source(index, stage=str(index), service_name='chat "x" y') for index in range(2)]
    with Engine(node, sources) as engine:
        engine.wait_subscribed()
        said: list[dict[str, str]] = []

        def is_said(process: Process) -> bool:
            engine.step(0, SCHEDULER, {"num_prompt_tokens": 1000, "num_generation_tokens": 10})
            engine.step(1, {**SCHEDULER, "num_running_reqs": 1})
            said[:] = [line for line in lines(process) if line["stage"] == "0" and line["generation_tokens_per_s"] not in ("-", "0.0")]
            return bool(said)

        for process in (node.agent, cluster.hub):
            wait_for(lambda process=process: is_said(process), "a line with rates", every_s=0.05)  # type: ignore[misc]
            line = said[-1]
            assert (line["service"], line["model"], line["role"], line["running"], line["waiting"], line["kv_cache_usage"]) == \
                ("chat ?x? y", "tiny", "both", "3", "2", "0.500")
            assert float(line["prompt_tokens_per_s"]) == pytest.approx(100 * float(line["generation_tokens_per_s"]), abs=6)  # both are rounded
            assert (line["prefix_hit_rate"], line["acceptance_rate"]) == ("-", "-")
            assert {"0", "1"} == {each["stage"] for each in lines(process)}
        assert (said[-1]["node"], said[-1]["sources"]) == ("node-a", "1")


def test_it_is_off_by_default_and_a_sighup_turns_it_on(cluster: Cluster) -> None:
    node = cluster.plan_node()
    config = cluster.folder / "agent.yaml"
    config.write_text("log_level: info\n")
    node.agent.command += ["--config", str(config)]
    node.agent.start().wait_ready()
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, SCHEDULER)
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 3, "the step is there")
        engine.flush()
        assert lines(node.agent) == [] and lines(cluster.hub) == []
        config.write_text("log_level: info\nlog_stats: 1s\n")
        node.agent.send(signal.SIGHUP)
        wait_for(lambda: lines(node.agent), "a line")
