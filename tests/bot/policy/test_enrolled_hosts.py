"""Who has to sign changes of a host that checks signatures itself."""

from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bot.db import runs
from bot.model.agents import AgentOrigin
from bot.model.run import RequestTerms
from bot.policy import NoPolicyError, Policy, PolicyDirectory, PolicyRequest
from tests.bot.harness import WEB, Harness
from tests.policies import write_policy
from tests.toy import SetSwitch

UNSIGNED = ["zpool scrub tank", "systemctl reload nginx"]
CHANGE = PolicyRequest("toy set", "change", "lb1", "web", "dora", now=1_795_000_000_000_000)


def write_enrolled(directory: Path, **more: object) -> PolicyDirectory:
    """Write a policy in which lb1 is enrolled. more: further fields of it in the inventory."""
    written = write_policy(directory)
    yaml = YAML()
    file = written.path / "inventory.yaml"
    inventory = yaml.load(file)
    inventory["hosts"]["lb1"] |= {"user": "keyturn", "signed": True, **more}
    yaml.dump(inventory, file)
    return written


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return write_enrolled(tmp_path).get_policy()


def test_requester_and_an_owner_sign_a_change_of_an_enrolled_host(policy: Policy):
    ruling = policy.get_request_ruling(CHANGE)
    needs = ruling.requirements
    assert (needs.requires_signature, needs.requires_signed_request) == (True, True)
    assert "The host itself checks signatures" in ruling.policy_notes[-1]
    # Also of an owner, who needs no approval elsewhere.
    own = policy.get_request_ruling(replace(CHANGE, requested_by="olga"))
    assert (own.required_approvals, own.approver_groups) == (1, ("area:edge",))
    assert own.requirements.requires_signature
    # Nor does it say why they need none.
    assert own.policy_notes == ruling.policy_notes[-1:]


def test_whole_request_is_signed_if_one_of_its_hosts_is_enrolled(policy: Policy):
    both = policy.get_request_ruling(replace(CHANGE, host="lb2", hosts=("lb2", "lb1")))
    other = policy.get_request_ruling(replace(CHANGE, host="lb2", hosts=("lb2",)))
    assert both.requirements.requires_signature
    assert not other.requirements.requires_signature


def test_part_of_a_request_has_a_section_of_the_plan_that_was_signed(harness: Harness):
    """So its host finds its own steps in the document of the whole."""
    lamps = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    whole = harness.service.request_on_hosts(
        lamps, RequestTerms("dora", WEB, "x"), host_pattern="lb*"
    )
    harness.run_queued_work()
    document = harness.get_run(whole.id).plan
    assert document
    with harness.database.reading() as tx:
        parts = runs.list_children(tx, whole.id)
    for part in parts:
        assert part.plan
        section, number = part.plan.find_section(1)
        assert number == 1
        line = f"host {part.host} {section.digest} {section.fingerprint}\n"
        assert line in document.document


def test_checks_of_an_enrolled_host_need_no_signature(policy: Policy):
    ruling = policy.get_request_ruling(replace(CHANGE, runbook="toy show", kind="check"))
    assert (ruling.allowed, ruling.required_approvals) == (True, 0)
    assert not ruling.requirements.requires_signature


def test_agents_schedules_and_break_glass_change_no_enrolled_host(policy: Policy):
    agent = replace(CHANGE, requested_by="agent:ci", agent=AgentOrigin("olga", "dora"))
    for request, who in ((agent, "an agent"), (replace(CHANGE, source="schedule"), "a schedule")):
        ruling = policy.get_request_ruling(request)
        assert not ruling.allowed
        if who == "a schedule":
            assert f"{who} signs nothing" in ruling.refusal_reason
    broken = policy.get_break_glass_ruling(replace(CHANGE, requested_by="olga"))
    assert not broken.allowed
    assert "break-glass does not help there" in broken.refusal_reason


def test_agents_and_schedules_may_request_what_an_enrolled_host_runs_unsigned(tmp_path: Path):
    policy = write_enrolled(tmp_path, unsigned=UNSIGNED).get_policy()
    scheduled = replace(CHANGE, source="schedule")
    ruling = policy.get_request_ruling(scheduled)
    assert ruling.allowed
    assert not ruling.requirements.requires_signature
    assert ruling.policy_notes[-1] == (
        "Without signatures, lb1 runs only: zpool scrub tank, systemctl reload nginx. A plan with "
        "another command is refused."
    )
    # People still sign, and break-glass still does not help.
    assert policy.get_request_ruling(CHANGE).requirements.requires_signature
    assert not policy.get_break_glass_ruling(replace(CHANGE, requested_by="olga")).allowed


@pytest.mark.parametrize(
    "command", ["", "-x", "a=b c", "zpool  scrub", " zpool", "zpool ", "# zpool", "a\nb"]
)
def test_unsigned_command_is_a_program_and_its_words(tmp_path: Path, command: str):
    with pytest.raises(NoPolicyError, match="unsigned"):
        write_enrolled(tmp_path, unsigned=[command]).get_policy()


def test_unsigned_is_refused_for_a_host_that_is_not_enrolled(tmp_path: Path):
    with pytest.raises(NoPolicyError, match="unsigned is for hosts with `signed: true`"):
        write_enrolled(tmp_path, signed=False, unsigned=UNSIGNED).get_policy()
