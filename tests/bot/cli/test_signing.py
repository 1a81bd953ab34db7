"""`keyturn sign`, against a real service and with a key of ssh-keygen."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from bot.audit import change_log, events
from tests.bot.cli.test_runs import CliService
from tests.bot.signing.ssh_key import SshKey
from tests.bot.web import sample_runs
from tests.playground.service import Service
from tests.policies import get_signed_rules, give_signing_key, write_policy

_DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def signing(tmp_path: Path) -> Generator[CliService]:
    """A service in which requesters and owners sign."""
    write_policy(tmp_path / "policy", rules=get_signed_rules("both"))
    for person in ("dora", "olga"):
        line = SshKey.create(tmp_path, name=person).line
        give_signing_key(tmp_path / "policy", person, line)
    with Service(tmp_path, slack="") as service:
        yield CliService(service, tmp_path)


def test_requester_and_owner_sign_what_their_machine_shows(signing: CliService, tmp_path: Path):
    keyturn = signing.service.keyturn
    version = keyturn.policies.get_policy().version
    with keyturn.database.transaction() as tx:
        run = sample_runs.add_planned_run(tx, policy_version=version)
    submitted = signing.type("dora", "submit", str(run.id), run.digest, "--wait", "0")
    assert "dora has to sign it first" in submitted.stdout
    assert f"keyturn sign {run.id}" in submitted.stdout
    early = signing.type("olga", "sign", str(run.id), "--yes")
    assert (early.exit_code, early.stderr) == (
        4,
        f"keyturn: you cannot sign run {run.id} now: keyturn run {run.id}\n",
    )

    def sign(person: str) -> str:
        key = str(tmp_path / person)
        done = signing.type(person, "sign", str(run.id), "--key", key, "--yes", "--wait", "0")
        # There is no host: once it is approved, the run may have failed before it is shown.
        assert done.exit_code in {0, 1, 5}, done.output
        return done.stderr

    shown = sign("dora")
    assert "requested by dora" in shown
    assert "socat" in shown
    assert "undo  " in shown
    sign("olga")
    with keyturn.database.reading() as tx:
        kinds = (events.RequestSigned.kind, events.Approved.kind)
        entries = change_log.list_entries_of_run(tx, run.id, kinds)
    assert [entry.person for entry in entries] == ["dora", "olga"]


def _read_blocks(heading: str) -> list[str]:
    """Return the commands of a section of the page, a text for each block."""
    page = (_DOCS / "signed-plans.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```\n(.*?)```", section, re.S)


def test_stranger_verifies_who_signed_with_the_commands_of_the_page(
    signing: CliService, tmp_path: Path
):
    keyturn = signing.service.keyturn
    version = keyturn.policies.get_policy().version
    with keyturn.database.transaction() as tx:
        run = sample_runs.add_planned_run(tx, policy_version=version)
    number = str(run.id)
    signing.type("dora", "submit", number, run.digest, "--wait", "0")
    for person in ("dora", "olga"):
        key = str(tmp_path / person)
        signing.type(person, "sign", number, "--key", key, "--yes", "--wait", "0")
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    for name in ("verify_changelog.py", "verify_signatures.py"):
        shutil.copy(_DOCS / name, stranger)
    blocks = _read_blocks("Verify who signed")
    assert [block.count("ssh-keygen") for block in blocks] == [0, 1]
    places = {"KEYTURN_DATA": f"{tmp_path}/var", "KEYTURN_POLICY": f"{tmp_path}/policy"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(blocks).replace("12", number)],
        cwd=stranger,
        env={**os.environ, **places, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 signatures, 0 not valid" in done.stdout
    assert f"{run.digest}  plan" in done.stdout
    assert 'Good "keyturn-plan" signature for olga' in done.stdout


def test_plan_is_not_signed_unseen(signing: CliService):
    keyturn = signing.service.keyturn
    with keyturn.database.transaction() as tx:
        run = sample_runs.add_pending_run(tx, sample_runs.add_requested_run(tx))
    done = signing.type("dora", "sign", str(run.id))
    assert (done.exit_code, "read the plan in a terminal" in done.stderr) == (4, True)


def test_signers_command_prints_a_file_for_ssh_keygen(signing: CliService, tmp_path: Path):
    done = signing.type("dora", "policy", "signers", str(tmp_path / "policy"))
    assert done.exit_code == 0, done.output
    keys = {name: SshKey(tmp_path / name).line for name in ("dora", "olga")}
    assert done.stdout == "".join(
        f'{name} namespaces="keyturn-plan" {line}\n' for name, line in keys.items()
    )


def test_signers_command_lists_fingerprints_and_who_lacks_a_key(
    signing: CliService, tmp_path: Path
):
    policy = str(tmp_path / "policy")
    table = signing.type("dora", "policy", "signers", "--table", policy)
    assert table.exit_code == 0, table.output
    rows = [" ".join(line.split()) for line in table.stdout.splitlines()]
    assert rows[0] == "PERSON KIND FINGERPRINT COMMENT SIGNS"
    fingerprint = SshKey(tmp_path / "olga").fingerprint
    assert any(row.startswith(f"olga ssh-ed25519 {fingerprint} approvals of") for row in rows)
    assert any(row.startswith("adam none yet approvals of") for row in rows)
    listed = signing.type("dora", "policy", "signers", policy, "--json")
    people = {one["person"]: one for one in json.loads(listed.stdout)}
    [key] = people["olga"]["keys"]
    assert (key["fingerprint"], people["adam"]["keys"]) == (fingerprint, [])
