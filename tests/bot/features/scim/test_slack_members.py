"""Proposals from Slack's member list. The columns are those of exports that others published."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bot.features.scim.slack_members import format_proposals, parse_members, propose_people
from bot.model.errors import InvalidRequestError
from tests.bot.features.scim.accounts import Provider
from tests.bot.harness import Harness

HEAD = (
    "username,email,status,billing-active,has-2fa,has-sso,userid,fullname,displayname,"
    "expiration-timestamp\n"
)


def propose(harness: Harness, rows: str, team: str = "T0KEYTURN") -> str:
    members = parse_members(HEAD + rows)
    policy = harness.policies.get_policy()
    return format_proposals([*propose_people(policy, members, team=team)])


def test_members_are_proposed_by_address_and_nothing_is_changed(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    file = tmp_path / "policy" / "people.yaml"
    before = file.read_text()
    ines = provider.add("ines@example.com")
    text = propose(
        company,
        "ines,Ines@example.com,Member,1,1,0,U0INES,Ines Example,ines,\n"
        "dora,dora@example.com,Member,1,1,0,U0DORA2,Dora Developer,dora,\n"
        "olga,other@example.com,Admin,1,1,0,U0OLGA,Olga Owner,olga,\n"
        'new,new.person@example.com,Primary Owner,1,1,0,U0NEW,"New ""N"" Person",new,\n'
        "gone,gone@example.com,Deactivated,0,0,0,U0GONE,Gone,gone,\n"
        "guest,guest@example.com,Single-Channel Guest,1,0,0,U0GUEST,Guest,guest,\n"
        "bot,bot@example.com,Bot,0,0,0,U0BOT,Bot,bot,\n",
    )
    parsed = YAML(typ="safe").load(text)["people"]
    assert parsed == {
        "ines": {
            "name": "Ines Example",
            "email": "Ines@example.com",
            "slack": [{"team": "T0KEYTURN", "user": "U0INES"}],
            "provisioned": ines.user_id,
        },
        "new-person": {
            "name": 'New "N" Person',
            "email": "new.person@example.com",
            "slack": [{"team": "T0KEYTURN", "user": "U0NEW"}],
        },
    }
    assert '# dora, by the address "dora@example.com": add slack: [{team: T0KEYTURN' in text
    # Whose account people.yaml has is not proposed, whatever the address.
    assert "U0OLGA" not in text
    assert file.read_text() == before
    people = text.split("people:\n")[1].replace("ines:", "ines-2:", 1)
    file.write_text(before.replace("people:\n", f"people:\n{people}"))
    assert company.policies.get_policy().find_person("ines-2")


def test_hostile_names_stay_text(company: Harness) -> None:
    text = propose(
        company,
        'x,"a@example.com",Member,1,1,0,U0A,"x"": {roles: [administrator]}\n    roles: [a]",x,\n'
        "y,b@example.com,Member,1,1,0,U0B,# no\u202e,y,\n"
        "z,c@example.com,Member,1,1,0,not-an-id,z,z,\n",
    )
    parsed = YAML(typ="safe").load(text)["people"]
    assert sorted(parsed) == ["a", "b"]
    assert all("roles" not in one for one in parsed.values())


def test_another_file_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no column email"):
        parse_members("a,b\n1,2\n")
