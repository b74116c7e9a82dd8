"""The package as a whole: which Python it reads as, and that recording stays cheap."""

from __future__ import annotations

import ast
import os
import pathlib
import subprocess
import sys
import time

import pytest
import statsbus

FILES = sorted(pathlib.Path(statsbus.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_python_3_9(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    has_future = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    assert has_future or path.name == "__init__.py"


def test_recording_256_latencies_costs_a_fraction_of_observing_them(publish):
    """The bench measures the aim (a fiftieth); this guards against a slip, on machines that do other things too."""
    prometheus_client = pytest.importorskip("prometheus_client")
    bounds = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
    registry = prometheus_client.CollectorRegistry()
    histogram = prometheus_client.Histogram("h", "h", ["model"], buckets=bounds, registry=registry).labels("m")
    scheduler = {"num_running_reqs": 256, "num_waiting_reqs": 0, "kv_cache_usage": 0.5}
    iteration = {"num_generation_tokens": 256, "inter_token_latencies_iter": [0.02 + n / 1e5 for n in range(256)]}
    publisher = publish()

    def best_of(times, count, call):
        spent = []
        for _ in range(times):
            start = time.thread_time()
            for _ in range(count):
                call()
            spent.append((time.thread_time() - start) / count)
        return min(spent)

    def observe():
        for latency in iteration["inter_token_latencies_iter"]:
            histogram.observe(latency)

    assert best_of(5, 1000, lambda: publisher.step(0, scheduler, iteration)) < best_of(5, 20, observe) / 25


def test_a_clone_beside_a_script_does_not_hide_the_package(tmp_path):
    """A folder called statsbus without an __init__.py, such as the repository, is importable to Python."""
    script = tmp_path / "script.py"
    script.write_text("from statsbus import Publisher")
    command = [sys.executable, str(script)]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if subprocess.run(command, env=env, capture_output=True, check=False).returncode != 0:
        pytest.skip("the package is not installed here")
    (tmp_path / "statsbus").mkdir()
    assert subprocess.run(command, env=env, check=False).returncode == 0
