"""
vLLM-Omni: its orchestrator makes its own stat logger, past vLLM's plugins. `attach`, called through the entry-point group
`vllm.general_plugins` in every process, has that logger publish too; stages and replicas become ours.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import sys
from typing import Any

from ..omni.adapters import shared
from ..switches import is_on, replaces_prometheus

CALLS = ("record", "record_sleep_state", "record_admission_rejection", "log_engine_initialized", "log")
ORCHESTRATOR_MODULE, ORCHESTRATOR_CLASS = "vllm_omni.engine.orchestrator", "OrchestratorBase"
REPLICA_REMOVED = "_remove_stage_replica_waiting"  # what it calls when a replica has left or died
LOGGER_MODULE, LOGGER_CLASS = "vllm_omni.metrics.stat_logger", "OmniPrometheusStatLogger"

log = logging.getLogger("statsbus")


def attach() -> None:
    """Does nothing unless STATSBUS_ENGINES is set and this process uses vLLM-Omni."""
    if not is_on() or "vllm_omni" not in sys.modules:
        return
    try:
        logger = getattr(importlib.import_module(LOGGER_MODULE), LOGGER_CLASS)
        if "stage_replica_map" not in inspect.signature(logger.__init__).parameters:
            raise TypeError(f"{LOGGER_CLASS} knows no stages and replicas in this release")
        publish_too(logger)
    except Exception as error:
        log.warning("statsbus: scheduler stats of this vLLM-Omni are not published: %s", error)


def publish_too(logger: Any) -> None:
    """Changes the class, whose name the orchestrator may have imported already."""
    if getattr(logger, "publishes_to_statsbus", False):
        return
    logger.publishes_to_statsbus = True
    logger.statsbus_engine, logger.statsbus_calls = None, {}  # of loggers that are older than this
    is_alone = replaces_prometheus()
    make = logger.__init__

    @functools.wraps(make)
    def make_both(self: Any, vllm_config: Any, stage_replica_map: Any, *args: Any, **kwargs: Any) -> None:
        if not is_alone:
            make(self, vllm_config, stage_replica_map, *args, **kwargs)
        else:
            self._stage_replica_map = stage_replica_map
        self.statsbus_config = vllm_config
        hear_of_removed_replicas()
        _set_engine(self, _engine(vllm_config, stage_replica_map))

    logger.__init__ = make_both
    if hasattr(logger, "register_replica"):
        logger.register_replica = _registering(logger.register_replica, is_alone)
    for name in CALLS:
        setattr(logger, name, _both(getattr(logger, name, None), name, is_alone))


def hear_of_removed_replicas() -> None:
    """An orchestrator makes its logger before it has replicas, so that its class may still be changed."""
    orchestrator = getattr(sys.modules.get(ORCHESTRATOR_MODULE), ORCHESTRATOR_CLASS, None)
    own = getattr(orchestrator, REPLICA_REMOVED, None)
    if own is None or hasattr(own, "tells_statsbus"):
        return

    @functools.wraps(own)
    def removed(self: Any, stage_id: int, replica_id: int, *args: Any, **kwargs: Any) -> Any:
        try:
            engine = getattr(getattr(self, "_stat_logger", None), "statsbus_engine", None)
            if engine is not None:
                engine.leave(str(stage_id), str(replica_id))
            shared.leave(stage_id, replica_id)
        except Exception as error:
            log.debug("statsbus: replica %s of stage %s is taken to live on: %r", replica_id, stage_id, error)
        return own(self, stage_id, replica_id, *args, **kwargs)

    setattr(removed, "tells_statsbus", True)
    setattr(orchestrator, REPLICA_REMOVED, removed)


def _registering(own: Any, is_alone: bool) -> Any:
    """`register_replica`: one more engine index, after the start; perhaps the first of all."""

    @functools.wraps(own)
    def register_both(self: Any, engine_idx: int, stage: str, replica: str) -> None:
        if not is_alone:
            own(self, engine_idx, stage, replica)
        _set_engine(self, _engine(self.statsbus_config, {engine_idx: (stage, replica)}) or self.statsbus_engine)

    return register_both


def _set_engine(logger: Any, engine: Any) -> None:
    logger.statsbus_engine = engine
    logger.statsbus_calls = engine.calls() if engine is not None else {}


def _engine(vllm_config: Any, stage_replica_map: Any) -> Any:
    """None where there is no replica yet, or something is wrong."""
    if not stage_replica_map:
        return None
    try:
        import vllm

        from .engine import Engine

        places = {int(index): (str(stage), str(replica)) for index, (stage, replica) in stage_replica_map.items()}
        return Engine.of(vllm_config, list(places), places, getattr(vllm, "__version__", ""))
    except Exception as error:
        log.error("statsbus: this orchestrator publishes nothing: %s", error)
        return None


def _both(own: Any, name: str, is_alone: bool) -> Any:
    """A call of the logger's that goes to us as well, or to us alone."""

    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        ours = self.statsbus_calls.get(name)
        if ours is not None:
            ours(*args, **kwargs)
        if own is not None and not is_alone:
            own(self, *args, **kwargs)

    return call
