"""scripts/demo: what a new user sees first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daemons import REPOSITORY, wait_for


def start(binaries: Path, folder: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, REPOSITORY / "scripts" / "demo.py", "--bin", binaries, *flags]
    return subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_once_prints_numbers_and_no_address_that_is_gone(binaries: Path, tmp_path: Path) -> None:
    process = start(binaries, tmp_path, "--once")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert "vllm:generation_tokens_total{" in out and "http://" not in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_nothing_behind(binaries: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = start(binaries, tmp_path)
    assert process.stdout
    wait_for(lambda: "Ctrl-C" in (process.stdout.readline() if process.stdout else ""), "it says how to stop it", every_s=0)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and "stopping" in out, out
    assert list(tmp_path.iterdir()) == []
