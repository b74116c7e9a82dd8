"""The adapters and the catalog against the public package vllm-omni. Skipped, with the reason, where it can't be had."""

from __future__ import annotations

import ast
import inspect
import json
import pathlib

import pytest

import omni_package
from statsbus.omni import adapters, attach, audio, requests
from statsbus.vllm import omni

REPOSITORY = pathlib.Path(__file__).parents[3]
CLASSES = [(module, name) for module, names in attach.CLASSES.items() for name in names]
CLASSES += [
    ("vllm_omni.metrics.prometheus", "OmniRequestCounter"),
    ("vllm_omni.metrics.stat_logger", "OmniPrometheusStatLogger"),
]
OWNERS = {
    "prom_metrics": adapters.OmniPrometheusMetrics,
    "_prom_metrics": adapters.OmniPrometheusMetrics,
    "prom": adapters.OmniPrometheusMetrics,
    "mod_metrics": adapters.OmniModalityMetrics,
    "_transfer_emitter": adapters.OmniTransferMetrics,
    "_stat_logger": adapters.OmniPrometheusStatLogger,
}


@pytest.fixture(scope="module")
def package():
    try:
        return omni_package.Package(omni_package.wheel())
    except omni_package.Unavailable as error:
        pytest.skip(str(error))


def signature(method):
    parameters = list(inspect.signature(method).parameters.values())[1:]
    defaults = [p.default for p in parameters if p.default is not inspect.Parameter.empty]
    return [p.name for p in parameters], defaults


@pytest.mark.parametrize("module, name", CLASSES)
def test_an_adapter_has_every_method_with_its_arguments(package, module, name):
    ours = getattr(adapters, name)
    theirs = package.methods(module.replace(".", "/") + ".py", name)
    assert len(theirs) > 2
    for method, expected in theirs.items():
        found = inspect.getattr_static(ours, method)
        if isinstance(found, property):
            continue
        assert signature(found) == expected, method


def test_an_adapter_has_every_method_that_is_called(package):
    for owner, called in package.calls_on(OWNERS).items():
        assert called, owner
        assert called <= {name for name, _ in inspect.getmembers(OWNERS[owner])}, owner


def test_an_orchestrator_tells_of_replicas_that_are_gone(package):
    tree = package.tree(omni.ORCHESTRATOR_MODULE.replace(".", "/") + ".py")
    (found,) = [
        method
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == omni.ORCHESTRATOR_CLASS
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == omni.REPLICA_REMOVED
    ]
    assert [argument.arg for argument in found.args.args] == ["self", "stage_id", "replica_id"]


def test_the_catalog_has_every_family_of_the_package(package):
    yaml = pytest.importorskip("yaml")
    catalog = yaml.safe_load((REPOSITORY / "schemas/catalog/vllm_omni.yaml").read_text())
    families = package.families()
    assert set(families) == set(catalog["families"])
    for name, (type_, labels, bounds) in families.items():
        family = catalog["families"][name]
        assert family["type"] == type_ and {"model_name", *family["labels"]} == set(labels), name
        if bounds is not None:
            assert catalog["bucket_sets"][family["buckets"]] == list(bounds), name


def test_the_facts_that_the_tests_use_are_those_of_the_package(package):
    facts = json.loads((REPOSITORY / "tests/data/omni/families.json").read_text())["facts"]
    assert {"vllm_omni:" + name for name in facts} == set(package.families())


def test_rules_and_defaults_are_those_of_the_package(package):
    known = package.definitions
    assert list(known["_SAMPLE_RATE_KEYS"]) == list(audio.SAMPLE_RATE_KEYS)
    assert known["DEFAULT_AUDIO_SAMPLE_RATE"] == audio.SAMPLE_RATE
    assert known["DEFAULT_AUDIO_SAMPLE_WIDTH"] == audio.SAMPLE_BYTES
    assert known["AUDIO_CONTINUITY_DEFAULT_THRESHOLD_S"] == audio.THRESHOLD_S
    reasons = package.sources["vllm_omni/metrics/utils.py"]
    assert all(f'"{reason}"' in reasons for reason in requests.FAILURES)
