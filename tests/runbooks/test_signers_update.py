import pytest

from connectors import signed_files
from connectors.signed_files import NOT_ENROLLED, SignedFiles, SignedFilesState
from runbooks import Plan, Refused
from runbooks.signers_update import UpdateSigners
from tests.playground.keys import make_key

RUNBOOK = UpdateSigners.model_validate({"host": "lb1"})
KEYS = {name: make_key().public for name in ("dan", "dora", "olga")}
FLOOR = "floor 1\nhost lb1\nskew 30\ngroup owners {}\nsigned 2 any\nsigned 1 owners\nnever rm\n"


def _make_files(people: str, owners: str) -> SignedFiles:
    signers = signed_files.format_signers((name, KEYS[name]) for name in people.split())
    return SignedFiles(signers, FLOOR.format(owners))


def test_signers_update_names_who_joins_and_who_leaves():
    state = SignedFilesState(_make_files("dan olga", "olga"), _make_files("dora olga", "olga"))
    (step,) = RUNBOOK.plan(state).steps
    assert step.before.startswith("dan signs with ssh-ed25519 SHA256:")
    assert step.after.startswith("dora signs with ssh-ed25519 SHA256:")
    assert step.do == signed_files.write_files(state.wanted)
    assert step.undo == signed_files.write_files(state.current)
    assert "s dora namespaces=" in str(step.do)
    assert "f never rm" in str(step.do)


def test_signers_update_plans_nothing_where_the_host_is_as_the_policy():
    files = _make_files("dora olga", "olga")
    assert RUNBOOK.plan(SignedFilesState(files, files)) == Plan(
        "dora, olga can sign, as the policy says"
    )


@pytest.mark.parametrize(
    ("people", "owners", "why"),
    [
        ("olga", "olga", "the signatures of 2 people, and olga could sign"),
        ("dan dora", "olga", "1 of the group owners, and no one could sign"),
    ],
)
def test_signers_update_refuses_to_lock_everyone_out(people: str, owners: str, why: str):
    state = SignedFilesState(_make_files("dora olga", "olga"), _make_files(people, owners))
    with pytest.raises(Refused, match=why):
        RUNBOOK.plan(state)


def test_signers_update_refuses_a_host_that_is_not_enrolled():
    with pytest.raises(Refused, match="lb1 has no `signed: true`"):
        RUNBOOK.plan(NOT_ENROLLED)


def test_floor_keeps_what_root_wrote_and_takes_people_of_the_policy():
    floor = _make_files("dora olga", "olga").floor
    changed = signed_files.replace_people(floor, "adam olga", verifies=True)
    assert changed == floor.replace("group owners olga", "verify-user\ngroup owners adam olga")
    assert signed_files.replace_people(changed, "olga", verifies=False) == floor
    assert signed_files.replace_people("floor 1\n", "olga", verifies=True) == (
        "floor 1\nverify-user\ngroup owners olga\n"
    )
