"""The services of docker/compose.yaml as arguments of `docker run` or `podman run`. Runs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from daemons import REPOSITORY

COMPOSE = REPOSITORY / "docker" / "compose.yaml"
PROJECT = "statsbus-test"


class Tool(NamedTuple):
    """Which program runs containers, and how they find each other."""

    command: tuple[str, ...]
    has_networks: bool  # else all share the host's, where every service is this machine


DOCKER = Tool(("docker",), True)
PODMAN = Tool(("podman", "--storage-driver=vfs", "--runtime", "runc"), False)
# Without them runc refuses where the limits of a container may not be raised over the caller's.
PODMAN_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")


def services(path: Path = COMPOSE) -> dict[str, dict[str, Any]]:
    read: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["services"]
    return read


def container(service: str) -> str:
    return f"{PROJECT}-{service}"


def _volume(text: str) -> str:
    """Named volumes belong to the project, folders are beside the file."""
    source, _, rest = text.partition(":")
    return f"{(COMPOSE.parent / source).resolve() if source.startswith('.') else container(source)}:{rest}"


def run_arguments(tool: Tool, name: str, service: dict[str, Any], others: list[str]) -> list[str]:
    """`run -d ...` for one service. A key that is not known here is an error, so that none is left out unseen."""
    out = ["run", "-d", "--name", container(name)]
    if tool.has_networks:
        out += ["--network", PROJECT, "--network-alias", name]
    else:
        out += ["--network=host", *PODMAN_LIMITS, *(f"--add-host={other}:127.0.0.1" for other in others)]
    for key, value in service.items():
        if key == "read_only":
            out += ["--read-only"] if value else []
        elif key == "cap_drop":
            out += [f"--cap-drop={one}" for one in value]
        elif key == "security_opt":
            # podman and older engines of Docker know it without a value alone.
            out += [f"--security-opt={one.removesuffix(':true')}" for one in value]
        elif key == "group_add":
            out += [f"--group-add={one}" for one in value]
        elif key == "environment":
            out += [f"--env={variable}={text}" for variable, text in value.items()]
        elif key == "volumes":
            out += [f"--volume={_volume(text)}" for text in value]
        elif key == "ports":
            out += [f"--publish={text}" for text in value] if tool.has_networks else []
        elif key == "restart":
            out.append(f"--restart={value}")
        elif key not in ("image", "build", "depends_on", "command"):
            raise ValueError(f"compose.yaml: {name}: the key {key} is not known to this test")
    return [*out, service["image"], *service.get("command", [])]
