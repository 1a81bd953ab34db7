"""Loading a policy directory as of one moment; errors name file and line."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.policy import NoPolicyError, PolicyDirectory, loader, starter
from bot.policy.cedar import split_statements
from bot.policy.loader import load_policy
from connectors.permissions import list_trusted_owners
from tests.policies import get_starter_rules, write_policy

ASK = 'permit (principal, action == Action::"request", resource)'


@pytest.mark.parametrize(
    ("file", "was", "instead", "says"),
    [
        ("people.yaml", "roles: [administrator], slack: [{team: T0KEYTURN, user: U0ADAM}]",
         "roles: administrator", "people.yaml, line 4: people.adam.roles: must be a list"),
        ("people.yaml", "Stan Storage", "", "people.yaml, line 5: people.stan.name"),
        ("people.yaml", "U0STAN", "U0ADAM",
         "people.yaml, line 5: Slack account U0ADAM may belong to both adam and stan"),
        ("areas.yaml", "[stan]", "[stna]",
         "areas.yaml, line 4: area storage: owner stna is not in people.yaml"),
        ("areas.yaml", "title: storage,", "tilte: storage,",
         "areas.yaml, line 4: areas.storage.title: is missing"),
        ("inventory.yaml", "area: web", "area: wbe",
         "inventory.yaml, line 8: host web1: area wbe is not in areas.yaml, which has edge"),
        ("inventory.yaml", "area: storage", "area: storage, jump: lb7",
         "inventory.yaml, line 9: nas1: jump lb7 is not in the inventory"),
        ("inventory.yaml", "user: keyturn", "user: Keyturn!", "inventory.yaml, line 3: hosts.lb1"),
        ("inventory.yaml", "area: web", "area: web, zone: Mars/Olympus",
         "unknown time zone 'Mars/Olympus': use one such as Europe/Paris"),
        ("policy.cedar", '(principal in Role::"developer"', '(principal in Role::"devloper"',
         'role "devloper" is not in people.yaml, which has administrator, developer: correct'),
        ("policy.cedar", '\n@from("owners")', '\n@from("role:develper")',
         'role "develper" is not'),
        ("policy.cedar", "// Annotations", f'\n@id("x") {ASK} when {{ context.frozn }};\n//',
         'rule "x": attribute `frozn`'),
        ("people.yaml", "user: U0STAN", "user: stan",
         "people.yaml, line 5: people.stan.slack.0.user: must be a user's id, such as U0123ABCD"),
        ("areas.yaml", "[stan]", "[]",
         "areas.yaml, line 4: areas.storage.owners: must name at least one"),
        ("people.yaml", "  stan:", "\tstan:", "line 5: contains a tab: indent with spaces"),
        ("people.yaml", "  stan:", "  adam:", 'line 5: duplicate key "adam": remove one'),
        ("policy.cedar", 'context.kind == "check"', 'context.kind == "chek"',
         'context.kind is never "chek": use one of check, change'),
        ("policy.cedar", 'context.kind == "check"', '["sat", "san"].contains(context.weekday)',
         'context.weekday is never "san": use one of mon, tue'),
    ],
)  # fmt: skip
def test_policy_errors_name_file_and_line(
    tmp_path: Path, file: str, was: str, instead: str, says: str
):
    directory = write_policy(tmp_path)
    assert directory.get_policy()
    path = tmp_path / file
    before = path.read_text()
    assert was in before
    path.write_text(before.replace(was, instead, 1))
    with pytest.raises(NoPolicyError) as broken:
        directory.get_policy()
    assert says in str(broken.value)
    assert f"{file}, line " in str(broken.value)


@pytest.mark.parametrize(
    ("notes", "says"),
    [
        ('@from("owners")', '@from needs a number of approvals: add @approvals("1")'),
        ('@approvals("1") @from("owners & role:administrator")',
         '@approvals("1") must be 2 or more'),
        ('@approvals("1") @from("owners") @reason("please")', 'must be @reason("required")'),
        ('@approvals("1") @from("owners") @remind("soon")', "must be a duration such as 30m"),
        ('@approvals("1") @from("owners") @escalate("boss")', '@escalate("boss") must be'),
        ('@remind("30m")', "@remind has no effect without @approvals"),
        ('@hosts("0")', '@hosts("0") must be a number from 1'),
        ('@stepup("no")', '@stepup("no") takes no value: write @stepup, or remove it'),
        ('@overrides("false")', '@overrides("false") takes no value'),
        ("@description", '@description is empty: write @description("…"), or remove it'),
    ],
)  # fmt: skip
def test_invalid_rule_annotation_is_rejected_with_its_line(tmp_path: Path, notes: str, says: str):
    rules = f'// one\n// two\n@id("x")\n{notes}\n{ASK};\n'
    with pytest.raises(NoPolicyError) as broken:
        write_policy(tmp_path, rules=rules).get_policy()
    assert str(broken.value).startswith("policy.cedar, line ")
    assert 'rule "x": ' in str(broken.value)
    assert says in str(broken.value)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (f'@approvals("1") @from("owners") {ASK.replace("permit", "forbid")};', "on a forbid"),
        (f"@stepup {ASK.replace('request', 'approve')};", "belongs on a permit to request"),
    ],
)
def test_rule_annotation_on_the_wrong_kind_of_rule_is_rejected(
    tmp_path: Path, rule: str, says: str
):
    with pytest.raises(NoPolicyError, match=says):
        write_policy(tmp_path, rules=rule).get_policy()


@pytest.mark.parametrize("note", ["@id", '@id("")', '@id(" ")'])
def test_empty_rule_id_is_rejected_with_its_line(tmp_path: Path, note: str):
    with pytest.raises(NoPolicyError, match=r"line 2.*@id is empty"):
        write_policy(tmp_path, rules=f"// one\n{note}\n{ASK};\n").get_policy()


def test_duplicate_rule_id_is_rejected_with_its_line(tmp_path: Path):
    rules = f'@id("x")\n{ASK};\n\n// Again.\n@id("x")\n{ASK.replace("permit", "forbid")};\n'
    with pytest.raises(
        NoPolicyError, match='line 5: rule "x": the rule on line 1 has the same @id'
    ):
        write_policy(tmp_path, rules=rules).get_policy()
    assert write_policy(tmp_path, rules=rules.replace("x", "y", 1)).get_policy()


def test_rules_without_an_id_are_distinguished_by_their_position(tmp_path: Path):
    assert write_policy(tmp_path, rules=f"{ASK};\n{ASK};\n").get_policy()


def test_role_without_people_may_be_declared_in_people_yaml(tmp_path: Path):
    rules = get_starter_rules().replace('@from("owners")', '@from("role:security")')
    directory = write_policy(tmp_path, rules=rules)
    assert "no one has the role" in str(directory.get_policy().warnings[0])
    people = tmp_path / "people.yaml"
    people.write_text(people.read_text() + "roles: [security]\n")
    assert directory.get_policy().warnings == []


def test_policy_statement_begins_at_the_line_of_its_first_word():
    text = (
        '// a; b\n\n@id("x; y") // more;\npermit (principal, action, resource);\n\n  forbid (p\n'
    )
    assert [(one.line, one.text.split("(")[0]) for one in split_statements(text)] == [
        (3, "@id"),
        (6, "forbid "),
    ]


class _Editor:
    """Somebody who edits the second of two files while the first is waited for."""

    def __init__(self, edit: Callable[[], None]) -> None:
        self._edits = [edit]

    def __call__(self, _seconds: float) -> None:
        while self._edits:
            self._edits.pop()()


def test_policy_edit_of_two_files_is_loaded_only_when_complete(tmp_path: Path):
    write_policy(tmp_path)
    people, areas = tmp_path / "people.yaml", tmp_path / "areas.yaml"
    old_people, old_areas = people.read_text(), areas.read_text()

    def second() -> None:
        areas.write_text(old_areas.replace("[stan]", "[sara]"))

    directory = PolicyDirectory(tmp_path, sleep=_Editor(second))
    assert directory.get_policy()
    people.write_text(old_people.replace("stan:", "sara:"))
    assert directory.get_policy().organisation.areas["storage"].owners == ["sara"]


def test_without_waiting_a_half_finished_policy_edit_is_loaded(tmp_path: Path):
    write_policy(tmp_path)
    people = tmp_path / "people.yaml"
    directory = PolicyDirectory(tmp_path, sleep=lambda _seconds: None)
    assert directory.get_policy()
    people.write_text(people.read_text().replace("stan:", "sara:"))
    (warning,) = directory.get_policy().warnings
    assert "owner stan is not in people.yaml" in str(warning)


def test_policy_stays_in_force_without_a_person_who_was_the_last_of_a_role(tmp_path: Path):
    """Otherwise everything is refused because one person has left."""
    write_policy(tmp_path, rules=get_starter_rules() + _SECURITY)
    people, areas = tmp_path / "people.yaml", tmp_path / "areas.yaml"
    sara = "  sara: {name: Sara Security, roles: [security]}\n"
    people.write_text(people.read_text() + sara)
    areas.write_text(areas.read_text().replace("[stan]", "[stan, sara]"))
    directory = PolicyDirectory(tmp_path)
    assert directory.get_policy().warnings == []
    people.write_text(people.read_text().replace(sara, ""))
    policy = directory.get_policy()
    assert policy.find_person("sara") is None
    assert list(policy.organisation.areas["storage"].owners) == ["stan"]
    assert [str(one).partition(": ")[2] for one in policy.warnings] == [
        "area storage: owner sara is not in people.yaml: remove the name",
        'rule "watch": no one has the role "security": correct it, give it to a person in '
        "people.yaml, or list it under roles: there",
        'rule "not security": no one has the role "security": correct it, give it to a person in '
        "people.yaml, or list it under roles: there",
    ]


_SECURITY = """
@id("watch") @description("Security stops everything.")
permit (principal in Role::"security", action == Action::"stop", resource);
@id("not security") @description("Security requests nothing.")
forbid (principal in Role::"security", action == Action::"request", resource);
"""


def test_unknown_role_in_a_forbid_is_an_error_at_the_start(tmp_path: Path):
    """It would forbid nothing, and nothing says whether it is mistyped."""
    write_policy(tmp_path, rules=get_starter_rules() + _SECURITY)
    with pytest.raises(NoPolicyError, match='role "security" is not in people'):
        load_policy(tmp_path)
    people = tmp_path / "people.yaml"
    people.write_text(f"roles: [security]\n{people.read_text()}")
    assert load_policy(tmp_path).warnings == []


def test_invalid_edit_that_removes_a_person_gives_nobody_a_right(tmp_path: Path):
    write_policy(tmp_path)
    directory = PolicyDirectory(tmp_path)
    assert directory.get_policy().find_person("stan")
    people = tmp_path / "people.yaml"
    lines = [line for line in people.read_text().splitlines() if "stan:" not in line]
    people.write_text("\n".join([*lines, "  olga: {}", ""]))
    with pytest.raises(NoPolicyError, match="duplicate key"):
        directory.get_policy()


def test_policy_files_that_keep_changing_are_rejected(tmp_path: Path):
    write_policy(tmp_path)
    people = tmp_path / "people.yaml"

    def again(_seconds: float) -> None:
        people.write_text(people.read_text() + "# more\n")

    directory = PolicyDirectory(tmp_path, sleep=again)
    assert directory.get_policy()
    again(0)
    with pytest.raises(NoPolicyError, match="keep changing"):
        directory.get_policy()


def test_policy_edit_with_the_same_size_and_mtime_is_loaded(tmp_path: Path):
    import os

    directory = write_policy(tmp_path)
    assert directory.get_policy().organisation.areas["edge"].owners == ["olga", "adam"]
    areas = tmp_path / "areas.yaml"
    stat = areas.stat()
    areas.write_text(areas.read_text().replace("[olga, adam]", "[adam, olga]"))
    os.utime(areas, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert directory.get_policy().organisation.areas["edge"].owners == ["adam", "olga"]


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("{team: T0A, user: U0X}", "{team: T0A, user: U0X}", True),
        ("{team: T0A, user: U0X}", "{team: T0B, user: U0X}", False),
        ("{team: T0A, user: U0X}", "{team: T0A, user: U0Y}", False),
        ("{team: T0A, enterprise: E0E, user: W0X}", "{team: T0B, enterprise: E0E, user: W0X}",
         True),
        ("{team: T0A, enterprise: E0E, user: W0X}", "{team: T0B, enterprise: E0F, user: W0X}",
         False),
        ("{team: T0A, enterprise: E0E, user: W0X}", "{team: T0B, user: W0X}", True),
    ],
)  # fmt: skip
def test_slack_account_of_two_people_is_rejected_also_on_enterprise_grid(
    tmp_path: Path, one: str, other: str, clash: bool
):
    directory = write_policy(tmp_path)
    people = tmp_path / "people.yaml"
    people.write_text(
        people.read_text()
        + f"  mona: {{name: Mona, slack: [{one}]}}\n  mike: {{name: Mike, slack: [{other}]}}\n"
    )
    if not clash:
        assert directory.get_policy()
        return
    with pytest.raises(NoPolicyError, match="may belong to both mona and mike"):
        directory.get_policy()


@pytest.mark.parametrize("name", ["policy.cedar", "people.yaml", "inventory.yaml", "."])
def test_policy_that_others_can_write_is_rejected(tmp_path: Path, name: str):
    directory = write_policy(tmp_path)
    place = tmp_path / name
    mode = place.stat().st_mode & 0o777
    place.chmod(mode | 0o020)
    with pytest.raises(NoPolicyError, match="is writable by others: chmod go-w it"):
        directory.get_policy()
    place.chmod(mode)
    assert directory.get_policy()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_policy_file_of_another_unix_user_is_rejected_when_owners_are_checked(tmp_path: Path):
    write_policy(tmp_path)
    os.chown(tmp_path / "people.yaml", 65534, 65534)
    with pytest.raises(NoPolicyError, match="chown it"):
        PolicyDirectory(tmp_path, owners=list_trusted_owners()).get_policy()
    assert PolicyDirectory(tmp_path).get_policy()


def test_policy_file_behind_a_link_from_a_directory_that_others_write_is_rejected(
    tmp_path: Path,
):
    write_policy(tmp_path / "policy")
    (tmp_path / "shared").mkdir()
    (tmp_path / "policy" / "people.yaml").rename(tmp_path / "shared" / "people.yaml")
    (tmp_path / "policy" / "people.yaml").symlink_to(tmp_path / "shared" / "people.yaml")
    assert load_policy(tmp_path / "policy")
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(NoPolicyError, match="shared is writable by others: chmod go-w it"):
        load_policy(tmp_path / "policy")


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o077])
def test_starter_policy_is_not_writable_by_others(tmp_path: Path, mask: int):
    before = os.umask(mask)
    try:
        starter.write_starter_policy(tmp_path / "policy")
    finally:
        os.umask(before)
    assert PolicyDirectory(tmp_path / "policy").get_policy()


def test_requests_go_on_with_the_old_policy_until_the_new_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loader, "MAX_WAIT_SECONDS", 0.5)
    write_policy(tmp_path)
    finished = threading.Event()
    directory = PolicyDirectory(tmp_path, sleep=lambda _seconds: wait_for(finished))
    old = directory.get_policy()
    people = tmp_path / "people.yaml"
    people.write_text(people.read_text() + "  gus: {name: Gus Guest}\n")
    # The files are still being read, and neither the first nor the next request waits for it.
    assert [directory.get_policy() for _ in range(50)] == [old] * 50
    finished.set()
    while (new := directory.get_policy()) is old:
        pass
    assert new.find_person("gus") is not None


def wait_for(event: threading.Event) -> None:
    assert event.wait(15)
