"""Comparison of two runs."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model.run import RequestTerms, State, StepState
from bot.web.compare import ComparedLine, ComparedRun, compare_runs
from runbooks import Report
from tests.bot.harness import WEB
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import (
    add_check,
    add_ended_run,
    add_pending_run,
    add_requested_run,
    add_sample_runs,
    approve,
    end_run,
    start_run,
)
from tests.toy import SetSwitch


def two_runs(site: Site, *outputs: str) -> list[int]:
    numbers: list[int] = []
    with site.database.transaction() as tx:
        for output in outputs:
            run = start_run(
                tx, approve(tx, add_pending_run(tx, add_requested_run(tx)), reason="go")
            )
            end_run(tx, run, StepState.SUCCEEDED, output=output)
            numbers.append(add_ended_run(tx, run, State.SUCCEEDED, "Verified").id)
    return numbers


def test_compared_outputs_mark_equal_and_different_lines(site: Site) -> None:
    first, second = two_runs(site, "one\ntwo\nthree", "one\n2\nthree\nfour")
    html = site.browser("dora").get(f"/runs/compare?a={first}&b={second}").text
    section = html.split("Output</h2>")[1].split("</section>")[0]
    words = Page(section).text
    assert "Differs ≠ two 2" in words
    assert "Only on the right + four" in words
    assert "Same one one" in words


def test_compared_check_with_problems_is_labelled_needs_attention(site: Site) -> None:
    with site.database.transaction() as tx:
        ill, well = add_check(tx).id, add_check(tx, Report("all is well")).id
    html = site.browser("dora").get(f"/runs/compare?a={ill}&b={well}").text
    assert "Differs ≠ Needs attention Succeeded" in Page(html).text


def test_run_is_compared_with_the_previous_similar_run(site: Site) -> None:
    with site.database.transaction() as tx:
        same = add_requested_run(tx).id
        add_requested_run(tx, fields={"host": "lb1", "address": "198.51.100.7"})
        add_requested_run(tx, host="lb2")
        last = add_requested_run(tx).id
    browser = site.browser("dora")
    words = Page(browser.get(f"/runs/compare?b={last}").text).text
    assert f"Compare runs {same} and {last}" in words
    assert f"/runs/compare?a={same}&amp;b={last}" in browser.get(f"/runs/{last}").text


def test_run_is_compared_with_a_run_of_the_same_values_and_hosts_only(site: Site) -> None:
    harness = site.harness

    def request(*hosts: str, value: str = "on") -> int:
        runbooks = [SetSwitch(host=host, name="lamp", value=value) for host in hosts]
        if len(hosts) == 1:
            return harness.request(runbooks[0]).id
        run = harness.service.request_on_hosts(
            runbooks, RequestTerms("dora", WEB, ""), host_pattern="lb*"
        )
        harness.run_queued_work()
        return run.id

    first, single = request("lb1", "lb2"), request("lb1")
    second = request("lb1", "lb2")
    other = request("lb1", value="off")
    browser = site.browser("olga")

    def find_left(run: int) -> int | None:
        left = browser.get(f"/runs/compare?b={run}").text.split("Compare runs ")[1].split(" ")[0]
        return None if left == "?" else int(left)

    # Child runs are numbered after their parent: 2 and 3, 6 and 7.
    assert (first, single, second, other) == (1, 4, 5, 8)
    assert (find_left(second), find_left(6), find_left(7)) == (first, 2, 3)
    assert (find_left(single), find_left(other), find_left(first)) == (None, None, None)


def test_comparison_says_when_there_is_no_earlier_similar_run(site: Site) -> None:
    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    words = Page(site.browser("dora").get(f"/runs/compare?b={run.id}").text).text
    assert "There is no earlier run of the same command: toy set lb1 lamp on" in words


@pytest.mark.parametrize("query", ["", "?a=1", "?a=1&b=999", "?a=999&b=1", "?b=0", "?b=x"])
def test_comparison_with_a_missing_run_is_refused(site: Site, query: str) -> None:
    add_sample_runs(site.database)
    assert site.browser("dora").get(f"/runs/compare{query}").status_code in {404, 422}


def test_hostile_output_stays_text_in_a_comparison(site: Site) -> None:
    evil = "<script>alert(1)</script>\n\x1b]0;owned\x07\n</pre><img src=x onerror=alert(1)>"
    first, second = two_runs(site, evil, "well")
    html = site.browser("dora").get(f"/runs/compare?a={first}&b={second}").text
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert "\\x1b]0;owned\\x07" in html


def test_every_pair_of_runs_can_be_compared(site: Site) -> None:
    numbers = [*add_sample_runs(site.database).values()]
    browser = site.browser("dora")
    for left, right in zip(numbers, [*numbers[1:], numbers[0]], strict=True):
        assert browser.get(f"/runs/compare?a={left}&b={right}").status_code == 200


def a_side(site: Site, number: int, summary: str = "") -> ComparedRun:
    run = site.harness.get_run(number)
    return ComparedRun(replace(run, summary=summary or run.summary), (), {}, str)


@given(st.text(max_size=60), st.text(max_size=60))
def test_aligned_lines_keep_every_line_of_both_outputs(one: str, other: str) -> None:
    from bot.web.compare import (
        _align_lines,  # pyright: ignore[reportPrivateUsage] - its heart
    )

    lines: list[ComparedLine] = _align_lines(one.split("\n"), other.split("\n"))
    folded = sum(line.folded for line in lines)
    left = [line.left for line in lines if line.left is not None]
    right = [line.right for line in lines if line.right is not None]
    assert len(left) + folded == len(one.split("\n"))
    assert len(right) + folded == len(other.split("\n"))


def test_long_outputs_are_compared_within_ten_seconds(site: Site) -> None:
    number = add_sample_runs(site.database)["succeeded"]
    begun = time.monotonic()
    loud = "\n".join(str(n % 7) for n in range(60_000))
    compare_runs(a_side(site, number, loud), a_side(site, number, loud[::-1]))
    assert time.monotonic() - begun < 10


def test_comparison_names_the_sources_as_the_timeline_does(site: Site) -> None:
    with site.database.transaction() as tx:
        first = add_requested_run(tx, source="web").id
        last = add_requested_run(tx, source="api").id
    words = Page(site.browser("dora").get(f"/runs/compare?a={first}&b={last}").text).text
    assert "Differs ≠ requested: on the web requested: through the API" in words
