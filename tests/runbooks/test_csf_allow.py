from ipaddress import ip_address

import pytest

from connectors import csf_entry
from connectors.csf_grep import CsfEntries
from runbooks import Plan, Refused
from runbooks.csf_allow import AllowAddress
from tests.runbooks.firewall import build_firewall, csf_address

ADDRESS = ip_address("198.51.100.7")
ALLOW = AllowAddress.model_validate({"host": "web1", "address": str(ADDRESS)})


def test_csf_allow_adds_an_address_and_undo_removes_it():
    plan = ALLOW.plan(csf_address(build_firewall()))
    (step,) = plan.steps
    assert step.do == csf_entry.change_entry("allow", ADDRESS)
    assert step.undo == csf_entry.change_entry("disallow", ADDRESS)
    assert len(plan.notes) == 1
    assert "lock it out" in ALLOW.plan(csf_address(build_firewall(), source=str(ADDRESS))).notes[1]


def test_csf_allow_plans_no_steps_for_a_permanently_allowed_address():
    state = build_firewall(in_force=["198.51.100.0/24"], allow={"198.51.100.0/24": "range"})
    assert ALLOW.plan(csf_address(state)) == Plan("csf allows 198.51.100.7 (198.51.100.0/24)")
    for_a_time = csf_address(
        build_firewall(in_force=["198.51.100.7"]), CsfEntries(has_temporary_allow=True)
    )
    assert ALLOW.plan(for_a_time).steps


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (CsfEntries(allow="198.51.100.7 # x"), "no rule is in force: run csf -r"),
        (CsfEntries(deny="198.51.100.7 # lfd"), "request csf unblock first"),
        (CsfEntries(temporary_block="TTL:9"), "request csf unblock first"),
    ],
)
def test_csf_allow_refuses_an_address_whose_undo_is_not_exact(entries: CsfEntries, reason: str):
    with pytest.raises(Refused, match=reason):
        ALLOW.plan(csf_address(build_firewall(), entries))
