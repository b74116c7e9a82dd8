"""docker/compose.yaml and what it names; the services themselves are run by docker/test."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from compose import COMPOSE, DOCKER, PODMAN, run_arguments, services
from daemons import REPOSITORY

SCHEMA = REPOSITORY / "tests" / "data" / "compose" / "compose-spec.json"
IMAGES = {"statsbus-hub": "hub.Dockerfile", "statsbus-agent": "agent.Dockerfile", "statsbus-engine-replay": "engine-replay.Dockerfile"}


def read() -> dict[str, Any]:
    whole: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return whole


def test_it_is_a_compose_file() -> None:
    validator = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text()))
    validator.check_schema(validator.schema)
    assert [f"{list(error.absolute_path)}: {error.message}" for error in validator.iter_errors(read())] == []


def test_the_schema_would_refuse_a_mistake() -> None:
    validator = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text()))
    broken = read()
    broken["services"]["hub"]["read_olny"] = True
    assert not validator.is_valid(broken)


def has_compose() -> bool:
    return bool(shutil.which("docker")) and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0


@pytest.mark.skipif(not has_compose(), reason="no docker compose here")
def test_docker_compose_takes_it() -> None:
    done = subprocess.run(["docker", "compose", "-f", COMPOSE, "config", "--quiet"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_its_services_are_a_small_cluster() -> None:
    assert set(services()) == {"hub", "agent-a", "agent-b", "prefill-a", "decode-a", "prefill-b", "decode-b", "prometheus"}
    for name, service in services().items():
        if name == "prometheus":
            continue
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], name
        context = (COMPOSE.parent / service["build"]["context"]).resolve()
        assert context == REPOSITORY
        assert context / service["build"]["dockerfile"] == REPOSITORY / "docker" / IMAGES[service["image"]]
        assert (context / service["build"]["dockerfile"]).exists()


def test_what_it_names_is_there() -> None:
    whole = read()
    for name, service in whole["services"].items():
        assert set(service.get("depends_on", [])) <= set(whole["services"]), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (COMPOSE.parent / source).exists() if source.startswith(".") else source in whole["volumes"], f"{name}: {volume}"
        for part in service.get("command", []):
            if part.startswith("/captures/"):
                assert (REPOSITORY / "tests" / "data" / part[1:]).exists(), part
        for address in service.get("ports", []):
            assert address.startswith("127.0.0.1:"), f"{name}: there is no authentication yet"


def test_prometheus_scrapes_services_at_ports_that_they_have() -> None:
    config = yaml.safe_load((COMPOSE.parent / "prometheus.yml").read_text())
    published = {f"{name}:{port.split(':')[-1]}" for name, service in services().items() for port in service.get("ports", [])}
    targets = {target for job in config["scrape_configs"] for one in job["static_configs"] for target in one["targets"]}
    assert targets == published - {"prometheus:9090"}
    assert [job.get("params", {}).get("type") for job in config["scrape_configs"]] == [["full"], ["instance"], None]


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool here")
def test_promtool_takes_the_configuration() -> None:
    done = subprocess.run(["promtool", "check", "config", COMPOSE.parent / "prometheus.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_stages_that_build_the_daemons_are_the_same_up_to_their_target() -> None:
    """So that the second of them comes out of the first's cache."""
    stages = [(COMPOSE.parent / f"{name}.Dockerfile").read_text().partition("FROM")[2].partition("RUN cmake")[0] for name in ("agent", "hub")]
    assert stages[0] == stages[1] != ""


def test_a_service_is_run_by_hand_with_the_same_arguments() -> None:
    service = services()["prefill-a"]
    docker = run_arguments(DOCKER, "prefill-a", service, [])
    end = ["statsbus-engine-replay", *service["command"]]
    flags = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--restart=unless-stopped", "--group-add=10001",
             "--env=STATSBUS_ENGINES=ipc:///run/statsbus/engines", "--volume=statsbus-test-sockets-a:/run/statsbus:ro"]
    assert docker[-len(end):] == end
    assert docker[:-len(end)] == ["run", "-d", "--name", "statsbus-test-prefill-a", "--network", "statsbus-test", "--network-alias", "prefill-a",
                                  *flags]
    podman = run_arguments(PODMAN, "prefill-a", service, ["hub"])
    assert set(flags) < set(podman) and "--add-host=hub:127.0.0.1" in podman
    assert "--publish=127.0.0.1:9464:9464" in run_arguments(DOCKER, "hub", services()["hub"], [])


def test_a_key_that_is_not_known_is_not_left_out_in_silence() -> None:
    with pytest.raises(ValueError, match="hub: the key privileged is not known"):
        run_arguments(DOCKER, "hub", {**services()["hub"], "privileged": True}, [])


def test_the_documents_name_the_user_and_ports_of_the_images() -> None:
    text = (REPOSITORY / "docs" / "containers.md").read_text()
    for name in IMAGES.values():
        dockerfile: str = (Path(REPOSITORY) / "docker" / name).read_text()
        user = re.search(r"^USER (\d+):\1$", dockerfile, re.M)
        assert user and user[1] in text, name
