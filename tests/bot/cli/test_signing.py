"""`keyturn sign`, against a real service and with a key of ssh-keygen."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.audit import change_log, events
from tests.bot.cli.test_runs import CliService
from tests.bot.signing.plans import make_plan
from tests.bot.signing.ssh_key import SshKey
from tests.bot.web import sample_runs
from tests.playground.service import Service
from tests.policies import get_signed_rules, give_signing_key, write_policy

_DOCUMENT = "/api/v1/runs/12/document"
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
    waiting = signing.type("dora", "pending").stdout
    assert f"keyturn sign {run.id}, or keyturn withdraw {run.id}" in waiting
    assert signing.type("olga", "pending").stderr == "Nothing pending.\n"
    reason = "Dora Developer has to sign the plan first."
    assert reason in signing.type("olga", "run", str(run.id)).stdout
    assert signing.read_json("olga", "run", str(run.id))["approve_refusal"] == reason
    assert signing.read_json("dora", "run", str(run.id))["approve_refusal"] == ""
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


class FalseService:
    """A service that returns a plan as it is told to, and counts what it is sent."""

    def __init__(self, shown: bytes) -> None:
        self.posted = 0
        answers = {"/api/v1/runs/12": b'{"actions": ["approve"]}', _DOCUMENT: shown}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = answers[self.path]
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                outer.posted += 1

            def log_message(self, *_: object) -> None: ...  # pyright: ignore[reportIncompatibleMethodOverride]

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def type(self, *words: str) -> Result:
        """Type a command at it."""
        thread = Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{self.server.server_port}"
            return CliRunner(env={"KEYTURN_URL": url, "KEYTURN_TOKEN": "x"}).invoke(main, words)
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


def _show(document: str | None = None, section: str | None = None, **changed: Any) -> bytes:
    """Return a plan as the service shows it; document, section: instead of its own."""
    plan = make_plan(run=12, installation="keyturn.example.com", **changed)
    texts = document or plan.document, section or plan.sections[0].text
    return json.dumps({"document": texts[0], "sections": [{"text": texts[1]}]}).encode()


_PLAN = make_plan(run=12, installation="keyturn.example.com")
_DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("shown", "status", "sentence"),
    [
        (_show(), 0, ""),
        (_show(_PLAN.document[:-60]), 1, "do not sign run 12: "),
        (_show(_PLAN.document, _PLAN.sections[0].text[:-9]), 1, "do not sign run 12: "),
        (
            _show(_PLAN.document.replace("a customer", "a\u202ecustomer")),
            1,
            "do not sign run 12: ",
        ),
        (_show(_PLAN.document.replace("a customer", "a\x1bcustomer")), 1, "do not sign run 12: "),
        (_show(reason="x" * 4_200_000), 1, "do not sign run 12: its plan is larger than 4 MiB"),
        (b"{}", 1, "do not sign run 12: the service returned no plan"),
        (b'{"document": 7, "sections": []}', 1, "the service returned no plan"),
        (b'{"document": "\xff\xfe"}', 1, ""),
        (_show()[:-20], 1, ""),
        (_show().replace(b"run 12", b"run 13"), 1, "do not sign: this is the plan of run 13"),
        (_show(expires_at=_DAY), 4, "the plan expired at 1970-01-02 00:00"),
        (
            _show(not_before=_PLAN.not_before + _DAY, expires_at=_PLAN.expires_at + _DAY),
            4,
            "and the clock of this machine says",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_plan_that_is_not_as_it_should_be_is_not_signed(
    tmp_path: Path, shown: bytes, status: int, sentence: str
):
    key = SshKey.create(tmp_path, name="olga")
    service = FalseService(shown)
    done = service.type("sign", "12", "--key", str(key.file), "--yes", "--wait", "0")
    if status:
        assert (done.exit_code, service.posted) == (status, 0), done.output
        assert sentence in done.stderr
        assert (done.stderr.count("\n"), done.stderr[:9]) == (1, "keyturn: "), done.stderr
    else:
        assert service.posted == 1


@pytest.mark.parametrize("words", [("--key", "/nowhere/key"), ("--key", "public")])
def test_nothing_is_sent_without_a_signature(
    tmp_path: Path, words: tuple[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "public").write_text("ssh-ed25519 AAAA")
    service = FalseService(_show())
    done = service.type("sign", "12", *words, "--yes")
    assert (done.exit_code, service.posted) == (1, 0)
    assert "ssh-keygen made no signature; nothing was sent" in done.stderr


def test_plan_that_is_signed_already_or_has_ended_is_not_signed(
    signing: CliService, tmp_path: Path
):
    keyturn = signing.service.keyturn
    version = keyturn.policies.get_policy().version
    with keyturn.database.transaction() as tx:
        run = sample_runs.add_planned_run(tx, policy_version=version)
    number = str(run.id)
    signing.type("dora", "submit", number, run.digest, "--wait", "0")
    words = ("sign", number, "--key", str(tmp_path / "dora"), "--yes", "--wait", "0")
    assert signing.type("dora", *words).exit_code in {0, 1, 5}
    for _ in range(2):
        again = signing.type("dora", *words)
        refusal = f"keyturn: you cannot sign run {number} now: keyturn run {number}\n"
        assert (again.exit_code, again.stderr) == (4, refusal)
        signing.type("dora", "withdraw", number)
    with keyturn.database.reading() as tx:
        entries = change_log.list_entries_of_run(tx, run.id, (events.RequestSigned.kind,))
    assert len(entries) == 1


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
