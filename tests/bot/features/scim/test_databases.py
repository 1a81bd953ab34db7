"""People of an identity provider in each database that Keyturn supports."""

from pathlib import Path

from bot.db import runs
from bot.model.run import State
from tests.bot.features.scim.accounts import Provider, add_provisioning
from tests.bot.harness import Harness
from tests.toy import SetSwitch


def test_a_person_comes_approves_and_leaves(db_harness: Harness, tmp_path: Path) -> None:
    add_provisioning(tmp_path / "policy")
    provider = Provider(db_harness)
    ines = provider.add("Ines@example.com", name="Ines Example")
    group = provider.add_group("Platform", ines)
    run = db_harness.request(SetSwitch(host="lb1", name="lamp", value="on"), ines.person)
    assert run.state is State.PENDING
    assert provider.set_members(group).members == ()
    assert not db_harness.policies.get_policy().organisation.people[ines.person].roles
    back = provider.set_active(provider.set_active(ines, is_active=False), is_active=True)
    assert db_harness.get_run(run.id).state is State.WITHDRAWN
    provider.delete(back)
    again = provider.add("ines@example.com")
    assert again.person != ines.person
    policy = db_harness.policies.get_policy()
    assert policy.find_person(ines.person) is None
    assert policy.find_person(again.person)
    with db_harness.database.reading() as tx:
        assert not runs.list_decisions(tx, run.id)
