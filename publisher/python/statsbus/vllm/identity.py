"""Who an engine is: labels from the environment, with defaults from what vLLM knows. docs/engines/vllm.md explains each."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
from typing import Any, Dict, List, Mapping, Optional

from .. import wire

ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "both"}
PORT = "8000"  # what `vllm serve` listens on unless told otherwise
ID_CHARACTERS = 12
START_TIME_FIELD = 19  # of /proc/PID/stat, counted from the field after the command's name


def identity(
    environment: Mapping[str, str], model_name: Optional[str] = None, kv_role: Optional[str] = None
) -> Dict[str, Any]:
    """Fields of `Source` that all schedulers of an engine share. An empty variable counts as unset."""

    def text(name: str) -> Optional[str]:
        return environment.get(name) or None

    return {
        "service_name": text("STATSBUS_SERVICE"),
        "model_name": text("STATSBUS_MODEL_NAME") or model_name,
        "job_name": text("STATSBUS_JOB_NAME") or default_job_name(environment, sys.argv),
        "instance_id": text("STATSBUS_INSTANCE_ID") or default_instance_id(),
        "role": text("STATSBUS_ROLE") or ROLES.get(kv_role or "", "both"),
        "stage": text("STATSBUS_STAGE"),
        "replica": text("STATSBUS_REPLICA"),
        "node": text("NODE_NAME"),
        "pod_ip": text("POD_IP"),
        "labels": labels(text("STATSBUS_LABELS") or ""),
    }


def labels(listed: str) -> Dict[str, str]:
    """`team=search,tier=gold` as a map."""
    out = {}
    for entry in filter(None, (part.strip() for part in listed.split(","))):
        name, found, value = entry.partition("=")
        if not found or not name.strip():
            raise ValueError(f"STATSBUS_LABELS: {entry!r} is not name=value")
        out[name.strip()] = value.strip()
    return out


def default_job_name(environment: Mapping[str, str], argv: List[str]) -> str:
    """
    Names an engine so that it is the same after a restart: the pod's name, or host and port outside Kubernetes, where
    one host may run several engines.
    """
    pod = environment.get("POD_NAME")
    if pod:
        return pod
    host = os.uname().nodename
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return host
    return f"{host}-{_port(argv)}"


def _port(argv: List[str]) -> str:
    for at, argument in enumerate(argv):
        if argument == "--port" and at + 1 < len(argv):
            return argv[at + 1]
        if argument.startswith("--port="):
            return argument[len("--port=") :]
    return PORT


def default_instance_id() -> str:
    """
    Names one life of an engine, alike in all of its API server processes: those are children of the process that
    started first, so it is made of that one, its start time, the host and the boot.
    """
    parent = multiprocessing.parent_process()
    pid = parent.pid if parent is not None and parent.pid is not None else os.getpid()
    parts = (wire.boot_id(), os.uname().nodename, str(pid), _start_time(pid))
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:ID_CHARACTERS]


def _start_time(pid: int) -> str:
    """In clock ticks since the boot; empty where there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[START_TIME_FIELD]
    except (OSError, IndexError):
        return ""
