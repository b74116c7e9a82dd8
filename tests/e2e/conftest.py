"""Fixtures of the end-to-end tests. `--bin` says whose daemons run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from daemons import REPOSITORY, Cluster
from players import Player


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bin", type=Path, default=REPOSITORY / "build" / "dev" / "bin", help="folder of statsbus-agent and statsbus-hub")


@pytest.fixture
def binaries(request: pytest.FixtureRequest) -> Path:
    path: Path = request.config.getoption("--bin")
    return path.resolve()


@pytest.fixture
def cluster(binaries: Path) -> Iterator[Cluster]:
    """A hub that is ready; nodes are the test's to add."""
    with Cluster(binaries) as running:
        yield running
        for process in [running.hub, *(node.agent for node in running.nodes)]:
            assert "runtime error" not in process.log() and "ERROR: " not in process.log(), process.log()[-4000:]


@pytest.fixture
def new_cluster(binaries: Path) -> Iterator[Callable[..., Cluster]]:
    """For tests that need flags, or several."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Cluster(binaries, **options))


@pytest.fixture
def players() -> Iterator[list[Player]]:
    """Agents that a test plays; those that it adds are closed."""
    made: list[Player] = []
    yield made
    for player in made:
        player.wire.drop()
