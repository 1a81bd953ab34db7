"""The starter rules as a table of who may what, and the errors of an invalid policy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.policy import NoPolicyError, Policy, PolicyRequest
from bot.policy.cedar import Rules, Ruling, combine_rulings
from tests.policies import get_starter_rules, write_policy

# A Wednesday, 12:00 UTC.
NOON = 1_792_584_000_000_000


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return write_policy(tmp_path).get_policy()


def _request(
    person: str, host: str = "lb1", kind: str = "change", *, reversible: bool = True
) -> PolicyRequest:
    return PolicyRequest(
        runbook="abusers clear",
        kind=kind,
        host=host,
        source="slack",
        requested_by=person,
        reversible=reversible,
        now=NOON,
    )


@pytest.mark.parametrize(
    ("person", "host", "kind", "reversible", "approvals"),
    [
        ("dora", "lb1", "check", True, 0),
        ("dora", "lb1", "change", True, 1),
        ("dora", "lb1", "change", False, 1),
        ("olga", "lb1", "change", True, 0),
        ("olga", "lb1", "change", False, 1),
        ("olga", "nas1", "change", True, 1),
        ("stan", "nas1", "change", True, 0),
        ("gus", "lb1", "check", True, 0),
        ("gus", "lb1", "change", True, None),
        ("nobody", "lb1", "check", True, None),
        ("dora", "lb9", "check", True, None),
    ],
)
def test_starter_rules_decide_who_needs_how_many_approvals(
    tmp_path: Path, person: str, host: str, kind: str, reversible: bool, approvals: int | None
):
    directory = write_policy(tmp_path)
    people = tmp_path / "people.yaml"
    people.write_text(people.read_text() + "  gus: {name: Gus Guest}\n")
    ruling = directory.get_policy().get_request_ruling(
        _request(person, host, kind, reversible=reversible)
    )
    assert (ruling.required_approvals if ruling.allowed else None) == approvals


@pytest.mark.parametrize(("runbook", "approvals"), [("force", 2), ("start", 0)])
def test_commented_example_rule_for_a_forced_scrub_is_valid(
    tmp_path: Path, runbook: str, approvals: int
):
    before, name, rest = get_starter_rules().partition(
        '// @id("forcing a scrub needs two approvals")'
    )
    example, blank, after = rest.partition("//\n")
    rules = before + (name + example).replace("// ", "") + blank + after
    policy = write_policy(tmp_path, rules=rules).get_policy()
    ruling = policy.get_request_ruling(
        replace(_request("stan", "nas1"), runbook=f"zfs scrub {runbook}")
    )
    assert (ruling.allowed, ruling.required_approvals) == (True, approvals)


@pytest.mark.parametrize(
    ("asker", "approver", "host", "may"),
    [
        ("dora", "olga", "lb1", True),
        ("dora", "adam", "lb1", True),
        ("dora", "stan", "lb1", False),
        ("dora", "dora", "lb1", False),
        ("olga", "olga", "lb1", False),
        ("olga", "adam", "lb1", True),
        ("dora", "olga", "nas1", False),
        ("dora", "stan", "nas1", True),
        ("dora", "nobody", "lb1", False),
    ],
)
def test_starter_rules_let_owners_approve_except_their_own_requests(
    policy: Policy, asker: str, approver: str, host: str, may: bool
):
    request = _request(asker, host)
    assert (
        policy.get_approval_ruling(approver, request, policy.get_request_ruling(request)).allowed
        is may
    )


def test_policy_lists_the_names_of_those_who_can_approve(policy: Policy):
    request = _request("dora")
    names = [
        person.name
        for person in policy.list_approvers(request, policy.get_request_ruling(request))
    ]
    assert names == ["Adam Admin", "Olga Owner"]
    assert (
        policy.describe_approver_groups(policy.get_request_ruling(request).requirements)
        == "the owners of the edge"
    )


def test_requester_cannot_approve_even_without_the_forbid_rule(tmp_path: Path):
    rules = get_starter_rules().replace("forbid (principal", "// forbid (principal")
    rules = rules.replace("when { context.own };", "// when")
    rules = rules.replace('@id("no self-approval")', "").replace(
        '@description("No one can approve a request that they made, edited or scheduled.")', ""
    )
    policy = write_policy(tmp_path, rules=rules).get_policy()
    request = _request("olga", reversible=False)
    assert not policy.get_approval_ruling(
        "olga", request, policy.get_request_ruling(request)
    ).allowed
    # The twin: the rules alone would let another request of hers be approved by her like this.
    other = _request("adam", reversible=False)
    assert policy.get_approval_ruling("olga", other, policy.get_request_ruling(other)).allowed


def test_policy_without_rules_permits_nothing(tmp_path: Path):
    policy = write_policy(tmp_path, rules="// nothing yet\n").get_policy()
    assert not policy.get_request_ruling(_request("olga", kind="check")).allowed


def test_strictest_of_several_permit_rules_wins(tmp_path: Path):
    stricter = """
    @id("careful") @approvals("2") @from("role:administrator")
    permit (principal, action == Action::"request", resource) when { context.kind == "change" };
    """
    policy = write_policy(tmp_path, rules=get_starter_rules() + stricter).get_policy()
    ruling = policy.get_request_ruling(_request("dora"))
    assert (ruling.required_approvals, ruling.approver_groups) == (2, ("role:administrator",))


ANYBODY_APPROVES = """
@id("ask") @approvals("1") @from("owners")
permit (principal, action == Action::"request", resource);
@id("approve") permit (principal, action in [Action::"approve", Action::"view"], resource);
"""


def test_approvals_of_a_request_for_several_hosts_suffice_for_each_host(tmp_path: Path):
    policy = write_policy(tmp_path, rules=ANYBODY_APPROVES).get_policy()
    request = replace(_request("dora"), hosts=("lb1", "web1"))
    ruling = policy.get_request_ruling(request)
    assert [person.id for person in policy.list_approvers(request, ruling)] == ["adam", "olga"]
    assert not policy.is_met(ruling.requirements, ["adam"])
    assert policy.is_met(ruling.requirements, ["olga"])


_NIGHT = """
@id("by night") @approvals("2") @from("owners")
permit (principal, action == Action::"request", resource) when { context.hour < 6 };
"""
_NFS = """
@id("exports") @approvals("3") @from("owners")
permit (principal, action == Action::"request", resource) when { resource.tags.contains("nfs") };
"""
_ONE = """
@id("that one") forbid (principal, action, resource == Host::"lb12");
"""


_FROZEN = """
@id("frozen") forbid (principal, action == Action::"request", resource) when { context.frozen };
"""
_FREEZE = """
freezes:
  - {name: sale, from: 2020-01-01 00:00, until: 2100-01-01 00:00, hosts: [lb12]}
"""


@pytest.mark.parametrize("rule", ["", _NIGHT, _NFS, _ONE, _FROZEN])
@pytest.mark.parametrize("more", ["area: edge, tags: [haproxy]", "area: web, tags: [haproxy]"])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland"])
def test_ruling_for_several_hosts_combines_the_rulings_of_each_host(
    tmp_path: Path, rule: str, more: str, zone: str
):
    directory = write_policy(tmp_path, rules=ANYBODY_APPROVES + rule)
    hosts = [f"lb{n}" for n in range(10, 14)]
    (tmp_path / "freezes.yaml").write_text(_FREEZE)
    inventory = tmp_path / "inventory.yaml"
    kinds = [more, more, more, f"area: edge, tags: [nfs], zone: {zone}"]
    lines = [f"  {name}: {{{kind}}}\n" for name, kind in zip(hosts, kinds, strict=True)]
    inventory.write_text(inventory.read_text() + "".join(lines))
    policy = directory.get_policy()
    alone = [policy.get_request_ruling(_request("dora", host)) for host in hosts]
    together = policy.get_request_ruling(replace(_request("dora"), hosts=tuple(hosts)))
    assert together.allowed == all(one.allowed for one in alone)
    expected = replace(combine_rulings(alone), max_hosts=together.max_hosts)
    if rule in {_ONE, _FROZEN} and "area: web" in more:
        # Of several areas, the one that is refused is named.
        (reason,) = expected.policy_notes
        expected = replace(expected, policy_notes=(f"in the web servers: {reason}",))
    assert together == expected


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that Cedar is asked about, in their order."""
    asked_attributes: list[str] = []
    plain = Rules.compute_ruling

    def noted(self: Rules, *given: Any, **more: Any) -> Ruling:
        asked_attributes.append(more["host"])
        return plain(self, *given, **more)

    monkeypatch.setattr(Rules, "compute_ruling", noted)
    return asked_attributes


def test_policy_evaluates_the_rules_once_for_hosts_with_equal_attributes(
    tmp_path: Path, asked: list[str]
):
    directory = write_policy(tmp_path, rules=ANYBODY_APPROVES)
    inventory = tmp_path / "inventory.yaml"
    hosts = tuple(f"lb{n}" for n in range(1, 101))
    lines = [f"  {name}: {{area: edge, tags: [haproxy]}}\n" for name in hosts[2:]]
    inventory.write_text(inventory.read_text() + "".join(lines))
    policy = directory.get_policy()
    policy.get_request_ruling(replace(_request("dora"), hosts=hosts))
    assert asked == ["lb1"]
    asked.clear()
    policy.get_request_ruling(replace(_request("olga"), hosts=(*hosts, "web1", "nas1")))
    assert asked == ["lb1", "web1", "nas1"]


def test_policy_caches_rulings_that_do_not_depend_on_time(tmp_path: Path, asked: list[str]):
    # The tests share what they read: one that others have asked may know the answer by now.
    policy = write_policy(
        tmp_path, rules=f"{get_starter_rules()}\n// of this test alone\n"
    ).get_policy()
    for seconds in range(5):
        policy.get_request_ruling(replace(_request("dora"), now=NOON + seconds * 1_000_000))
    assert asked == ["lb1"]


_MOMENT = """
@id("over") forbid (principal, action == Action::"request", resource)
when { context.now >= datetime("2026-10-21T12:00:01Z") };
"""


def _list_rulings_by_second(directory: Path) -> list[bool]:
    policy = write_policy(directory, rules=ANYBODY_APPROVES + _MOMENT).get_policy()
    moments = [NOON, NOON + 1_000_000, NOON]
    return [
        policy.get_request_ruling(replace(_request("dora"), now=now)).allowed for now in moments
    ]


def test_rule_that_depends_on_time_is_evaluated_at_each_time(tmp_path: Path):
    assert _list_rulings_by_second(tmp_path) == [True, False, True]


def test_without_tracking_mentioned_attributes_a_cached_ruling_is_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The twin of the guard: an answer is remembered for what the rules see, and not without."""
    monkeypatch.setattr(Policy, "mentions", frozenset[str]())
    assert _list_rulings_by_second(tmp_path) == [True, True, True]


def test_policy_version_is_the_hash_of_its_content(tmp_path: Path):
    one = write_policy(tmp_path / "one").get_policy().version
    assert write_policy(tmp_path / "two").get_policy().version == one
    assert (
        write_policy(tmp_path / "three", rules=get_starter_rules() + "\n").get_policy().version
        != one
    )


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("policy.cedar", "permit (", "policy.cedar, line 1: unexpected end of input"),
        ("policy.cedar", '@id("x") permit (principal, action, resource) when { context.frozn };',
         'rule "x": attribute `frozn`'),
        ("policy.cedar", '@id("x") @aprovals("1") permit (principal, action, resource);',
         'rule "x": unknown annotation @aprovals'),
        ("policy.cedar", '@id("x") @approvals("many") permit (principal, action, resource);',
         "must be a number from 0 to 9"),
        ("policy.cedar", '@id("x") @approvals("1") permit (principal, action, resource);',
         "@approvals needs approvers: add @from"),
        ("policy.cedar",
         '@id("x") @approvals("1") @from("boss") permit (principal, action, resource);',
         'must be "owners", "role:NAME" or "area:NAME"'),
        ("people.yaml", "people:\n  dora: {name: Dora}\n  dora: {name: Two}\n", "line 3"),
        ("people.yaml", "people: [dora]\n", "people.yaml, line 1: people: must be a mapping"),
        ("people.yaml", "people:\n  Dora D: {name: Dora}\n", "should match pattern"),
        ("people.yaml", "just words\n", "must be a mapping that starts with"),
        ("freezes.yaml", "freezes: [\n", "freezes.yaml, line 2: a bracket is not closed"),
        ("areas.yaml", "areas:\n  edge: {title: x\n", "a bracket is not closed"),
        ("areas.yaml", "areas:\n  edge: {title: 'x}\n", "a quotation mark is not closed"),
        ("areas.yaml", "areas:\n  edge:\n    title: x\n   owners: [olga]\n",
         "areas.yaml, line 4: is indented differently from the lines that it belongs to"),
        ("areas.yaml", "areas:\n  edge:\n    title: the edge: both\n",
         "areas.yaml, line 3: has a colon too many"),
        ("areas.yaml", "areas:\n  edge: {title: x, owners: ['a' 'b']}\n", "or a comma"),
        ("areas.yaml", "areas: @edge\n", "a value cannot begin with @: put it into quotation"),
        ("areas.yaml", "areas: *edge\n", "a value cannot begin with *: put it into quotation"),
        ("areas.yaml", "areas:\n  edge: {title: the edge, owners: []}\n",
         "must name at least one"),
        ("areas.yaml", "areas:\n  edge: {title: the edge, owners: [ogla]}\n",
         "owner ogla is not in people.yaml"),
        ("inventory.yaml", "hosts:\n  lb1: {address: 127.0.0.1, area: edge}\n",
         "set either host_key or host_ca"),
        ("inventory.yaml", "hosts:\n  lb1: {address: '-oProxy=x', area: edge}\n",
         "hosts.lb1.address: must be a host name or an IP address, such as lb1.example.com"),
        ("inventory.yaml", "hosts:\n  lb1: {address: lb1, area: edge, port: 99999}\n",
         "hosts.lb1.port: must be 65535 or less"),
        ("inventory.yaml", "hosts:\n  lb1: {address: lb1, area: edge, user: Ann B}\n",
         "hosts.lb1.user: must be a user name on the host, such as keyturn"),
        ("inventory.yaml", "hosts:\n  LB_1: {address: lb1, area: edge}\n",
         "hosts.LB_1.name: must be a name of lower-case letters, digits and hyphens, such"),
        ("freezes.yaml", "freezes:\n  - {name: x, from: soon, until: '2027-01-04 08:00'}\n",
         'freezes.yaml, line 2: freezes.0.from: must be a date and time such as "2026-12-20'),
        ("inventory.yaml", "hosts:\n  lb1: edge\n",
         "inventory.yaml, line 2: lb1: must have fields"),
        ("inventory.yaml", "defaults: [x]\nhosts:\n  lb1: {area: edge}\n",
         "inventory.yaml, line 1: defaults: must be fields of hosts"),
        ("people.yaml", "1: x\npeople: {}\n", "people.yaml, line 1: 1: Keys should be strings"),
        ("people.yaml", "people:\n  dora: {name: 2024-13-45}\n", "people.yaml: month must be"),
        ("people.yaml", "people: " + "[" * 1000, "people.yaml: is nested too deeply"),
    ],
)  # fmt: skip
def test_invalid_policy_is_rejected_with_place_and_reason(
    tmp_path: Path, file: str, content: str, says: str
):
    directory = write_policy(tmp_path)
    assert directory.get_policy()
    (tmp_path / file).write_text(content)
    with pytest.raises(NoPolicyError) as broken:
        directory.get_policy()
    assert says in str(broken.value)


def test_missing_policy_file_is_named(tmp_path: Path):
    directory = write_policy(tmp_path)
    (tmp_path / "areas.yaml").unlink()
    with pytest.raises(NoPolicyError, match=r"areas\.yaml: is missing"):
        directory.get_policy()


def test_repaired_policy_is_used_again(tmp_path: Path):
    directory = write_policy(tmp_path)
    good = (tmp_path / "policy.cedar").read_text()
    (tmp_path / "policy.cedar").write_text("permit (")
    with pytest.raises(NoPolicyError):
        directory.get_policy()
    (tmp_path / "policy.cedar").write_text(good)
    assert directory.get_policy().get_request_ruling(_request("dora")).allowed


def test_two_people_cannot_share_a_slack_account(tmp_path: Path):
    directory = write_policy(tmp_path)
    people = tmp_path / "people.yaml"
    people.write_text(people.read_text().replace("U0OLGA", "U0DORA"))
    with pytest.raises(NoPolicyError, match="may belong to both dora and olga"):
        directory.get_policy()


@pytest.mark.parametrize(
    ("team", "enterprise", "user", "person"),
    [
        ("T0KEYTURN", None, "U0DORA", "dora"),
        ("T0OTHER", None, "U0DORA", None),
        ("T0KEYTURN", None, "U0NOBODY", None),
        ("T0OTHER", "E0GRID", "W0ERIN", "erin"),
        ("T0OTHER", "E0OTHER", "W0ERIN", None),
        ("T0OTHER", None, "W0ERIN", None),
    ],
)
def test_slack_people_are_identified_by_team_enterprise_and_user_id(
    tmp_path: Path, team: str, enterprise: str | None, user: str, person: str | None
):
    directory = write_policy(tmp_path)
    people = tmp_path / "people.yaml"
    people.write_text(
        people.read_text()
        + "  erin: {name: Erin, slack: [{team: T0GRID, enterprise: E0GRID, user: W0ERIN}]}\n"
    )
    match = directory.get_policy().organisation.find_by_slack(
        team=team, enterprise=enterprise, user=user
    )
    assert (match.id if match else None) == person


def test_starter_policy_is_valid_and_never_overwrites_files(tmp_path: Path):
    from bot.policy.loader import load_policy
    from bot.policy.starter import write_starter_policy

    write_starter_policy(tmp_path)
    assert load_policy(tmp_path).organisation.people
    with pytest.raises(FileExistsError, match="nothing was written"):
        write_starter_policy(tmp_path)


def test_invalid_value_of_a_union_field_is_reported_once(tmp_path: Path):
    directory = write_policy(tmp_path)
    freeze = "freezes:\n  - {name: x, from: soon, until: '2027-01-04 08:00'}\n"
    (tmp_path / "freezes.yaml").write_text(freeze)
    with pytest.raises(NoPolicyError) as broken:
        directory.get_policy()
    assert len(broken.value.problems) == 1
