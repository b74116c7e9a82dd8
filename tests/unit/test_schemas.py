"""The protocols' documents and their examples agree."""

from __future__ import annotations

import subprocess
import sys

from daemons import REPOSITORY


def test_every_kind_has_an_example_whose_bytes_are_what_its_json_says() -> None:
    done = subprocess.run([sys.executable, REPOSITORY / "schemas" / "check.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
