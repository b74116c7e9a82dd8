"""The table of scripts/watch.py and scripts/demo, made of what a hub prints."""

from __future__ import annotations

import pytest

from watch import scrape as scrape_hub
from watch_view import MISSING, VIEWS, WINDOW_S, Watch, fit

SERVICE = 'model_name="llama",service_name="chat"'


def scrape(tokens: float, **others: str) -> dict[str, str]:
    """One service with a decode engine on node a that has said everything, and a silent prefill engine on node b."""
    engine = (f'vllm:num_requests_running{{LABELS}} 3\nvllm:num_requests_waiting{{LABELS}} 0\nvllm:kv_cache_usage_perc{{LABELS}} 0.256\n'
              f'vllm:prompt_tokens_total{{LABELS}} 500\nvllm:generation_tokens_total{{LABELS}} {tokens}\n'
              'vllm:time_to_first_token_seconds_p50{LABELS,quantile="0.5"} 0.0125\nvllm:time_to_first_token_seconds_p99{LABELS,quantile="0.99"} 2.5\n'
              'vllm:inter_token_latency_seconds_p50{LABELS,quantile="0.5"} 0.0205\nvllm:inter_token_latency_seconds_p99{LABELS,quantile="0.99"} 0.75\n')
    silent = "vllm:prompt_tokens_total{LABELS} 7\n"
    labels = {"full": ("", None), "role": ('role="decode",', 'role="prefill",'), "node": ('node="a",role="decode",', 'node="b",role="prefill",'),
              "instance": ('instance_id="d-1",role="decode",', 'instance_id="p-1",role="prefill",')}
    out = {}
    for view, (live, dead) in labels.items():
        out[view] = "# HELP x y\n" + engine.replace("LABELS", live + SERVICE)
        if dead:
            out[view] += silent.replace("LABELS", dead + SERVICE)
    out["full"] += (f'statsbus_source_up{{job_name="d",{SERVICE}}} 1\nstatsbus_source_up{{job_name="p",{SERVICE}}} 0\nstatsbus_hub_agents 2\n')
    return {**out, **others}


def test_each_row_of_each_view_is_a_line_with_its_numbers() -> None:
    watch = Watch()
    watch.add(10.0, scrape(1000))
    watch.add(12.0, scrape(1500))
    status, *table = watch.lines()
    assert status.split("  ")[0] == "agents 2, live 1/2"
    numbers = ["3", "0", "25.6", "0", "250", "12.5", "2500", "20.5", "750"]
    silent = [MISSING, MISSING, MISSING, "0", MISSING, MISSING, MISSING, MISSING, MISSING]
    assert [line.split() for line in table] == [
        ["service", "run", "wait", "KV%", "in", "out", "p50", "p99", "p50", "p99"],
        ["chat", "llama", *numbers],
        ["role"], ["decode", *numbers], ["prefill", *silent],
        ["node"], ["a", "decode", *numbers], ["b", "prefill", *silent],
        ["instance"], ["d-1", "decode", *numbers], ["p-1", "prefill", *silent],
    ]


def test_it_fits_a_usual_terminal_and_headings_end_where_their_columns_do() -> None:
    watch = Watch()
    watch.add(10.0, scrape(1))
    groups, titles, *rows = watch.lines()
    assert max(map(len, watch.lines())) <= 80
    assert {len(line) for line in (groups, titles, rows[0])} == {78}
    assert [groups.index(group) + len(group) for group in ("tokens/s", "TTFT, ms", "ITL, ms")] == [
        titles.index("out") + 3, titles.index("p99") + 3, titles.rindex("p99") + 3]


def test_a_single_scrape_has_no_rates() -> None:
    watch = Watch()
    watch.add(10.0, scrape(1000))
    assert watch.lines()[2].split()[2:7] == ["3", "0", "25.6", MISSING, MISSING]


def test_rates_look_back_one_window() -> None:
    watch = Watch()
    for second in range(60):
        watch.add(float(second), scrape(1000 if second < 50 else 1000 + 30 * (second - 49)))
    row = ("full", ("chat", "llama"))
    assert watch.rate(row, "vllm:generation_tokens_total") == pytest.approx(30)
    for second in range(60, 60 + int(WINDOW_S) + 1):
        watch.add(float(second), scrape(1300))
    assert watch.rate(row, "vllm:generation_tokens_total") == 0


def test_what_has_gone_has_no_line_and_what_has_just_come_no_rate() -> None:
    watch = Watch()
    watch.add(1.0, scrape(1, instance=""))
    watch.add(2.0, scrape(1))
    assert watch.rate(("instance", ("chat", "llama", "d-1", "decode")), "vllm:generation_tokens_total") is None
    watch.add(3.0, scrape(1, instance=""))
    assert watch.lines()[-1] == "instance"


def test_series_of_one_row_are_added() -> None:
    watch = Watch()
    watch.add(1.0, scrape(1, role=f'vllm:num_requests_running{{lora="a",role="decode",{SERVICE}}} 2\n'
                                  f'vllm:num_requests_running{{lora="b",role="decode",{SERVICE}}} 5\n'))
    assert watch.lines()[4].split()[:2] == ["decode", "7"]


def test_service_and_model_are_said_where_there_are_several() -> None:
    texts = scrape(1)
    watch = Watch()
    watch.add(1.0, {view: text + text.replace("llama", "bert") for view, text in texts.items()})
    lines = watch.lines()
    assert [line.split()[:3] for line in lines[lines.index("role") + 1:][:2]] == [["chat", "bert", "decode"], ["chat", "bert", "prefill"]]


def test_the_table_is_cut_to_the_terminal_and_says_so() -> None:
    table = [f"line {number}" for number in range(10)]
    assert fit(["top"], table, ["end"], 80, 12) == ["top", *table, "end"]
    assert fit(["top"], table, ["end"], 80, 6) == ["top", *table[:3], "... 7 more lines in a higher terminal", "end"]
    assert fit(["top"], table, ["end"], 4, 12)[:2] == ["top", "lin>"]
    assert fit(["top"], table, ["end"], 80, 1) == ["top"]


def test_a_hub_without_engines_is_a_table_without_rows() -> None:
    watch = Watch()
    assert watch.lines() == []
    watch.add(1.0, {**dict.fromkeys((view for view, _, _ in VIEWS), ""), "full": "statsbus_hub_agents 0\n"})
    assert watch.lines()[0].startswith("agents 0, live 0/0 ")
    assert len(watch.lines()) == 1 + len(VIEWS)


@pytest.mark.parametrize("host", ["hub:port", "a..b:9464", "127.0.0.1:1"])
def test_a_wrong_address_is_one_error_whatever_is_wrong_with_it(host: str) -> None:
    with pytest.raises(OSError):
        scrape_hub(host)
