"""Numbers pass from a replayed engine through agent and hub in containers, whatever is restarted meanwhile."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import golden
from compose import container
from daemons import CAPTURES, Process, http_get, wait_for
from demo_cluster import prometheus_command
from fleet import STOP_S, Fleet

DAEMONS = ["hub", "agent-a", "agent-b"]
ENGINES = ["prefill-a", "decode-a", "prefill-b", "decode-b"]
CAPTURE = CAPTURES / "plain"


@pytest.fixture(scope="module")
def running(containers: Fleet) -> Iterator[Fleet]:
    """All services but Prometheus; tells how long each took."""
    took = {}
    for name in DAEMONS:
        start = time.monotonic()
        containers.start(name)
        created = time.monotonic() - start
        took[name] = f"{name}: created and started in {1000 * created:.0f} ms, ready {1000 * containers.wait_ready(name):.0f} ms later"
    for name in ENGINES:
        start = time.monotonic()
        containers.start(name)
        wait_for(lambda: containers.sample("vllm:num_requests_running", "type=instance", instance_id=f"{name}-1") is not None,
                 f"{name}'s numbers; its log: {containers.log(name)}", 60)
        took[name] = f"{name}: {time.monotonic() - start:.1f} s from `run` to its first number at the hub"
    print("\n" + "\n".join(took.values()))
    yield containers


def test_every_engine_of_the_cluster_counts(running: Fleet) -> None:
    def tokens() -> dict[str, float | None]:
        return {name: running.sample("vllm:generation_tokens_total", "type=instance", instance_id=f"{name}-1") for name in ENGINES}

    wait_for(lambda: all(tokens().values()), f"tokens of all engines: {tokens()}", 30)
    for node in ("node-a", "node-b"):
        for role in ("prefill", "decode"):
            assert running.sample("vllm:generation_tokens_total", "type=node", node=node, role=role)
    assert running.sample("statsbus_hub_agents") == 2


def play(running: Fleet, engine: str, service: str, *flags: str, **changes: object) -> subprocess.Popen[str]:
    """The recording once, as a service of its own, by an engine that is otherwise like this one."""
    return running.start_like(engine, "/captures/plain/stream.bin.gz", "--service", service, "--job-name", "engine-0", "--instance-id", service,
                              "--role", "both", *flags, **changes)


def ended(player: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = player.communicate(timeout=120)
    return player.returncode, errors


def check_numbers(running: Fleet, service: str) -> None:
    """Every series is what the engine itself printed."""
    engine = golden.read_series((CAPTURE / "metrics.prom").read_text())
    found: list[str] = []

    def is_equal() -> bool:
        found[:] = [line for view in ("dp", "full")
                    for line in golden.differences(engine, running.metrics(f"type={view}&service_name={service}"), view, False)]
        return not found

    try:
        wait_for(is_equal, "the hub shows the engine's numbers", 20)
    except Exception:
        pytest.fail(f"{len(found)} differences:\n" + "\n".join(found[:20]))


@pytest.mark.parametrize("engine", ["prefill-a", "prefill-b"], ids=["shared folder", "tcp"])
def test_every_series_is_the_engines(running: Fleet, engine: str) -> None:
    assert ended(play(running, engine, f"once-{engine}", "--speed", "max")) == (0, "")
    check_numbers(running, f"once-{engine}")


@pytest.mark.parametrize("how", ["restart", "kill"])
@pytest.mark.parametrize("victim", ["agent-a", "agent-b", "hub"])
def test_nothing_is_lost_or_counted_twice_over_a_restart(running: Fleet, victim: str, how: str) -> None:
    engine = "prefill-b" if victim == "agent-b" else "prefill-a"
    service = f"{victim}-{how}"
    player = play(running, engine, service, "--speed", "4")
    wait_for(lambda: running.sample("vllm:generation_tokens_total", f"type=full&service_name={service}"), "it has begun", 60)
    if how == "restart":
        running.call("restart", "-t", str(STOP_S), container(victim))
    else:
        running.call("kill", "-s", "KILL", container(victim))
        wait_for(lambda: not running.inspect(victim)["State"]["Running"] or running.is_ready(victim), f"{victim} is dead, or back", 30)
        running.call("start", container(victim))
    running.wait_ready(victim)
    assert player.poll() is None, "the recording was over before"
    assert ended(player) == (0, "")
    check_numbers(running, service)


def test_a_user_outside_the_agents_group_reaches_nothing_through_the_folder(running: Fleet) -> None:
    code, errors = ended(play(running, "prefill-a", "stranger", "--speed", "max", "--timeout", "3", group_add=None))
    assert code == 1 and "no agent listens at ipc:///run/statsbus/engines" in errors
    assert running.sample("vllm:generation_tokens_total", "type=full&service_name=stranger") is None


@pytest.mark.parametrize("name", [*DAEMONS, "prefill-a"])
def test_its_process_is_as_little_as_can_be(running: Fleet, name: str) -> None:
    process = Path("/proc") / str(running.pid(name))
    if not process.exists():
        pytest.skip("containers run on another machine than this test")
    status = dict(re.findall(r"^(\w+):\s*(.*)$", (process / "status").read_text(), re.M))
    user = "10002" if name == "prefill-a" else "10001"
    assert status["Uid"].split() == [user] * 4 and status["Gid"].split() == [user] * 4
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0 and status["NoNewPrivs"] == "1"
    root = next(line.split() for line in (process / "mountinfo").read_text().splitlines() if line.split()[4] == "/")
    assert "ro" in root[5].split(",")


@pytest.mark.parametrize("name", DAEMONS)
def test_health_says_whether_the_daemon_runs_its_loop(running: Fleet, name: str) -> None:
    assert running.is_healthy(name)
    running.call("kill", "-s", "STOP", container(name))
    try:
        assert not running.is_healthy(name)
    finally:
        running.call("kill", "-s", "CONT", container(name))
    wait_for(lambda: running.is_healthy(name), "it is well again")


@pytest.mark.parametrize("name", DAEMONS)
def test_signals_reach_the_daemon(running: Fleet, name: str) -> None:
    before = running.log(name).count("reload")
    running.call("kill", "-s", "HUP", container(name))
    wait_for(lambda: running.log(name).count("reload") > before, "SIGHUP reads settings anew")
    start = time.monotonic()
    running.call("stop", "-t", str(STOP_S), container(name))
    assert time.monotonic() - start < STOP_S, "SIGTERM was not heard"
    assert running.inspect(name)["State"]["ExitCode"] == 0, running.log(name)
    running.call("start", container(name))
    running.wait_ready(name)


def test_an_engine_that_is_stopped_ends_in_order(running: Fleet) -> None:
    running.call("stop", "-t", str(STOP_S), container("decode-b"))
    assert running.inspect("decode-b")["State"]["ExitCode"] == 0, running.log("decode-b")
    wait_for(lambda: running.sample("vllm:num_requests_running", "type=instance", instance_id="decode-b-1") is None, "its gauges leave")
    assert running.sample("vllm:generation_tokens_total", "type=instance", instance_id="decode-b-1")
    running.call("start", container("decode-b"))
    wait_for(lambda: running.sample("vllm:num_requests_running", "type=instance", instance_id="decode-b-1") is not None, "and come back", 30)


@pytest.mark.skipif(not shutil.which("prometheus"), reason="no Prometheus on this machine")
def test_prometheus_scrapes_the_services(running: Fleet, tmp_path: Path) -> None:
    """The configuration of compose.yaml's Prometheus, by one of this machine, for which the services have other names."""
    config = tmp_path / "prometheus.yml"
    text = (Path(__file__).parents[2] / "docker" / "prometheus.yml").read_text()
    config.write_text(re.sub(r'"(hub|agent-[ab]):', '"127.0.0.1:', text))
    prometheus = Process("prometheus", prometheus_command(config, tmp_path / "tsdb", 9090), tmp_path, 9090).start()
    try:
        def count(query: str) -> float:
            try:
                body = http_get(9090, f"/api/v1/query?query={quote(query)}")[2].decode()
            except OSError:
                return 0.0
            found = re.search(r'"value":\[[^,]*,"([^"]*)"\]', body)
            return float(found[1]) if found else 0.0

        wait_for(lambda: count("count(up == 1)") == 4, "hub twice and both agents are scraped", 30)
        assert count('count(vllm:generation_tokens_total{view="full",service_name="demo"})') == 1
        wait_for(lambda: count('count(count by (instance_id) (instance:vllm:generation_tokens_total{service_name="demo"}))') == 4,
                 "each engine has its row", 30)
    finally:
        prometheus.stop()
