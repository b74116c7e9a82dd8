"""The documents name metrics and modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import make_docs
from daemons import REPOSITORY

OPERATIONS = (REPOSITORY / "docs" / "operations.md").read_text()


def definitions(path: str, macro: str) -> list[list[str]]:
    """The arguments of each MACRO(...) line of a .def file, quotes taken off."""
    text = (REPOSITORY / path).read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = re.findall(rf"^{macro}\((.*)\)$", text, flags=re.M)
    return [[part.strip().strip('"') for part in re.split(r',\s*(?=(?:[^"]*"[^"]*")*[^"]*$)', arguments)] for arguments in found]


def section(heading: str) -> str:
    return OPERATIONS.split(heading + "\n", 1)[1].split("\n#", 1)[0]


def test_every_metric_in_the_tables_exists() -> None:
    agent = {name + "_total" for name, _ in definitions("agent/agent_metrics.def", "COUNTER")}
    agent |= {name for name, _ in definitions("agent/agent_metrics.def", "GAUGE")}
    sources = "".join(path.read_text() for path in (REPOSITORY / "agent").glob("*.[ch]"))
    hub = {row[0] for row in definitions("hub/own_families.def", "OWN")}
    tables = section("## What to alert on")
    tables = tables.split("Sources (`statsbus_source_...`", 1)[0]
    for part, known in zip(tables.split("Hub (`statsbus_hub_...`")[0:2], (agent, hub)):
        for cell in re.findall(r"^\| (`.*?`(?:, `.*?`)*) \|", part, flags=re.M):
            for name in re.findall(r"`(\w+)`", cell):
                assert name in known or f'PREFIX "{name}"' in sources, name


def test_every_family_about_sources_is_told_of() -> None:
    known = {row[0] for row in definitions("hub/source_families.def", "SOURCE")}
    rows = section("## What to alert on").split("Sources (`statsbus_source_...`", 1)[1]
    assert set(re.findall(r"^\| `(\w+)` \|", rows, flags=re.M)) == known


DOCUMENTS = [path for folder in (".", "docs", "docs/decisions", "docs/engines", "schemas", "schemas/catalog", "publisher/python")
             for path in sorted((REPOSITORY / folder).glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", path.read_text()):
        name, _, heading = target.partition("#")
        file = (path.parent / name) if name else path
        assert file.exists(), target
        if heading:
            headings = [re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-")
                        for line in file.read_text().splitlines() if line.startswith("#")]
            assert heading in headings, target


@pytest.mark.parametrize("folder", ["common", "agent", "hub"])
def test_the_map_of_the_code_names_every_module_and_no_other(folder: str) -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text().split(f"| **{folder}/**", 1)[1].split("| **", 1)[0]
    named = {name for cell in re.findall(r"^\| [^|]* \| ([^|]*) \|$", text, flags=re.M) for name in re.findall(r"`(\w+)`", cell)}
    modules = {path.stem for path in (REPOSITORY / folder).glob("*.c")} - {"main"}
    headers = {path.stem for path in (REPOSITORY / folder).glob("*.h")}  # some are all there is, as common/hash.h
    assert modules <= named and named <= modules | headers, named ^ modules


def test_the_page_of_settings_is_what_their_tables_make() -> None:
    assert (REPOSITORY / "docs" / "configuration.md").read_text() == make_docs.page(), "run scripts/make-docs"


@pytest.mark.parametrize("path", ["agent/agent_settings.def", "hub/hub_settings.def"])
def test_every_setting_is_found_by_the_maker_of_its_page(path: str) -> None:
    assert [row.name for row in make_docs.read_settings(REPOSITORY / path)] == [row[0] for row in definitions(path, "SETTING")]


def test_decisions_are_numbered_without_a_gap_or_a_twin() -> None:
    pages = sorted(REPOSITORY.glob("docs/decisions/0*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        assert page.read_text().startswith(f"# {int(page.name[:4])}. "), page.name


def test_every_variable_of_the_vllm_plugin_is_told_of() -> None:
    package = REPOSITORY / "publisher" / "python" / "statsbus"
    read = {name for path in package.rglob("*.py") for name in re.findall(r'"(STATSBUS_\w+|POD_\w+|NODE_NAME)"', path.read_text())}
    page = (REPOSITORY / "docs" / "engines" / "vllm.md").read_text()
    table = page.split("## Variables", 1)[1].split("\n## ", 1)[0]
    told = {name for cell in re.findall(r"^\| (`.*?) \|", table, flags=re.M) for name in re.findall(r"`(\w+)`", cell)}
    assert told == read


def test_the_plugin_leaves_to_the_catalog_what_the_catalog_has() -> None:
    from statsbus.vllm.connectors import IN_CATALOG

    catalog = yaml.safe_load((REPOSITORY / "schemas" / "catalog" / "vllm.yaml").read_text())
    features = {family["if"] for family in catalog["families"].values() if "kv_connector_stats" in str(family.get("from"))}
    assert {name for feature in features for name in catalog["features"][feature]["in"]} == set(IN_CATALOG)
