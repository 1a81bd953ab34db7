from ipaddress import ip_address
from pathlib import Path

import pytest

from connectors import csf_entry, csf_grep
from connectors.csf_grep import CsfEntries, CsfMatch
from runbooks import Refused
from runbooks.csf_unblock import UnblockAddress
from tests.plans import list_work
from tests.runbooks.firewall import build_firewall, csf_address

ANSWERS = Path(__file__).parent.parent / "connectors" / "answers"
ADDRESS = ip_address("203.0.113.9")
UNBLOCK = UnblockAddress.model_validate({"host": "web1", "address": str(ADDRESS)})
WIDER = [CsfMatch("csf.deny", "203.0.113.0/24 # range")]


def test_csf_unblock_removes_a_permanent_and_a_temporary_block():
    blocked = CsfEntries(deny="203.0.113.9 # lfd: (sshd) Failed", temporary_block="TTL:3600 (x)")
    plan = UNBLOCK.plan(csf_address(build_firewall(), blocked))
    assert plan.current_state == (
        "csf.deny has 203.0.113.9 # lfd: (sshd) Failed; it is blocked for a time"
    )
    assert [(step.do, step.undo) for step in plan.steps] == [
        (csf_entry.change_entry("undeny", ADDRESS), csf_entry.change_entry("deny", ADDRESS)),
        (csf_entry.change_entry("unblock", ADDRESS), csf_entry.change_entry("block", ADDRESS)),
    ]


def test_csf_unblock_plan_is_not_stale_when_the_remaining_time_moves():
    plans = [
        UNBLOCK.plan(csf_address(build_firewall(), CsfEntries(temporary_block=f"TTL:{left} (x)")))
        for left in (3600, 12)
    ]
    assert list_work(plans[0]) == list_work(plans[1])


def test_csf_unblock_of_an_unblocked_address_plans_no_steps():
    assert UNBLOCK.plan(csf_address(build_firewall())).steps == ()
    wider = UNBLOCK.plan(csf_address(build_firewall(), CsfEntries(wider=WIDER)))
    assert (wider.steps, "csf.deny 203.0.113.0/24" in wider.current_state) == ((), True)
    both = UNBLOCK.plan(csf_address(build_firewall(), CsfEntries(deny="203.0.113.9", wider=WIDER)))
    assert "still blocks it" in both.notes[1]


def test_csf_unblock_refuses_a_rule_without_an_entry():
    with pytest.raises(Refused, match="run csf -r"):
        UNBLOCK.plan(csf_address(build_firewall(), CsfEntries(is_denied=True)))


def test_csf_unblock_refuses_an_entry_that_csf_keeps():
    found = csf_grep.parse_matches((ANSWERS / "csf-grep-kept.txt").read_text())
    entries = csf_grep.parse_entries(found, ADDRESS)
    assert entries.deny.startswith("203.0.113.9 # do not delete - scanner")
    with pytest.raises(Refused, match='marked "do not delete": if it must go'):
        UNBLOCK.plan(csf_address(build_firewall(), entries))


def test_csf_unblock_refuses_an_entry_of_an_included_file():
    firewall = build_firewall(included_deny={"203.0.113.9": "scanners"})
    entries = CsfEntries(deny="203.0.113.9 # scanners", is_denied=True)
    with pytest.raises(Refused, match=r"a file that csf.deny includes has 203.0.113.9"):
        UNBLOCK.plan(csf_address(firewall, entries))


@pytest.mark.parametrize(
    "rule", ["tcp|in|d=22|s=203.0.113.0/24", "tcp:in:d=22:s=203.0.113.9", "in|s=203.0.113.9"]
)
def test_csf_unblock_names_a_rule_for_single_ports(rule: str):
    firewall = build_firewall(deny={"tcp|in|d=22|s=192.0.2.1": "", rule: "ssh"})
    with pytest.raises(Refused, match="a rule for single ports") as refused:
        UNBLOCK.plan(csf_address(firewall, CsfEntries(is_denied=True)))
    assert f", {rule}:" in str(refused.value)
