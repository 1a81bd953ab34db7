"""Set up leads to the first approved change, on its page, on Home and in the doctor alike."""

import re
from dataclasses import replace

from bot.features.setup.steps import check_setup
from bot.queries.host_status import PendingHostSummary
from bot.web import build_app
from tests.bot.web.conftest import Site, create_site
from tests.bot.web.parsed_page import Page
from tests.toy import SetSwitch, ShowSwitches

FINGERPRINT = "SHA256:n7dnLm1mOlH1pVBGCpMRuOyCBIXk0eUdBqyvN8K5F5k"
PENDING = PendingHostSummary("web2", "web2.example.com", FINGERPRINT, "ops on bastion")


def read_steps(site: Site, person: str = "dora") -> list[tuple[str, str]]:
    """Return the title and the state of each step."""
    text = site.browser(person).get("/setup").text
    return re.findall(
        r'<h2 class="h3 mb-1">([^<]*)</h2>.*?</svg>(Done|Next|To do)</span>', text, re.DOTALL
    )


def find_in_doctor(site: Site) -> list[str]:
    with site.database.reading() as tx:
        return [one.message for one in check_setup(tx, site.harness.policies.get_policy())]


def empty_inventory(site: Site) -> None:
    inventory = site.policy / "inventory.yaml"
    inventory.write_text(inventory.read_text().partition("hosts:\n")[0] + "hosts: {}\n")


def test_next_step_moves_on_until_the_first_approved_change(site: Site):
    assert [state for _, state in read_steps(site)] == ["Done", "Done", "To do", "Next", "To do"]
    assert "2 steps to the first approved change. Run the first check" in find_in_doctor(site)[0]

    site.harness.request(ShowSwitches(host="lb1"))
    assert [state for _, state in read_steps(site)] == ["Done", "Done", "To do", "Done", "Next"]
    assert find_in_doctor(site)[0].startswith("1 step to the first approved change. Make the")
    home = Page(site.browser("dora").get("/").text)
    assert "/setup" in home.links

    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    assert "/setup" in Page(site.browser("dora").get("/").text).links
    site.harness.approve(run)
    assert "/setup" not in Page(site.browser("dora").get("/").text).links
    assert (
        "The first approved change is in the change log."
        in Page(site.browser("dora").get("/setup").text).text
    )
    assert find_in_doctor(site) == []


def test_steps_name_what_is_missing_here(site: Site):
    empty_inventory(site)
    assert read_steps(site)[1] == ("Add a host", "Next")
    page = site.browser("dora").get("/setup").text
    assert "keyturn inventory enrol web1 web1.example.com --area edge" in page
    parts = replace(site.parts, list_enrolling_hosts=lambda: [PENDING])
    waiting = Site(site.harness, parts, build_app(parts))
    assert read_steps(waiting)[1] == ("Confirm the host web2", "Next")
    # Whoever confirms has to read it on the console.
    assert FINGERPRINT not in waiting.browser("dora").get("/setup").text
    waiting.browsers[0].close()
    assert "Add a host: `keyturn inventory enrol" in find_in_doctor(site)[0]


def test_address_without_tls_comes_with_the_tunnel_to_it(site: Site):
    local = create_site(site.harness, "http://127.0.0.1:8099")
    assert "ssh -L 8099:127.0.0.1:8099 YOU@SERVER" in local.browser("dora").get("/setup").text


def test_address_with_tls_is_a_step(site: Site):
    secure = create_site(site.harness, "https://keyturn.test")
    assert read_steps(secure)[2] == ("Let others reach these pages", "Done")
