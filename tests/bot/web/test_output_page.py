"""Output of a step: downloaded as a file and filtered, with the right to view."""

from bot.model.run import Run, StepState
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import (
    add_pending_run,
    add_requested_run,
    add_succeeded_run,
    approve,
    end_run,
    start_run,
)

OUTPUT = "\n".join(["<script>alert(1)</script>", "\x1b[31mOut of memory\x1b[0m", *"abcdefghij"])


def add_run_with_output(site: Site, output: str = OUTPUT) -> Run:
    with site.database.transaction() as tx:
        run = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx))))
        end_run(tx, run, StepState.SUCCEEDED, output=output)
    return run


def test_step_output_is_downloaded_as_a_text_file(site: Site) -> None:
    run = add_run_with_output(site)
    browser = site.browser("dora")
    address = f"/runs/{run.id}/output/1.txt"
    assert address in Page(browser.get(f"/runs/{run.id}").text).links
    answer = browser.get(address)
    assert answer.text == OUTPUT.replace("\x1b", "\\x1b")
    headers = answer.headers
    assert headers["content-disposition"] == f'attachment; filename="run-{run.id}-step-1.txt"'
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


def test_step_output_filter_returns_matching_lines_with_numbers(site: Site) -> None:
    run = add_run_with_output(site)
    answer = site.browser("dora").get(f"/runs/{run.id}/output/1.txt?filter=OUT+of")
    assert answer.text == "1 of 12 lines\n\n2: \\x1b[31mOut of memory\\x1b[0m\n"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "content-disposition" not in answer.headers


def test_output_search_is_offered_for_long_output_only(site: Site) -> None:
    long, short = add_run_with_output(site), add_run_with_output(site, "done")
    with site.database.transaction() as tx:
        silent = add_succeeded_run(tx, add_requested_run(tx, host="lb2"))
    browser = site.browser("dora")
    assert "Search output" in browser.get(f"/runs/{long.id}").text
    shown = browser.get(f"/runs/{short.id}").text
    assert "Search output" not in shown
    assert "Download" in shown
    assert Page(shown).unlabelled == []
    for nothing in (f"{silent.id}/output/1.txt", f"{long.id}/output/2.txt", "999/output/1.txt"):
        assert browser.get(f"/runs/{nothing}").status_code == 404


def test_step_output_is_refused_without_a_session(site: Site) -> None:
    run = add_run_with_output(site)
    answer = site.browser().get(f"/runs/{run.id}/output/1.txt")
    assert answer.status_code == 401
    assert "memory" not in answer.text
