"""
Points a running vLLM-Omni at statsbus. `attach`, called through the entry-point group `vllm.general_plugins`, has its metric
classes publish too; with STATSBUS_REPLACE_PROMETHEUS=1 they publish instead. Its stat logger is vllm/omni.py's.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from typing import Any, List

from ..switches import is_on, replaces_prometheus
from . import adapters

CLASSES = {
    "vllm_omni.metrics.prometheus": ("OmniPrometheusMetrics",),
    "vllm_omni.metrics.modality": ("OmniModalityMetrics",),
    "vllm_omni.metrics.transfer": ("OmniTransferMetrics",),
    "vllm_omni.metrics.realtime": ("RealtimeVADMetrics",),
}

log = logging.getLogger("statsbus")


def attach() -> None:
    """Does nothing unless STATSBUS_ENGINES is set and this process uses vLLM-Omni."""
    if not is_on() or "vllm_omni" not in sys.modules:
        return
    is_alone = replaces_prometheus()
    for module, names in CLASSES.items():
        for name in names:
            try:
                publish_too(getattr(importlib.import_module(module), name), getattr(adapters, name), is_alone)
            except Exception as error:
                log.warning("statsbus: %s of this vLLM-Omni is not published: %s", name, error)


def publish_too(theirs: Any, ours: Any, is_alone: bool) -> None:
    """Changes the class, which others may have imported already. Its objects get one of ours, older ones when called."""
    if getattr(theirs, "publishes_to_statsbus", False):
        return
    theirs.publishes_to_statsbus = True
    make = theirs.__init__

    @functools.wraps(make)
    def make_both(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _tell(self, ours)

    theirs.__init__ = make_both
    for name in methods(ours):
        own = getattr(theirs, name, None)
        if own is not None:
            setattr(theirs, name, _both(own, name, ours, is_alone))


def methods(ours: Any) -> List[str]:
    """Names of the calls that an adapter takes."""
    return [name for name, value in vars(ours).items() if callable(value) and not name.startswith("_")]


def _both(own: Any, name: str, ours: Any, is_alone: bool) -> Any:
    @functools.wraps(own)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        _tell(self, ours, name, *args, **kwargs)
        return None if is_alone else own(self, *args, **kwargs)

    return call


def _tell(theirs: Any, ours: Any, name: str = "", *args: Any, **kwargs: Any) -> None:
    """Calls our counterpart of an object, which is made if need be; a release that has another shape costs its samples."""
    try:
        adapter = theirs.__dict__.get("statsbus")
        if adapter is None:
            adapter = theirs.statsbus = ours(str(theirs._model_name), bool(getattr(theirs, "_log_stats", True)))
        if name:
            getattr(adapter, name)(*args, **kwargs)
    except Exception as error:
        log.debug("statsbus: %s is not published: %r", name or ours.__name__, error)
