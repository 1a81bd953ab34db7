"""`keyturn offline sign` and `run` refuse what no one should sign, and what is not signed."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.features.offline.plan_file import OFFLINE, PlanFile, parse_plan_file
from bot.model.errors import InvalidRequestError
from bot.model.plan import ResolvedPlan
from bot.model.times import HOUR, SECOND
from bot.policy import Policy
from connectors.run_signed import SignedTexts
from tests.bot.signing import plans
from tests.bot.signing.ssh_key import SshKey
from tests.cli_process import Typed, run_command
from tests.policies import give_signing_key, write_policy


def make_plan(**changed: Any) -> ResolvedPlan:
    return plans.make_plan(**{"installation": OFFLINE, **changed})


def make_file(plan: ResolvedPlan, *signatures: str) -> PlanFile:
    return PlanFile(SignedTexts(plan.document, plan.sections[0].text, signatures))


class Desk:
    """A directory with a policy, the keys of people, and a plan."""

    def __init__(self, place: Path) -> None:
        self.place, self.file = place, place / "plan.txt"
        self.policy = write_policy(place / "policy")
        self.keys = {name: SshKey.create(place, name=name) for name in ("olga", "adam", "eve")}
        for name in ("olga", "adam"):
            give_signing_key(self.policy.path, name, self.keys[name].line)
        self.set_enrolled("lb1")

    def set_enrolled(self, *names: str) -> None:
        file = self.policy.path / "inventory.yaml"
        inventory = YAML().load(file)
        for name, host in inventory["hosts"].items():
            host["signed"] = name in names
        with file.open("w") as written:
            YAML().dump(inventory, written)

    def read_policy(self) -> Policy:
        return self.policy.get_policy()

    def write(self, plan: ResolvedPlan) -> None:
        self.file.write_text(make_file(plan).format())

    def sign(self, person: str, key: str = "", *more: str) -> Typed:
        words = ["sign", "--as", person, "--key", str(self.keys[key or person].file), *more]
        return self.type(*words, "--yes")

    def type(self, command: str, *more: str) -> Typed:
        policy = {"KEYTURN_POLICY": str(self.policy.path)}
        words = ["offline", command, str(self.file), *more]
        return run_command(words, env=os.environ | policy)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_file_holds_who_signed_in_one_text(desk: Desk):
    desk.write(plan := make_plan())
    assert desk.sign("olga").returncode == 0
    done = desk.sign("adam")
    assert "Signed by olga, adam" in done.stdout
    assert "Unblock 203.0.113.9" in done.stderr
    found = parse_plan_file(desk.file.read_text().replace("\n", "\r\n"))
    assert found.plan == plan
    assert found.texts.signatures == tuple(
        desk.keys[name].sign(plan.document.encode()) for name in ("olga", "adam")
    )
    assert parse_plan_file(replace(found, events=("x", "y")).format()).events == ["x", "y"]


def test_json_says_who_signed_and_why_not(desk: Desk):
    desk.write(plan := make_plan())
    told = json.loads(desk.sign("olga", "", "--json").stdout)
    assert (told["signers"], told["digest"], told["host"]) == (["olga"], plan.digest, "lb1")
    refused = json.loads(desk.sign("olga", "", "--json").stderr.splitlines()[-1])
    assert (refused["status"], "signed this plan already" in refused["error"]) == (4, True)


def test_plan_is_signed_once_by_its_own_person_in_time(desk: Desk):
    desk.write(make_plan())
    wrong_key = desk.sign("olga", "adam")
    assert (wrong_key.returncode, "of the key SHA256:" in wrong_key.stderr) == (2, True)
    unknown = desk.sign("mallory", "eve")
    assert (unknown.returncode, "unknown person mallory" in unknown.stderr) == (3, True)
    assert desk.sign("olga").returncode == 0
    twice = desk.sign("olga")
    assert (twice.returncode, "olga has signed this plan already" in twice.stderr) == (4, True)
    later = make_plan()
    desk.write(replace(later, not_before=later.not_before + HOUR))
    early = desk.sign("olga")
    assert (early.returncode, "and the clock of this machine says" in early.stderr) == (4, True)
    desk.write(make_plan(expires_at=SECOND))
    late = desk.sign("olga")
    by_passkey = desk.sign("olga", "", "--passkey", "a.b.c")
    for refused in (late, by_passkey):
        assert (refused.returncode, "the plan expired at 1970-01-01" in refused.stderr) == (
            4,
            True,
        )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("s step Unblock", "s step Block", "not the text of"),
        ("s do true", "s do false", "not the text of"),
        ("d reason", "d run 1\nd reason", "not the text of"),
        ("d run 0", "d run 1", "is no offline plan"),
        ("installation offline", "installation x", "no offline plan"),
        ("keyturn-offline 1", "keyturn-offline 2", "its first line"),
        ("d reason", "x reason", "is no line of a signed plan"),
        ("s ", "d ", "it is not complete"),
    ],
)
def test_file_that_was_altered_is_not_signed(desk: Desk, old: str, new: str, words: str):
    desk.file.write_text(altered := make_file(make_plan()).format().replace(old, new))
    done = desk.sign("olga")
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert desk.file.read_text() == altered


def test_file_that_is_no_plan_is_refused(desk: Desk):
    whole = make_file(make_plan()).format()
    for content, words in (
        (whole.encode("utf-16"), "is no text: this is no offline plan"),
        (whole.encode() + b"\xff", "is no text: this is no offline plan"),
        (whole[:-20].encode(), "not the text of"),
        (whole[:200].encode(), "it is not complete"),
        (b"", "its first line is not"),
        (whole.encode() + b"e x\n" * 2_000_000, "it is larger than 4 MiB"),
    ):
        desk.file.write_bytes(content)
        done = desk.sign("olga")
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
        assert desk.file.read_bytes() == content
    desk.file.unlink()
    assert desk.sign("olga").returncode == 1


def test_run_of_a_service_is_no_offline_plan():
    with pytest.raises(InvalidRequestError, match="no offline plan"):
        _ = make_file(make_plan(run=12, installation="keyturn.example.com")).plan


def test_host_that_is_not_enrolled_is_not_changed_offline(desk: Desk):
    desk.write(make_plan())
    desk.set_enrolled()
    key = ("--ssh-key", str(desk.keys["olga"].file))
    done = desk.type("run", "--as", "olga", *key)
    assert (done.returncode, "lb1 is not enrolled" in done.stderr) == (4, True)
    desk.file.unlink()
    words = ["offline", "plan", "abusers clear lb1 203.0.113.9", "--as", "olga", *key]
    env = os.environ | {"KEYTURN_POLICY": str(desk.policy.path)}
    done = run_command([*words, "-o", str(desk.file)], env=env)
    assert (done.returncode, "lb1 is not enrolled" in done.stderr) == (4, True)
    assert not desk.file.exists()


def test_signature_of_a_key_that_no_one_has_counts_for_no_one(desk: Desk):
    plan = make_plan()
    forged = desk.keys["eve"].sign(plan.document.encode())
    desk.file.write_text(make_file(plan, forged).format())
    key = ("--ssh-key", str(desk.keys["olga"].file))
    done = desk.type("run", "--as", "olga", *key)
    assert done.returncode == 2
    assert "people.yaml names for no one" in done.stderr
