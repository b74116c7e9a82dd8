"""Views as operators meet them: narrowed by a query, declared in a file, and with a catalog of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemons import OPENMETRICS, Cluster, sample, samples
from model.model import Family, Series
from players import CELLS, GAUGES, KV, RUNNING, TOKENS, Player, names, scrape

pytestmark = pytest.mark.sanitized

CELL_NAMES = {"vllm:generation_tokens_total", "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hit_rate",
              *(f"vllm:time_to_first_token_seconds_{end}" for end in ("bucket", "sum", "count", "p50", "p95", "p99", "mean"))}
GAUGE_NAMES = {"vllm:num_requests_running", "vllm:num_requests_running_max", "vllm:kv_cache_usage_perc", "vllm:kv_cache_usage_perc_max"}


# ---- the query

@pytest.fixture
def crowd(cluster: Cluster, players: list[Player]) -> Cluster:
    """Four sources, told apart by powers of ten."""
    player = Player(cluster)
    players.append(player)
    for n, labels in enumerate(({"role": "prefill"}, {"role": "decode"}, {"role": "decode", "model_name": "/models/a b"},
                                {"role": "", "service_name": ""})):
        player.say(player.define(f"j{n}", **labels), {TOKENS: [10.0**n]}, {RUNNING: 10.0**n})
    return cluster


@pytest.mark.parametrize(("query", "counted", "running"), [
    ("", 1111, 1111), ("&role=decode", 110, 110), ("&role=prefill", 1, 1), ("&role=prefill&role=decode", 111, 111),
    ("&model_name=tiny", 1011, 1011), ("&model_name=" + quote("/models/a b", safe=""), 100, 100), ("&model_name=/models/a+b", 100, 100),
    ("&service_name=chat", 111, 111), ("&role=decode&model_name=tiny", 10, 10), ("&role=nosuch", None, None), ("&role=", 1000, 1000),
    ("&role=&role=decode", 1110, 1110), ("&service_name=", 1000, 1000), ("&model_name=nosuch", None, None),
    ("&service_name=nosuch", None, None), ("&role=nosuch&role=decode", 110, 110), ("&name[]=vllm:generation_tokens_total", 1111, None),
    ("&name[]=vllm:generation_tokens", 1111, None), ("&name%5B%5D=vllm%3Ageneration_tokens&role=decode", 110, None),
    ("&name[]=vllm:num_requests_running", None, 1111), ("&name[]=nosuch", None, None), ("&name[]=nosuch&name[]=vllm:generation_tokens", 1111, None)])
def test_a_query_narrows_every_view(crowd: Cluster, query: str, counted: float | None, running: float | None) -> None:
    for view in ("full", "instance", "role", "dp", "node", "pod", "stage", "replica"):
        text = scrape(crowd, f"type={view}{query}")
        assert sample(text, "vllm:generation_tokens_total") == counted, view
        assert sample(text, "vllm:num_requests_running") == running, view


def test_without_a_type_it_is_full(crowd: Cluster) -> None:
    assert sample(scrape(crowd, "role=decode"), "vllm:generation_tokens_total") == 110
    assert names(crowd.hub.metrics()) == names(crowd.hub.metrics("full"))


def test_names_filter_families_and_derived_ones_go_by_their_own(cluster: Cluster, players: list[Player]) -> None:
    players.append(Player(cluster))
    players[0].join()
    assert names(scrape(cluster, "type=full")) == CELL_NAMES | GAUGE_NAMES
    for given, shown in (
            ("vllm:prefix_cache_hit_rate", {"vllm:prefix_cache_hit_rate"}), ("vllm:kv_cache_usage_perc_max", {"vllm:kv_cache_usage_perc_max"}),
            ("vllm:kv_cache_usage_perc", {"vllm:kv_cache_usage_perc"}), ("vllm:time_to_first_token_seconds_p50", {"vllm:time_to_first_token_seconds_p50"}),
            ("vllm:time_to_first_token_seconds_mean", {"vllm:time_to_first_token_seconds_mean"}),
            ("vllm:time_to_first_token_seconds", {f"vllm:time_to_first_token_seconds_{end}" for end in ("bucket", "sum", "count")}),
            ("vllm:time_to_first_token_seconds_bucket", set()), ("vllm:prefix_cache_hits", {"vllm:prefix_cache_hits_total"}),
            ("vllm:prefix_cache", set()), ("", set())):
        for view in ("full", "dp"):
            text = scrape(cluster, f"type={view}&name[]={given}")
            assert names(text) == shown and "statsbus_" not in text, (view, given)
    assert scrape(cluster, "type=dp&name[]=nosuch", OPENMETRICS) == "# EOF\n"
    assert scrape(cluster, "type=dp&name[]=nosuch") == ""
    own = scrape(cluster, "type=full&name[]=statsbus_hub_agents")
    assert [name for name, _, _ in samples(own)] == ["statsbus_hub_agents"]
    for parse, accept in ((parse_text, "text/plain"), (parse_openmetrics, OPENMETRICS)):
        families = list(parse(scrape(cluster, "type=full&name[]=vllm:time_to_first_token_seconds&name[]=vllm:generation_tokens", accept)))
        assert {f.name for f in families} == {"vllm:time_to_first_token_seconds", "vllm:generation_tokens"}


@pytest.mark.parametrize("query", ["type=nosuch", "color=red", "type=full&type=dp", "type=", "type=full&Role=decode", "name=x", "le=1",
                                   "type=full&instance_id=i-1"])
def test_what_is_not_known_to_ask_for_is_400(cluster: Cluster, query: str) -> None:
    status, _, body = cluster.hub.get("/metrics?" + query)
    assert status == 400 and body.strip(), query


def test_hostile_queries_change_nothing(crowd: Cluster) -> None:
    for value in ("%", "%zz", "%ff%fe", "a" * 4000, quote('"\\\n{}'), "*", "."):
        for name in ("role", "model_name", "service_name", "name[]"):
            status, _, body = crowd.hub.get(f"/metrics?type=dp&{name}={value}")
            assert status in (200, 400, 414, 431), (name, value)
            assert status != 200 or not samples(body.decode()), (name, value)
    many = "&".join(f"role=r{i}" for i in range(500))
    assert crowd.hub.get("/metrics?type=dp&" + many)[0] in (200, 400, 414, 431)
    assert crowd.hub.sample("vllm:generation_tokens_total") == 1111


def test_a_narrowed_row_keeps_what_was_forgotten(cluster: Cluster, players: list[Player]) -> None:
    """No counter falls, in a query with filters neither."""
    player = Player(cluster)
    players.append(player)
    gone = player.join("old", role="decode")
    player.join("new", role="decode")
    player.join("other", role="prefill")
    player.end(gone)
    player.forget(gone)
    for query, expected in (("", 30), ("&role=decode", 20), ("&role=prefill", 10), ("&model_name=tiny", 30)):
        assert sample(scrape(cluster, "type=full" + query), "vllm:generation_tokens_total") == expected, query


# ---- views of one's own

VIEWS = """\
version: 1
views:
  tenant: {by: [tenant], keep: true}
  slim: {by: [role], buckets: false}
  raw: {by: [role], derived: false}
  decoders: {by: [node], where: {role: [decode, both]}}
  two: {by: [], where: {role: [decode], tenant: [red, blue]}}
  few: {by: [], allow: [vllm:generation_tokens, vllm:kv_cache_usage_perc_max, vllm:time_to_first_token_seconds]}
  most: {by: [], deny: [vllm:generation_tokens_total, vllm:kv_cache_usage_perc_max, vllm:time_to_first_token_seconds_p99]}
  engine: {by: [dp_rank], rename: {engine: dp_rank}}
  instance: {by: [instance_id]}
"""


@pytest.fixture
def viewed(new_cluster: Callable[..., Cluster], players: list[Player], tmp_path: Path) -> Cluster:
    path = tmp_path / "views.yaml"
    path.write_text(VIEWS)
    cluster: Cluster = new_cluster(hub_flags=["--views", str(path)])
    player = Player(cluster)
    players.append(player)
    player.join("a", role="prefill", tenant="red", stage="0")
    player.join("b", role="decode", tenant="red", stage="1")
    player.join("c", role="decode", tenant="blue", stage="1")
    player.join("d", role="decode", stage="1")
    player.join("e", role="both", stage="1", dp_rank="3")
    return cluster


def rows(cluster: Cluster, view: str, name: str = "vllm:generation_tokens_total") -> dict[tuple[tuple[str, str], ...], float]:
    """Without service_name and model_name, which every row has."""
    return {tuple(sorted((k, v) for k, v in labels.items() if k not in ("service_name", "model_name"))): value
            for found, labels, value in samples(cluster.hub.metrics(view)) if found == name}


def test_views_of_a_file_are_added_and_replace(viewed: Cluster) -> None:
    assert rows(viewed, "tenant") == {(): 20, (("tenant", "blue"),): 10, (("tenant", "red"),): 20}
    assert rows(viewed, "decoders") == {(("node", "node-one"),): 40}
    assert rows(viewed, "two") == {(): 20}
    assert rows(viewed, "engine") == {(("dp_rank", "0"), ("engine", "0")): 40, (("dp_rank", "3"), ("engine", "3")): 10}
    assert rows(viewed, "instance") == {(("instance_id", f"i-{job}"),): 10 for job in "abcde"}
    assert rows(viewed, "role") == {(("role", "prefill"),): 10, (("role", "decode"),): 30, (("role", "both"),): 10}
    for view in ("slim", "tenant", "few", "most", "instance", "dp"):
        assert "statsbus_" not in viewed.hub.metrics(view), view
    # A scope of roles holds in `full` alone.
    assert viewed.hub.sample("vllm:time_to_first_token_seconds_count", "full") == 2 * 4
    assert viewed.hub.sample("vllm:time_to_first_token_seconds_count", "few") == 2 * 5


def test_a_view_says_which_families_it_has(viewed: Cluster) -> None:
    everything = CELL_NAMES | GAUGE_NAMES
    ttft = {f"vllm:time_to_first_token_seconds_{end}" for end in ("bucket", "sum", "count")}
    derived = {f"vllm:time_to_first_token_seconds_{end}" for end in ("p50", "p95", "p99", "mean")}
    assert names(viewed.hub.metrics("slim")) == everything - {"vllm:time_to_first_token_seconds_bucket"}
    assert names(viewed.hub.metrics("raw")) == everything - derived - {n for n in everything if n.endswith(("_max", "_rate"))}
    assert names(viewed.hub.metrics("few")) == ttft | {"vllm:generation_tokens_total", "vllm:kv_cache_usage_perc_max"}
    assert names(viewed.hub.metrics("most")) == everything - {"vllm:generation_tokens_total", "vllm:kv_cache_usage_perc_max",
                                                              "vllm:time_to_first_token_seconds_p99"}


def test_views_without_buckets_are_valid_in_both_formats(viewed: Cluster) -> None:
    for view in ("slim", "raw", "few", "most", "engine"):
        for parse, accept in ((parse_text, "text/plain"), (parse_openmetrics, OPENMETRICS)):
            found = [s for f in parse(viewed.hub.metrics(view, accept)) for s in f.samples]
            assert found and len(found) == len({(s.name, *sorted(s.labels.items())) for s in found}), (view, accept)


@pytest.mark.parametrize(("line", "text"), [
    ("x: {by: [role], colour: red}", "colour"), ("x: {by: role}", "list"), ("x: {keep: true}", "by"), ("x: {by: [], keep: perhaps}", "perhaps"), ("x: {by: [7up]}", "7up"),
    ("x: {by: [role, role]}", "role"), ("x: {by: [], where: {role: decode}}", "list"), ("x: {by: [], allow: vllm:a}", "list"), ("x: [role]", "x"),
    ('"a b": {by: [role]}', "a b"), ("x: {by: [], rename: {engine: nosuch}}", "nosuch"), ("x: {by: [role]}\n  x: {by: [node]}", "x"),
    ("x: {by: [le]}", "le")])
def test_a_mistake_in_a_file_of_views_is_named_with_its_line(cluster: Cluster, tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "views.yaml"
    path.write_text(f"version: 1\nviews:\n  {line}\n")
    refused(cluster, ["--views", str(path)], path, text)


def refused(cluster: Cluster, flags: list[str], path: Path, text: str, program: str = "statsbus-hub") -> None:
    """The daemon doesn't start, and says file, line and reason."""
    done = subprocess.run([os.fspath(cluster.binaries / program), *flags], capture_output=True, text=True, timeout=20)
    assert done.returncode != 0, done.stderr
    said = [line for line in done.stderr.splitlines() if str(path) in line or path.name in line]
    assert said and text in said[0], done.stderr
    number = said[0].partition(path.name + ":")[2].partition(":")[0]
    assert number.isdigit() and 1 <= int(number) <= 12, said


def test_a_file_of_views_that_is_not_there_is_said(cluster: Cluster, tmp_path: Path) -> None:
    for content in (None, "version: 2\nviews: {}\n", "views: {}\n", "version: 1\nviews: [\n", "version: 1\nviews: {x: {by: []}}\nmore: 1\n"):
        path = tmp_path / "some.yaml"
        if content is not None:
            path.write_text(content)
        done = subprocess.run([os.fspath(cluster.binaries / "statsbus-hub"), "--views", str(path)], capture_output=True, text=True, timeout=20)
        assert done.returncode != 0 and "some.yaml" in done.stderr, content


def test_dp_prints_engine_by_a_setting(new_cluster: Callable[..., Cluster], players: list[Player]) -> None:
    cluster = new_cluster(hub_flags=["--dp-engine-label"])
    players.append(Player(cluster))
    players[0].join(dp_rank="5")
    (row,) = rows(cluster, "dp")
    assert dict(row)["engine"] == "5" and dict(row)["dp_rank"] == "5"
    assert all("engine" not in dict(row) for view in ("full", "instance", "role") for row in rows(cluster, view))


# ---- derived families and names

def assert_valid(cluster: Cluster) -> None:
    for view in ("full", "dp", "role"):
        for parse, accept in ((parse_text, "text/plain"), (parse_openmetrics, OPENMETRICS)):
            families = list(parse(cluster.hub.metrics(view, accept)))
            assert len(families) == len({f.name for f in families}), (view, accept)
            lines = [(s.name, *sorted(s.labels.items())) for f in families for s in f.samples]
            assert len(lines) == len(set(lines)), (view, accept)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_family_named_like_a_derived_one_clashes(cluster: Cluster, players: list[Player], is_first: bool) -> None:
    """With those of the catalog, and with those of a histogram that an agent describes, whichever of both comes first."""
    waits = Family("e:wait_seconds", "histogram", "sla_metric")
    taken = [Family(name, "gauge", "state_gauge") for name in ("vllm:prefix_cache_hit_rate", "vllm:num_requests_running_max",
                                                              "vllm:time_to_first_token_seconds_p50", "e:wait_seconds_p95", "e:wait_seconds_mean")]
    player = Player(cluster, described=[waits, *taken])
    players.append(player)
    life = player.define()
    histogram = {**CELLS, Series(waits, (), (0.5, 1.0)): [1.0, 1.0, 0.0, 1.0]}
    gauges = {**GAUGES, **{Series(family): 77.0 for family in taken}}
    if is_first:
        player.say(life, {}, gauges)
    player.say(life, histogram)
    player.say(life, histogram, gauges)
    assert_valid(cluster)
    text = cluster.hub.metrics()
    assert sample(text, "vllm:prefix_cache_hit_rate") == 0.25 and sample(text, "vllm:num_requests_running_max") == 2
    assert sample(text, "vllm:time_to_first_token_seconds_p50") == 0.5
    assert (cluster.hub.sample("statsbus_hub_family_clashes_total") or 0) >= 3
    assert sample(text, "e:wait_seconds_count") in (2, None) and sample(text, "vllm:generation_tokens_total") == 10


def test_quantiles_below_zero_and_in_the_last_bucket(cluster: Cluster, players: list[Player]) -> None:
    """As Prometheus: the first bucket starts at 0, unless its bound is not above 0; the last has no end, so that its start is said."""
    player = Player(cluster)
    players.append(player)
    name = "vllm:request_queue_time_seconds"
    for i, (bounds, cells, expected) in enumerate((
            ((-1.0, 1.0), [4.0, 0.0, 0.0, -8.0], (-1, -1, -1)), ((-1.0, 1.0), [0.0, 4.0, 0.0, 0.0], (0, 0.9, 0.98)),
            ((0.0, 1.0), [4.0, 0.0, 0.0, 0.0], (0, 0, 0)), ((1.0, 2.0), [0.0, 0.0, 5.0, 50.0], (2, 2, 2)),
            ((1.0, 2.0), [1.0, 0.0, 0.0, 0.5], (0.5, 0.95, 0.99)), ((1.0, 2.0, 4.0), [2.0, 0.0, 2.0, 0.0, 6.0], (1, 3.8, 3.96)))):
        life = player.define(f"j{i}", model_name=f"m{i}")
        player.say(life, {Series(Family(name, "histogram", "histogram_latency"), (), bounds): [*cells[:-1], max(cells[-1], 0.0)]}, {})
        text = scrape(cluster, f"type=full&model_name=m{i}")
        assert tuple(sample(text, f"{name}_p{q}") for q in (50, 95, 99)) == pytest.approx(expected), (bounds, cells)


# ---- a catalog of one's own

CATALOG = """\
version: 1
families:
  vllm:kv_cache_usage_perc: {type: gauge, semantic: occupancy_metric, help: Fullest}
  vllm:time_to_first_token_seconds: {type: histogram, semantic: sla_metric, help: Ours, buckets: mine, quantiles: [0.25, 0.999]}
  e:wait_seconds: {type: histogram, semantic: histogram_latency, help: Waits, buckets: mine, quantiles: []}
  e:plain: {type: histogram, semantic: histogram, help: Plain, buckets: mine, quantiles: [0.5]}
  e:depth: {type: gauge, semantic: cache_metric, help: Depth}
bucket_sets:
  mine: [0.5, 1]
derived:
  e:depth_max: {max: e:depth, help: Deepest}
  e:hits_per_token: {ratio: [vllm:prefix_cache_hits_total, vllm:generation_tokens_total], help: Hits a token}
"""


def test_a_catalog_of_ones_own_adds_and_replaces(new_cluster: Callable[..., Cluster], players: list[Player], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(CATALOG)
    (tmp_path / "not-read.txt").write_text("{")
    cluster = new_cluster(hub_flags=["--catalog", str(tmp_path)])
    player = Player(cluster)
    players.append(player)
    wait, plain = (Series(Family(name, "histogram", "histogram"), (), (0.5, 1.0)) for name in ("e:wait_seconds", "e:plain"))
    depth = Series(Family("e:depth", "gauge", "cache_metric"))
    for job, value in (("a", 0.25), ("b", 0.75)):
        player.say(player.define(job), {**CELLS, wait: [1.0, 1.0, 0.0, 1.0], plain: [1.0, 1.0, 0.0, 1.0]}, {KV: value, depth: value})
    text = cluster.hub.metrics()
    assert sample(text, "vllm:kv_cache_usage_perc") == 0.75 and sample(text, "vllm:kv_cache_usage_perc_max") == 0.75
    assert sample(text, "e:depth") == 0.5 and sample(text, "e:depth_max") == 0.75
    assert sample(text, "e:hits_per_token") == 0.1
    assert sample(text, "vllm:time_to_first_token_seconds_p25", quantile="0.25") == 0.25       # 1 of 4, in a bucket of 2
    assert sample(text, "vllm:time_to_first_token_seconds_p99_9", quantile="0.999") == pytest.approx(0.5 + 0.5 * (3.996 - 2) / 2)
    assert sample(text, "vllm:time_to_first_token_seconds_mean") == 0.5
    assert not {n for n in names(text) if n.endswith(("_p50", "_p95", "_p99")) and n != "e:plain_p50"}
    assert sample(text, "e:plain_p50", quantile="0.5") == 0.5 and sample(text, "e:plain_mean") == 0.5
    assert sample(text, "e:wait_seconds_count") == 4 and "e:wait_seconds_mean" not in names(text)
    assert "# HELP vllm:time_to_first_token_seconds Ours\n" in text and "# HELP e:depth_max Deepest\n" in text


@pytest.mark.parametrize(("lines", "text"), [
    ("derived:\n  e:m: {max: e:nosuch, help: x}", "e:nosuch"), ("derived:\n  e:m: {max: vllm:generation_tokens_total, help: x}", "vllm:generation_tokens_total"),
    ("derived:\n  e:r: {ratio: [vllm:generation_tokens_total], help: x}", "ratio"),
    ("derived:\n  e:r: {ratio: [vllm:num_requests_running, vllm:generation_tokens_total], help: x}", "vllm:num_requests_running"),
    ("derived:\n  vllm:num_requests_running: {max: vllm:kv_cache_usage_perc, help: x}", "vllm:num_requests_running"),
    ("derived:\n  vllm:time_to_first_token_seconds_p50: {max: vllm:kv_cache_usage_perc, help: x}", "vllm:time_to_first_token_seconds_p50"),
    ("derived:\n  e:m: {max: vllm:kv_cache_usage_perc, sum: 1, help: x}", "sum"),
    ("families:\n  e:h: {type: histogram, semantic: sla_metric, help: x, buckets: request_latency, quantiles: [0.5, 0.50]}", "_p50"),
    ("families:\n  e:h: {type: histogram, semantic: sla_metric, help: x, buckets: request_latency, quantiles: [1.5]}", "1.5"),
    ("families:\n  e:h: {type: histogram, semantic: sla_metric, help: x, buckets: request_latency, quantiles: [0]}", "0"),
    ("families:\n  e:g: {type: gauge, semantic: state_gauge, help: x, quantiles: [0.5]}", "quantiles"),
    ("families:\n  e:g: {type: gauge, semantic: nosuch, help: x}", "nosuch"),
    ("families:\n  vllm:time_to_first_token_seconds_mean: {type: gauge, help: x}", "vllm:time_to_first_token_seconds_mean")])
def test_a_mistake_in_a_catalog_of_ones_own_is_named_with_its_line(cluster: Cluster, tmp_path: Path, lines: str, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"version: 1\n{lines}\n")
    refused(cluster, ["--catalog", str(tmp_path)], path, text)
    refused(cluster, ["--catalog", str(tmp_path), "--hub", cluster.hub_endpoint, "--engines", f"ipc://{tmp_path}/e", "--replay", f"ipc://{tmp_path}/r",
                      "--state", str(tmp_path / "s"), "--http", "127.0.0.1:0"], path, text, "statsbus-agent")
