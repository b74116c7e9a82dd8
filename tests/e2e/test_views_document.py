"""docs/views.md against the real programs: its example, its files, its sizes, its scrape jobs and alerts."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest

from daemons import CAPTURES, REPOSITORY, Cluster, Process, follows_time, free_port, http_get, samples, wait_for

DOCUMENT = (REPOSITORY / "docs" / "views.md").read_text()
COLUMNS = {"tokens": "vllm:generation_tokens_total", "running": "vllm:num_requests_running", "running_max": "vllm:num_requests_running_max",
           "usage": "vllm:kv_cache_usage_perc", "usage_max": "vllm:kv_cache_usage_perc_max", "hit rate": "vllm:prefix_cache_hit_rate",
           "count": "vllm:time_to_first_token_seconds_count", "mean": "vllm:time_to_first_token_seconds_mean",
           "p50": "vllm:time_to_first_token_seconds_p50"}
Table = list[dict[str, str]]


def tables() -> list[Table]:
    out = []
    for lines in re.findall(r"(?:^\|.*\n)+", DOCUMENT, flags=re.M):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
        out.append([dict(zip(head, row)) for row in rows])
    return out


def tables_with(column: str) -> list[Table]:
    return [table for table in tables() if column in table[0]]


def block(first_line: str) -> str:
    """The indented block that starts with this line."""
    (found,) = [text for text in re.findall(r"(?:^(?:    .*)?\n)+", DOCUMENT, flags=re.M) if text.strip().startswith(first_line)]
    return re.sub(r"^    ", "", found, flags=re.M).strip() + "\n"


def shown(path: str) -> list[str]:
    """What the document says that this address prints."""
    return block(f"$ curl -gs 'http://127.0.0.1:9464{path}'").splitlines()[1:]


def printed(hub: Process, path: str) -> list[str]:
    return sorted(line for line in http_get(hub.port or 0, path)[2].decode().splitlines() if not line.startswith("#"))


def example() -> ModuleType:
    path = REPOSITORY / "docs" / "examples" / "two_nodes.py"
    spec = importlib.util.spec_from_file_location("two_nodes", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def playing(cluster: Cluster, flags: list[str] | None = None) -> Iterator[dict[str, Any]]:
    nodes = {name: cluster.add_node(name, flags) for name in "ab"}
    publishers = example().play({name: node.engines for name, node in nodes.items()})
    try:
        wait_for(lambda: [cluster.hub.sample(COLUMNS[name]) for name in ("tokens", "running")] == [95, 12] and
                 len(rows_of(cluster.hub.metrics("dp"), COLUMNS["usage"], "")) == 5, "the hub has all steps, that of the idle rank too")
        yield publishers
    finally:
        for publisher in publishers.values():
            publisher.close()


def rows_of(text: str, name: str, row: str) -> list[float]:
    wanted = dict(re.findall(r'(\w+)="([^"]*)"', row))
    return [value for found, labels, value in samples(text) if found == name and wanted.items() <= labels.items()]


def compare(hub: Process, table: Table) -> None:
    for line in table:
        text = hub.metrics(line["view"])
        for column, name in COLUMNS.items():
            said = [float(line[column])] if line[column] else []
            assert rows_of(text, name, line["row"]) == pytest.approx(said, rel=1e-6), (line["view"], line["row"], column)


# ---- the worked example

def test_the_inputs_are_those_of_the_example() -> None:
    (table,) = tables_with("looked up")
    said = [(r["node"], r["instance"], r["role"], r["dp_rank"], *(float(r[c]) if r[c] else None for c in
             ("running", "cache usage", "tokens", "looked up", "hits")), [float(t) for t in r["first tokens after"].split()]) for r in table]
    assert said == example().ENGINES


def test_every_number_of_the_example_is_what_comes_out(new_cluster: Callable[..., Cluster]) -> None:
    before, after = tables_with("usage_max")
    cluster = new_cluster(hub_flags=["--linger", "6s"])
    hub = cluster.hub
    with playing(cluster) as publishers:
        compare(hub, before)
        path = "/metrics?type=role&name[]=vllm:generation_tokens"
        assert printed(hub, path) == shown(path)
        assert {line["view"]: len(rows_of(hub.metrics(line["view"]), COLUMNS["tokens"], "")) for line in before} == \
               {"full": 1, "role": 2, "node": 3, "pod": 3, "instance": 3, "dp": 6, "stage": 1}

        publishers.pop("d-1").close()
        wait_for(lambda: hub.sample(COLUMNS["running"]) == 6, "the gauges of d-1 left")
        compare(hub, after)
        assert rows_of(hub.metrics(), "statsbus_source_up", 'job_name="job-d-1"') == [0, 0]
        wait_for(lambda: not rows_of(hub.metrics("instance"), COLUMNS["tokens"], 'instance_id="d-1"'), "the linger is over")
        for view in ("instance", "dp"):
            assert rows_of(hub.metrics(view), COLUMNS["tokens"], 'instance_id="d-1"') == []
        assert rows_of(hub.metrics("node"), COLUMNS["tokens"], 'node="a", role="decode"') == []
        assert rows_of(hub.metrics("pod"), COLUMNS["tokens"], 'pod_ip="10.0.0.2"') == []
        compare(hub, [line for line in after if line["view"] in ("full", "role")])
        assert rows_of(hub.metrics(), "statsbus_source_up", 'job_name="job-d-1"') == []


def test_lifting_role_scopes_counts_every_role(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(hub_flags=["--role-scope=false"])
    with playing(cluster):
        assert cluster.hub.sample(COLUMNS["count"]) == 9


def test_a_family_and_a_view_are_added_as_the_document_says(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    catalog = tmp_path / "catalog"
    catalog.mkdir()
    (catalog / "acme.yaml").write_text(block("# catalog/acme.yaml"))
    views = tmp_path / "views.yaml"
    views.write_text(block("# views.yaml"))
    cluster = new_cluster(hub_flags=["--catalog", str(catalog), "--views", str(views)])
    with playing(cluster, ["--catalog", str(catalog)]):
        for path in ("/metrics?name[]=acme_uncached_tokens&name[]=acme_miss_rate", "/metrics?type=rack"):
            assert printed(cluster.hub, path) == shown(path), path


def test_the_tables_of_views_and_keys_are_complete(cluster: Cluster) -> None:
    built_in = re.findall(r"^  (\w+): +\{by: \[(.*?)\](.*)\}", (REPOSITORY / "schemas" / "views.yaml").read_text(), flags=re.M)
    (views,) = tables_with("a row without a live source")
    names = [(line["view"].strip("`"), line["one row for each (beside service and model)"].replace("`", "")) for line in views]
    assert sorted(names) == sorted((name, by) for name, by, _ in built_in)
    assert {name for name, _, rest in built_in if "keep: true" in rest} == \
           {line["view"].strip("`") for line in views if line["a row without a live source"] == "stays"}
    keys = re.search(r"keys\[\] = \{([^}]*NULL)\}", (REPOSITORY / "hub" / "view_specs.c").read_text())
    (said,) = [table for table in tables_with("default") if "key" in table[0]]
    assert keys and {key for line in said for key in re.findall(r"`(\w+)`", line["key"])} == set(re.findall(r'"(\w+)"', keys[1]))
    semantics = set(re.findall(r"^SEMANTIC\((\w+),", (REPOSITORY / "common" / "semantics.def").read_text(), flags=re.M))
    (table,) = tables_with("semantic")
    assert {name for line in table for name in re.findall(r"`(\w+)`", line["semantic"])} == semantics


# ---- sizes

def lasting(text: str) -> str:
    """Without what follows time, and its comments."""
    return "".join(line + "\n" for line in text.splitlines() if not follows_time(line.removeprefix("# HELP ").removeprefix("# TYPE ").split("{")[0]))


def test_a_scrape_is_as_long_as_the_document_says(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    said = re.search(r"`dp` \| N \| (\d+) \+ (\d+) N \| ([\d,]+) \+ \2 N \((\d+) \+", DOCUMENT)
    slim = re.search(r"`buckets: false` \| \| \d+ \+ (\d+) rows \| [\d,]+ \+ \1 rows \((\d+) \+", DOCUMENT)
    full = re.search(r"about (\d+) \+ (\d+) N \| as above, and about ([\d,]+) \+ (\d+) N", DOCUMENT)
    assert said and slim and full
    (tmp_path / "views.yaml").write_text("version: 1\nviews:\n  slim: {by: [role], buckets: false}\n")
    cluster = new_cluster(hub_flags=["--views", str(tmp_path / "views.yaml")])
    node = cluster.add_node()
    for n in (1, 2):
        cluster.player(node, CAPTURES / "plain" / "stream.bin.gz", job_name=f"engine-{n}", instance_id=f"i-{n}").finish()
    hub = cluster.hub
    wait_for(lambda: hub.sample("vllm:generation_tokens_total") == 2 * 3099, "the hub has both", every_s=0.5)

    lines, each = int(said[1]), int(said[2])
    head = float(said[3].replace(",", ""))
    for view, rows, samples_each, rest in (("dp", 2, each, int(said[4])), ("instance", 2, each, int(said[4])), ("role", 1, each, int(said[4])),
                                           ("node", 1, each, int(said[4])), ("slim", 1, int(slim[1]), int(slim[2]))):
        text = lasting(hub.metrics(view))
        assert len(text.splitlines()) == lines + samples_each * rows, view
        labels = re.search(r"^vllm:generation_tokens_total(\{.*\})", text, flags=re.M)
        assert labels and len(text) == pytest.approx(head + samples_each * rows * (rest + len(labels[1])), rel=0.03), view
    text = hub.metrics("full")
    memory = re.search(r"That is some ([\d.]+) KB", (REPOSITORY / "docs" / "operations.md").read_text())
    assert memory and (hub.sample("statsbus_hub_row_bytes") or 0) / 2 == pytest.approx(1000 * float(memory[1]), rel=0.03)
    own = [line for line in text.splitlines() if "statsbus_" in line]
    assert len(own) == pytest.approx(int(full[1]) + 2 * int(full[2]), rel=0.1)
    assert sum(len(line) + 1 for line in own) == pytest.approx(float(full[3].replace(",", "")) + 2 * float(full[4]), rel=0.25)


# ---- Prometheus

def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", "check", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_scrape_jobs_and_alerts(tmp_path: Path) -> None:
    for name, kind in (("prometheus.yml", "config"), ("alerts.yml", "rules")):
        (tmp_path / name).write_text(block("# " + name))
        promtool(kind, str(tmp_path / name))


def test_promtool_takes_every_query_of_the_comparison(tmp_path: Path) -> None:
    (table,) = tables_with("engines")
    queries = [line[column].strip("`") for line in table for column in ("engines", "statsbus")]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [
        {"name": "compare", "rules": [{"record": f"q{i}", "expr": query} for i, query in enumerate(queries)]}]}))
    assert len(queries) == 8
    promtool("rules", str(tmp_path / "rules.yml"))


def test_scrape_jobs_keep_views_apart(cluster: Cluster) -> None:
    port = free_port()
    config = cluster.folder / "prometheus.yml"
    config.write_text("global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n" + block("# prometheus.yml")
                      .replace("hub:9464", f"127.0.0.1:{cluster.hub.port}").replace("scrape_interval: 1m", "scrape_interval: 200ms"))
    prometheus = Process("prometheus", ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={cluster.folder}/tsdb",
                                        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"], cluster.folder, port)
    cluster.players.append(prometheus)  # ends with the cluster

    def query(text: str) -> list[tuple[dict[str, str], float]]:
        try:
            body = json.loads(http_get(port, f"/api/v1/query?query={quote(text)}")[2])
        except (OSError, ValueError):
            return []
        return [(row["metric"], float(row["value"][1])) for row in body["data"]["result"]]

    with playing(cluster):
        prometheus.start()
        wait_for(lambda: query('count(dp:vllm:num_requests_running{view="dp"})') == [({}, 6)], "both views arrive", 30)
        wait_for(lambda: query("sum(vllm:num_requests_running)") == [({}, 12)], "the service's gauge arrives")
        assert query("sum(dp:vllm:num_requests_running)") == [({}, 12)]
        assert query('count(vllm:num_requests_running{view="dp"})') == []
        ((labels, _),) = query("vllm:num_requests_running")
        assert labels["view"] == "full" and labels["job"] == "statsbus"
        assert query("count(up == 1)") == [({}, 2)] and query("sum(statsbus_source_up)") == [({}, 6)]
