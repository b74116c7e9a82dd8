"""What the environment tells the plugins: whether this process publishes, and whether in the place of its own metrics."""

from __future__ import annotations

import os


def is_on() -> bool:
    """Whether this process is to publish at all."""
    return bool(os.environ.get("STATSBUS_ENGINES"))


def replaces_prometheus() -> bool:
    """Whether the engine's own Prometheus metrics are to be left out."""
    return is_on() and os.environ.get("STATSBUS_REPLACE_PROMETHEUS", "").lower() in ("1", "true", "yes", "on")
