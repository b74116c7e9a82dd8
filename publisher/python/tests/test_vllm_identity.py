"""Who an engine says it is, out of its environment and what vLLM knows."""

from __future__ import annotations

import multiprocessing
import os
import sys

import pytest
from statsbus.vllm.identity import default_instance_id, default_job_name, identity, labels

HOST = os.uname().nodename


def test_variables_win_over_what_vllm_knows():
    given = {
        "STATSBUS_SERVICE": "chat", "STATSBUS_MODEL_NAME": "m", "STATSBUS_JOB_NAME": "j", "STATSBUS_INSTANCE_ID": "i",
        "STATSBUS_ROLE": "decode", "STATSBUS_STAGE": "thinker", "STATSBUS_REPLICA": "2", "NODE_NAME": "n",
        "POD_IP": "10.0.0.1", "STATSBUS_LABELS": "team=search, tier=gold",
    }  # fmt: skip
    assert identity(given, "served", "kv_producer") == {
        "service_name": "chat", "model_name": "m", "job_name": "j", "instance_id": "i", "role": "decode",
        "stage": "thinker", "replica": "2", "node": "n", "pod_ip": "10.0.0.1",
        "labels": {"team": "search", "tier": "gold"},
    }  # fmt: skip


def test_without_variables_vllm_and_the_host_say_it():
    found = identity({"STATSBUS_SERVICE": "", "STATSBUS_ROLE": ""}, "served", "kv_consumer")
    assert found["model_name"] == "served" and found["role"] == "decode" and found["job_name"].startswith(HOST)
    assert [found[name] for name in ("service_name", "stage", "replica", "node", "pod_ip")] == [None] * 5


@pytest.mark.parametrize(
    "kv_role, role", [("kv_producer", "prefill"), ("kv_consumer", "decode"), ("kv_both", "both"), (None, "both")]
)
def test_the_role_follows_the_kv_role(kv_role, role):
    assert identity({}, "m", kv_role)["role"] == role


@pytest.mark.parametrize(
    "environment, argv, name",
    [
        ({"POD_NAME": "vllm-3"}, [], "vllm-3"),  # a StatefulSet's ordinal, a LeaderWorkerSet's group
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ["--port", "9000"], HOST),  # a pod's host name is its name
        ({}, ["vllm", "serve", "m"], f"{HOST}-8000"),
        ({}, ["vllm", "serve", "m", "--port", "9000"], f"{HOST}-9000"),
        ({}, ["vllm", "serve", "m", "--port=9001"], f"{HOST}-9001"),
        ({}, ["vllm", "serve", "m", "--port"], f"{HOST}-8000"),
    ],
)
def test_the_job_is_named_so_that_it_survives_restarts(environment, argv, name):
    assert default_job_name(environment, argv) == name


def _tell(queue):
    queue.put(default_instance_id())


def test_all_processes_of_an_engine_agree_on_its_instance_and_another_life_has_another():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=_tell, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    ids = {queue.get(timeout=30) for _ in children}
    for child in children:
        child.join()
    assert ids == {default_instance_id()}
    import subprocess

    code = "from statsbus.vllm.identity import default_instance_id; print(default_instance_id())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other not in ids and len(other) == 12


def test_a_label_without_a_value_is_named():
    with pytest.raises(ValueError, match="STATSBUS_LABELS: 'tier' is not name=value"):
        labels("team=a,tier")
    assert labels("a=b=c,,") == {"a": "b=c"}
