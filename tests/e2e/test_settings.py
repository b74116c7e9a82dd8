"""Settings of both daemons: where they come from, --check-config, and SIGHUP."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from daemons import REPOSITORY, Cluster, Node, Process, wait_for
from engine import Engine
from make_docs import read_settings

pytestmark = pytest.mark.sanitized

DAEMONS = {"statsbus-agent": REPOSITORY / "agent" / "agent_settings.def", "statsbus-hub": REPOSITORY / "hub" / "hub_settings.def"}
SCHEDULER = {"num_running_reqs": 3, "num_waiting_reqs": 2, "num_skipped_waiting_reqs": 1, "kv_cache_usage": 0.5}


def run(binaries: Path, program: str, *flags: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binaries / program, *flags], capture_output=True, text=True, timeout=20, check=False, env=env or {})


def origins(printed: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+): .* # (.*)$", printed, flags=re.M))


@pytest.mark.parametrize("program", DAEMONS)
def test_check_config_prints_every_setting_of_the_table_with_its_default(binaries: Path, program: str) -> None:
    done = run(binaries, program, "--check-config")
    assert (done.returncode, done.stderr) == (0, "")
    rows = read_settings(DAEMONS[program])
    printed = yaml.load(done.stdout, yaml.BaseLoader)  # every value as it is written
    assert printed == {row.name: row.default for row in rows}
    assert set(origins(done.stdout).values()) == {"default"}


def test_check_config_says_who_said_so_and_opens_nothing(binaries: Path, tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(f"# ours\nnode: file\nstate: {tmp_path}/agent.state\nengines: ipc://{tmp_path}/engines\ncommit_period: 2s\n"
                      "hub_timeout: 7s\n")
    done = run(binaries, "statsbus-agent", "--check-config", "--node=flag",
               env={"STATSBUS_AGENT_CONFIG": str(config), "STATSBUS_AGENT_NODE": "variable", "STATSBUS_AGENT_COMMIT_PERIOD": "3s"})
    assert (done.returncode, done.stderr) == (0, "")
    said = origins(done.stdout)
    assert said["node"] == "--node" and said["commit_period"] == "STATSBUS_AGENT_COMMIT_PERIOD"
    assert said["hub_timeout"] == f"{config}:6" and said["hub"] == "default"
    values = yaml.safe_load(done.stdout)
    assert (values["node"], values["commit_period"], values["hub_timeout"]) == ("flag", "3s", "7s")
    assert [path.name for path in tmp_path.iterdir()] == ["agent.yaml"]

    again = tmp_path / "again.yaml"
    again.write_text(done.stdout)
    assert yaml.safe_load(run(binaries, "statsbus-agent", "--check-config", "--config", str(again)).stdout) == values


@pytest.mark.parametrize(("program", "text", "says"), [
    ("statsbus-agent", "node: a\ncommit_period: 1\n", ":2: commit_period: '1' needs a unit: ms, s, m or h"),
    ("statsbus-agent", "comit_period: 1s\n", ":1: no setting is called 'comit_period'"),
    ("statsbus-agent", "commit_period: 0s\n", ":1: commit_period: '0s' is less than 20ms"),
    ("statsbus-agent", "hub: tcp://hub\n", ":1: hub: 'tcp://hub' is not tcp://host:port"),
    ("statsbus-agent", "replay: ipc:///run/statsbus/engines\n", "--replay: 'ipc:///run/statsbus/engines' is the endpoint of --engines already"),
    ("statsbus-hub", "agents_max: 7\nagents_max: 8\n", ":2: 'agents_max' stands here twice"),
    ("statsbus-hub", "http: 9464\n", ":1: http: '9464' is not address:port or [address]:port"),
    ("statsbus-hub", "log_level: loud\n", ":1: log_level: 'loud' is not debug, info, warn or error"),
    ("statsbus-hub", "row_memory_max: [\n", ":2: did not find expected node content"),
])
@pytest.mark.parametrize("flags", [["--check-config"], []])
def test_a_file_with_a_fault_is_refused_with_its_place(binaries: Path, tmp_path: Path, program: str, text: str, says: str,
                                                       flags: list[str]) -> None:
    config = tmp_path / "s.yaml"
    config.write_text(text)
    done = run(binaries, program, "--config", str(config), *flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{program}: {config if says.startswith(':') else ''}{says}\n"


def test_a_file_that_is_not_there_is_an_error(binaries: Path, tmp_path: Path) -> None:
    for env, flags, name in ({}, ["--config", f"{tmp_path}/no"], "--config"), ({"STATSBUS_HUB_CONFIG": f"{tmp_path}/no"}, [], "STATSBUS_HUB_CONFIG"):
        done = run(binaries, "statsbus-hub", *flags, env=env)
        assert (done.returncode, done.stderr) == (1, f"statsbus-hub: {name}: cannot open {tmp_path}/no: No such file or directory\n")


@pytest.mark.parametrize(("program", "name", "file", "text", "says"), [
    ("statsbus-hub", "views", "views.yaml", "version: 1\nviews:\n  rack: {by: rack}\n", ":3: 'by' must be a list: [a, b]"),
    ("statsbus-hub", "views", "no.yaml", None, ": No such file or directory"),
    ("statsbus-hub", "catalog", "a.yaml", "version: 1\nroots: []\n", ":2: "),
    ("statsbus-agent", "catalog", "a.yaml", "version: 1\nroots: []\n", ":2: "),
    ("statsbus-agent", "catalog", "no", None, ": No such file or directory"),
])
@pytest.mark.parametrize("flags", [["--check-config"], ["--http=127.0.0.1:0"]])
def test_a_fault_in_a_file_that_a_setting_names_is_found(binaries: Path, tmp_path: Path, program: str, name: str, file: str, text: str | None,
                                                         says: str, flags: list[str]) -> None:
    path = tmp_path / file
    if text is not None:
        path.write_text(text)
    named = path if name == "views" or text is None else tmp_path
    done = run(binaries, program, f"--{name}={named}", *flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{program}: {'' if text is not None else f'--{name}: '}{path}{says}"), done.stderr


@pytest.mark.parametrize("flag", ["--check-config", "--help", "--version"])
def test_what_cannot_be_printed_is_an_error(binaries: Path, flag: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([binaries / "statsbus-hub", flag], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20, check=False, env={})
    assert (done.returncode, done.stderr) == (1, "statsbus-hub: what is asked for cannot be printed\n")


@pytest.mark.parametrize("flag", ["engines", "replay", "state"])
def test_a_folder_that_is_not_there_is_named_with_its_flag(binaries: Path, tmp_path: Path, flag: str) -> None:
    paths = {"engines": f"ipc://{tmp_path}/e", "replay": f"ipc://{tmp_path}/r", "state": f"{tmp_path}/state"}
    paths[flag] = paths[flag].replace(str(tmp_path), f"{tmp_path}/no")
    done = run(binaries, "statsbus-agent", "--http", "127.0.0.1:0", *(f"--{name}={path}" for name, path in paths.items()))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"statsbus-agent: --{flag}: there is no folder {tmp_path}/no"


# SIGHUP


def node_of(cluster: Cluster, config: Path, text: str) -> Node:
    """An agent whose name comes from the file."""
    node = cluster.plan_node(flags=["--config", str(config)])
    at = node.agent.command.index("--node")
    del node.agent.command[at:at + 2]
    config.write_text(text)
    node.agent.start().wait_ready()
    return node


def reload(process: Process, config: Path, text: str, answer: str = "settings reloaded") -> str:
    """Writes the file, sends SIGHUP, and returns what was logged for it."""
    before = len(process.log())
    config.write_text(text)
    process.send(signal.SIGHUP)
    wait_for(lambda: answer in process.log()[before:], f"{answer}; the log ends: {process.log()[-500:]}")
    return process.log()[before:]


def test_sighup_changes_periods_and_timeouts_of_a_running_agent(cluster: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    node = node_of(cluster, config, "node: a\ncommit_period: 1m\nsource_timeout: 1h\n")
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, SCHEDULER, {"num_generation_tokens": 7})
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 3, "the gauge is there")
        log = reload(node.agent, config, "node: b\ncommit_period: 50ms\nsource_timeout: 1h\n")
        wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total") == 7, "the counter is there, well before a minute is over")
        assert re.search(r'level=info .*msg="setting changed" name=commit_period from="1m" to="50ms" origin=".*agent\.yaml:2"', log)
        assert re.search(r'level=warn .*msg="setting needs a restart" name=node from="a" to="b"', log)
        assert 'msg="settings reloaded" changed=1 waiting=1' in log

        engine.silence()
        reload(node.agent, config, "node: b\ncommit_period: 50ms\nsource_timeout: 1s\n")
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") is None, "the gauge leaves, well before an hour is over")
        assert cluster.hub.sample("vllm:generation_tokens_total") == 7


def test_sighup_changes_the_hubs_timeout_and_its_limit_of_agents(binaries: Path, new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    config = tmp_path / "hub.yaml"
    config.write_text("agent_timeout: 1h\n")
    cluster = new_cluster(hub_flags=["--config", str(config)])
    node = cluster.add_node()
    with Engine(node) as engine:
        engine.wait_subscribed()
        engine.step(0, SCHEDULER)
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") == 3, "the gauge is there")
        node.agent.send(signal.SIGSTOP)
        reload(cluster.hub, config, "agent_timeout: 1s\nagents_max: 5\n")
        assert cluster.hub.sample("statsbus_hub_agents_max") == 5
        wait_for(lambda: cluster.hub.sample("vllm:num_requests_running") is None, "the gauge leaves")
        node.agent.send(signal.SIGCONT)


@pytest.mark.parametrize("program", DAEMONS)
def test_sighup_changes_the_level_of_the_log(program: str, new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    config = tmp_path / "s.yaml"
    config.write_text("log_level: error\n")
    cluster = new_cluster(hub_flags=["--config", str(config)] if program == "statsbus-hub" else [])
    process = cluster.hub if program == "statsbus-hub" else cluster.add_node(flags=["--config", str(config)]).agent
    assert "level=info" not in process.log()
    reload(process, config, "log_level: info\n")
    assert process.stop() == 0
    assert 'msg="stopped"' in process.log()


@pytest.mark.parametrize("program", DAEMONS)
def test_a_broken_file_changes_nothing_and_the_next_good_one_does(program: str, new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    config = tmp_path / "s.yaml"
    config.write_text("log_level: warn\n")
    cluster = new_cluster(hub_flags=["--config", str(config)] if program == "statsbus-hub" else [])
    process = cluster.hub if program == "statsbus-hub" else cluster.add_node(flags=["--config", str(config)]).agent
    for text, reason in (("log_level: info\nhttp: nowhere\n", f"{config}:2: http: 'nowhere' is not address:port or [address]:port"),
                         ("log_level: info\nlog_levle: info\n", f"{config}:2: no setting is called 'log_levle'"),
                         ("log_level: [\n", f"{config}:2: did not find expected node content")):
        log = reload(process, config, text, "settings not reloaded")
        assert f'level=error program={program} msg="settings not reloaded: nothing changes" reason="{reason}"' in log
        assert "setting changed" not in log
    config.unlink()
    process.send(signal.SIGHUP)
    wait_for(lambda: f"cannot open {config}" in process.log(), "the file is missed")
    assert process.is_running() and process.get("/healthz")[0] == 200

    log = reload(process, config, "log_level: error\n")
    assert 'msg="setting changed" name=log_level from="warn" to="error"' in log
    assert process.stop() == 0
    assert 'msg="stopped"' not in process.log()  # the level was never info


def test_a_flag_wins_over_the_file_after_sighup_too(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    config = tmp_path / "hub.yaml"
    config.write_text("agents_max: 2\n")
    cluster = new_cluster(hub_flags=["--config", str(config), "--agents-max", "9"])
    assert cluster.hub.sample("statsbus_hub_agents_max") == 9
    log = reload(cluster.hub, config, "agents_max: 3\n")
    assert "changed=0 waiting=0" in log
    assert cluster.hub.sample("statsbus_hub_agents_max") == 9


@pytest.mark.parametrize("program", DAEMONS)
def test_sighup_without_a_file_and_during_the_stop_does_no_harm(program: str, cluster: Cluster) -> None:
    process = cluster.hub if program == "statsbus-hub" else cluster.add_node().agent
    process.send(signal.SIGHUP)
    wait_for(lambda: 'msg="settings reloaded" changed=0 waiting=0' in process.log(), "SIGHUP is answered")
    process.send(signal.SIGTERM)
    process.send(signal.SIGHUP)
    assert process.wait(10) == 0


@pytest.mark.parametrize("program", DAEMONS)
def test_health_asks_the_daemon_that_has_the_same_settings(cluster: Cluster, binaries: Path, program: str) -> None:
    daemon = cluster.hub if program == "statsbus-hub" else cluster.add_node().agent
    prefix = "STATSBUS_HUB" if program == "statsbus-hub" else "STATSBUS_AGENT"
    env = {f"{prefix}_HTTP": f"0.0.0.0:{daemon.port}"}
    done = run(binaries, program, "--health", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    daemon.send(signal.SIGSTOP)
    done = run(binaries, program, "--health", env=env)
    daemon.send(signal.SIGCONT)
    assert (done.returncode, done.stderr) == (1, f"{program}: 0.0.0.0:{daemon.port} does not answer: it takes too long\n")
    daemon.stop()
    done = run(binaries, program, "--health", env=env)
    assert (done.returncode, done.stderr) == (1, f"{program}: 0.0.0.0:{daemon.port} does not answer: Connection refused\n")
    done = run(binaries, program, "--health", "--http", "nowhere")
    assert done.returncode == 1 and "--http: 'nowhere'" in done.stderr
