"""The tables of vLLM-Omni's metric documents: names, types, labels and bounds of its families.

usage: omni_documents.py FOLDER > data/omni/families.json
FOLDER has vllm-omni-metrics-design.md, vllm-omni-metrics-design-first-iteration.md and facts.md. The tests use the file, so
that they need no document, and compare it with the documents where STATSBUS_OMNI_DOCUMENTS names such a folder.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

DOCUMENTS = {"vllm_omni:": "vllm-omni-metrics-design.md", "vllm:omni_": "vllm-omni-metrics-design-first-iteration.md"}
CODE = re.compile(r"`([^`]+)`")
NAME = re.compile(r"[a-z0-9_]+")


def rows(lines: list[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if line.startswith("|")]


def document_families(text: str, prefix: str) -> dict[str, list[Any]]:
    """Name without prefix to [type, labels beside model_name], of the tables under *Metric Definitions*."""
    out: dict[str, list[Any]] = {}
    definitions = text.split("\n## Metric Definitions\n", 1)[1].split("\n## ", 1)[0]
    for section in definitions.split("\n### ")[1:]:
        lines = section.splitlines()
        shared = [label for line in lines if line.startswith("Labels: ") for label in NAME.findall(line.split("`")[1])]
        header, *table = rows(lines) or [[]]
        for row in table:
            name = CODE.search(row[0])
            if name is None or not name[1].startswith(prefix):
                continue
            labels = list(shared)
            if len(header) > 3:  # a column of labels, or of those that this family has in addition
                labels += CODE.findall(row[2])
            out[name[1][len(prefix):]] = [row[1].lower(), sorted(set(labels) - {"model_name"})]
    return out


def facts(text: str) -> tuple[dict[str, list[float]], dict[str, list[Any]]]:
    """Bucket sets; name to [type, labels beside model_name, bucket set or None] of the section on vLLM-Omni."""
    section = text.split("\n## vLLM-Omni", 1)[1].split("\n## ", 1)[0]
    sets: dict[str, list[float]] = {}
    families: dict[str, list[Any]] = {}
    for row in rows(section.splitlines()):
        if len(row) == 2 and re.match(r"[\d.]+ ", row[1]):
            sets[row[0].split(" (")[0]] = [float(bound) for bound in row[1].split()]
        if len(row) != 4 or row[1] not in ("gauge", "counter", "histogram"):
            continue
        last = ["from_stage", "from_replica", "to_stage", "to_replica"] if row[2] == "same" else []
        labels = [label.strip().split(":")[0] for label in row[2].split(":")[0].split(",") if label.strip()]
        for name in NAME.findall(re.sub(r"\([^)]*\)", "", row[0])):
            known = max((bucket_set for bucket_set in sets if row[3].startswith(bucket_set)), key=len, default=None)
            families[name] = [row[1], sorted(last or labels), known]
    return sets, families


def read(folder: Path) -> dict[str, Any]:
    sets, families = facts((folder / "facts.md").read_text())
    documents = {prefix: document_families((folder / name).read_text(), prefix) for prefix, name in DOCUMENTS.items()}
    return {"bucket_sets": sets, "facts": families, "documents": documents}


def dump(data: dict[str, Any]) -> str:
    """One line a family."""
    def block(items: dict[str, Any], indent: str) -> str:
        return "{\n" + ",\n".join(f"{indent} {json.dumps(key)}: {json.dumps(value)}" for key, value in items.items()) + "\n" + indent + "}"

    documents = ",\n".join(f"  {json.dumps(prefix)}: {block(items, '  ')}" for prefix, items in data["documents"].items())
    return (f'{{\n "bucket_sets": {block(data["bucket_sets"], " ")},\n "facts": {block(data["facts"], " ")},\n'
            f' "documents": {{\n{documents}\n }}\n}}\n')


if __name__ == "__main__":
    sys.stdout.write(dump(read(Path(sys.argv[1]))))
