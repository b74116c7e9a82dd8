"""Fixtures of the tests that docker/test runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compose import DOCKER, PODMAN, PROJECT, Tool
from fleet import Fleet, bring_loopback_up


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--containers", choices=["docker", "podman"], help="what runs the images that docker/test built")


@pytest.fixture(scope="session")
def tool(request: pytest.FixtureRequest) -> Tool:
    kind = request.config.getoption("--containers")
    if not kind:
        pytest.skip("docker/test runs these")
    if kind == "podman":
        bring_loopback_up()
    return DOCKER if kind == "docker" else PODMAN


@pytest.fixture(scope="module")
def containers(tool: Tool) -> Iterator[Fleet]:
    """None is started."""
    them = Fleet(tool)
    them.remove_all()
    if tool.has_networks:
        them.call("network", "create", PROJECT)
    yield them
    them.remove_all()
