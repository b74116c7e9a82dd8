"""What is served can be read by those who read it: Prometheus, prometheus_client, promtool."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from urllib.parse import quote

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemons import CAPTURES, OPENMETRICS, Cluster, Process, free_port, http_get, wait_for
from golden import is_derived

VIEWS = ["full", "dp"]
CAPTURE = CAPTURES / "dp2"


@pytest.fixture
def played(cluster: Cluster) -> Cluster:
    node = cluster.add_node()
    players = [cluster.player(node, stream) for stream in sorted(CAPTURE.glob("stream*.bin.gz"))]
    for player in players:
        player.finish()
    wait_for(lambda: cluster.hub.sample("vllm:generation_tokens_total"), "the hub has the numbers")
    return cluster


def test_prometheus_scrapes_hub_and_agent(played: Cluster) -> None:
    port = free_port()
    config = played.folder / "prometheus.yml"
    targets = {"hub": f"127.0.0.1:{played.hub.port}", "agent": f"127.0.0.1:{played.nodes[0].agent.port}"}
    config.write_text("global: {scrape_interval: 200ms, scrape_timeout: 200ms}\nscrape_configs:\n" + "".join(
        f"- {{job_name: {name}, static_configs: [{{targets: ['{target}']}}]}}\n" for name, target in targets.items()) +
        f"- {{job_name: dp, metrics_path: /metrics, params: {{type: [dp]}}, static_configs: [{{targets: ['{targets['hub']}']}}]}}\n")
    prometheus = Process("prometheus", ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={played.folder}/tsdb",
                                        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"], played.folder, port)
    played.players.append(prometheus)  # ends with the cluster
    prometheus.start()

    def query(text: str) -> dict[str, float]:
        try:
            body = json.loads(http_get(port, f"/api/v1/query?query={quote(text)}")[2])
        except (OSError, ValueError):
            return {}
        return {json.dumps(row["metric"], sort_keys=True): float(row["value"][1]) for row in body["data"]["result"]}

    wait_for(lambda: sorted(query("up").values()) == [1.0, 1.0, 1.0], "three targets are up", 30)
    want = played.hub.sample("vllm:generation_tokens_total")
    for job in ("hub", "dp"):
        wait_for(lambda: query(f'sum(vllm:generation_tokens_total{{job="{job}"}})').get("{}") == want, f"the {job}'s numbers arrive")
    assert query('scrape_samples_scraped{job="hub"}') != {}
    assert re.search(r"err=|level=(error|warn)", prometheus.log()) is None, prometheus.log()


@pytest.mark.parametrize("view", VIEWS)
def test_prometheus_client_parses_both_formats(played: Cluster, view: str) -> None:
    text = {family.name: family for family in parse_text(played.hub.metrics(view))}
    openmetrics = {family.name: family for family in parse_openmetrics(played.hub.metrics(view, OPENMETRICS))}
    assert set(text) == set(openmetrics)
    assert len(text) > 30
    for name, family in text.items():
        assert family.type == openmetrics[name].type, name
        assert family.documentation == openmetrics[name].documentation, name
        if name.startswith("vllm:"):
            assert {(s.name, *sorted(s.labels.items())): s.value for s in family.samples} == \
                   {(s.name, *sorted(s.labels.items())): s.value for s in openmetrics[name].samples}


def test_agents_own_metrics_parse_in_both_formats(played: Cluster) -> None:
    agent = played.nodes[0].agent
    assert all(family.name.startswith("statsbus_agent_") for family in parse_text(agent.metrics()))
    assert list(parse_openmetrics(agent.metrics(accept=OPENMETRICS)))


# What promtool says of derived families: their names follow the engine's, and `quantile` is their interface.
OF_DERIVED = {"metric names should not contain ':'", 'non-summary metrics should not have "quantile" label'}


def lint(text: str) -> set[str]:
    """promtool's findings, each with the name of its family."""
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return {line for line in (done.stdout + done.stderr).splitlines() if line}


def is_allowed(line: str) -> bool:
    family, _, finding = line.partition(" ")
    return is_derived(family) and finding in OF_DERIVED


@pytest.mark.parametrize("view", VIEWS)
def test_promtool_finds_only_what_it_finds_in_the_engines_own_text(played: Cluster, view: str) -> None:
    engines = lint((CAPTURE / "metrics.prom").read_text())
    found = {line for line in lint(played.hub.metrics(view)) - engines if not is_allowed(line)}
    assert found == set()
    assert lint(played.nodes[0].agent.metrics()) == set()


def test_gzip_holds_the_same_text_and_is_asked_for(played: Cluster) -> None:
    status, headers, body = played.hub.get("/metrics?type=dp", {"Accept-Encoding": "gzip"})
    assert status == 200 and headers["content-encoding"] == "gzip"
    plain = played.hub.get("/metrics?type=dp")
    assert "content-encoding" not in plain[1]
    assert [line for line in gzip.decompress(body).decode().splitlines() if line.startswith("vllm:")] == \
           [line for line in plain[2].decode().splitlines() if line.startswith("vllm:")]


@pytest.mark.parametrize(("path", "status"), [("/metrics?type=nonsense", 400), ("/nothing", 404), ("/healthz", 200), ("/readyz", 200)])
def test_wrong_requests_are_told_what_is_wrong(cluster: Cluster, path: str, status: int) -> None:
    got, _, body = cluster.hub.get(path)
    assert got == status
    assert body
    if status == 400:
        assert b"nonsense" in body and b"full" in body
