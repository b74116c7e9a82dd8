from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile
from typing import Any, Callable, Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from fake_agent import FakeAgent  # noqa: E402
from statsbus import Publisher  # noqa: E402


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATSBUS_ENGINES", "STATSBUS_REPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder for endpoints; not pytest's, whose paths are longer than an ipc endpoint may be."""
    path = tempfile.mkdtemp(prefix="sb-")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def agent(folder: str) -> Iterator[FakeAgent]:
    fake = FakeAgent(folder)
    yield fake
    fake.close()


@pytest.fixture
def healing_agent(folder: str) -> Iterator[FakeAgent]:
    fake = FakeAgent(folder, heals=True)
    yield fake
    fake.close()


@pytest.fixture
def publish(folder: str) -> Iterator[Callable[..., Publisher]]:
    """Makes publishers for the folder's endpoints, with short times, and closes them."""
    made = []

    def make(sources: Any = ({"model_name": "m"},), **options: Any) -> Publisher:
        made.append(
            Publisher(sources, engines=f"ipc://{folder}/engines", **{"batch_s": 0.01, "beat_s": 0.2, **options})
        )
        return made[-1]

    yield make
    for publisher in made:
        publisher.close(timeout_s=0.0)
