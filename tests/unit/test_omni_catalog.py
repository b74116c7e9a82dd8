"""The catalog has every family of vLLM-Omni's documents, as they say it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

import omni_documents
from daemons import REPOSITORY

CATALOG = yaml.safe_load((REPOSITORY / "schemas/catalog/vllm_omni.yaml").read_text())
DATA = json.loads((REPOSITORY / "tests/data/omni/families.json").read_text())
USELESS = "client default"  # bounds up to 10 for steps and pixels: the catalog has its own
REACH = {"num_inference_steps": 100, "image_pixels": 4096 * 4096}


def family(name: str) -> dict[str, Any]:
    assert "vllm_omni:" + name in CATALOG["families"], f"the catalog lacks {name}"
    found: dict[str, Any] = CATALOG["families"]["vllm_omni:" + name]
    return found


@pytest.mark.parametrize("prefix", sorted(DATA["documents"]))
def test_every_row_of_a_document_is_in_the_catalog(prefix: str) -> None:
    rows = DATA["documents"][prefix]
    assert len(rows) == {"vllm_omni:": 36, "vllm:omni_": 15}[prefix]
    for name, (type_, labels) in rows.items():
        assert (family(name)["type"], sorted(family(name)["labels"])) == (type_, labels), name


def test_every_family_has_the_bounds_that_its_release_has() -> None:
    assert len(DATA["facts"]) == 42
    for name, (type_, labels, bucket_set) in DATA["facts"].items():
        assert (family(name)["type"], sorted(family(name)["labels"])) == (type_, labels), name
        assert (bucket_set is not None) == ("buckets" in family(name)), name
        if bucket_set is None:
            continue
        bounds = CATALOG["bucket_sets"][family(name)["buckets"]]
        if bucket_set == USELESS:
            assert bounds[-1] >= REACH[name], name
        else:
            assert bounds == DATA["bucket_sets"][bucket_set], name


def test_the_catalog_has_no_other_families() -> None:
    assert {name.partition(":")[2] for name in CATALOG["families"]} == set(DATA["facts"])
    assert set(DATA["facts"]) >= {name for rows in DATA["documents"].values() for name in rows}


def test_the_table_is_what_the_documents_say() -> None:
    folder = os.environ.get("STATSBUS_OMNI_DOCUMENTS")
    if not folder:
        pytest.skip("STATSBUS_OMNI_DOCUMENTS names no folder with the documents")
    assert omni_documents.dump(omni_documents.read(Path(folder))) == (REPOSITORY / "tests/data/omni/families.json").read_text()
