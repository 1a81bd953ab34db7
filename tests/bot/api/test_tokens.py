"""API tokens: storage, scopes, expiry and revocation."""

import hmac
import re
import sqlite3
from pathlib import Path
from typing import Any

import click
import pytest

from bot.audit import change_log
from bot.auth import tokens as auth_tokens
from bot.auth.tokens import CREATE_TOKEN_ADVICE, SCOPES
from bot.db import tables
from bot.db.database import Database
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.redaction import Redactor
from bot.model.run import State
from tests.bot.api.conftest import ApiHarness, create_api_harness
from tests.bot.harness import Harness, open_harness
from tests.policies import get_starter_rules
from tests.row_macs import change_rows
from tests.toy import SetSwitch

LAMP = SetSwitch(host="lb1", name="lamp", value="on")
STEP_UP = get_starter_rules().replace('@approvals("1")', '@approvals("1")\n@stepup', 1)


def test_database_holds_only_a_hash_of_an_api_token(api_harness: ApiHarness, tmp_path: Path):
    whole = api_harness.token("dora", "request")
    assert re.fullmatch(r"kt_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", whole)
    assert len({api_harness.token("dora")[12:] for _ in range(20)}) == 20
    secret = whole.rsplit("_", 1)[0] and whole[12:]
    dump = "\n".join(sqlite3.connect(tmp_path / "keyturn.db").iterdump())
    assert whole[:11] in dump
    assert secret not in dump
    for file in tmp_path.rglob("keyturn.db*"):
        assert secret.encode() not in file.read_bytes()


def test_api_tokens_are_compared_in_constant_time(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    compared: list[tuple[str, str]] = []
    real = hmac.compare_digest

    def watched(one: Any, other: Any) -> bool:
        # Stamps of rows are compared so too, as bytes.
        if isinstance(one, str):
            compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    whole = api_harness.token("dora")
    with api_harness.database.reading() as tx:
        assert auth_tokens.find_token(tx, whole)
        assert auth_tokens.find_token(tx, whole[:-1] + ("A" if whole[-1] != "A" else "B")) is None
        assert auth_tokens.find_token(tx, "kt_00000000_x") is None
    assert len(compared) == 3


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer kt_",
        "Bearer kt_00000000_" + "A" * 43,
        "Bearer " + "x" * 10_000,
        "Basic b2xnYTpvbGdh",
        "Bearer k\u00fc_00000000",
    ],
)
def test_invalid_authorization_header_gets_401(api_harness: ApiHarness, header: str):
    program = api_harness.program()
    answer = program.get("/me", headers=[(b"authorization", header.encode("latin-1"))])
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["type"] == "urn:keyturn:problem:invalid-token"


def test_api_token_in_a_cookie_or_query_is_ignored(api_harness: ApiHarness):
    whole = api_harness.token("olga")
    program = api_harness.program()
    for name in ("token", "keyturn", "Authorization", "__Host-keyturn"):
        program.cookies.set(name, whole)
    assert program.get("/me").status_code == 401
    assert program.get(f"/me?token={whole}&access_token={whole}").status_code == 401


def test_web_session_is_not_accepted_as_an_api_token(api_harness: ApiHarness):
    from bot.auth import sessions

    with api_harness.database.transaction() as tx:
        session = sessions.begin_session(tx, "olga")
    program = api_harness.program()
    assert program.get("/me", headers={"Authorization": f"Bearer {session}"}).status_code == 401


def test_api_token_shows_its_scopes_and_records_its_last_use(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    me = program.get("/me").json()
    assert (me["person"], me["scopes"], me["owns"]) == ("dora", ["request"], [])
    with api_harness.database.reading() as tx:
        [record] = auth_tokens.list_tokens(tx, "dora")
        assert record.last_used_at
        assert auth_tokens.is_use_recorded_recently(record, tx.now)
        made = change_log.get_last_entry_of_kind(tx, "token created")
    assert made is not None
    assert made.facts["token"] == record.prefix == me["token"]


def test_expired_api_token_is_refused(api_harness: ApiHarness):
    program = api_harness.program("dora")
    _age(api_harness.database, expires=1)
    answer = program.get("/me")
    assert (answer.status_code, answer.json()["detail"]) == (
        401,
        f"This token has expired: {CREATE_TOKEN_ADVICE}",
    )


def test_api_token_is_revoked_by_its_person_only_and_then_refused(api_harness: ApiHarness):
    program, service = api_harness.program("dora"), api_harness.harness.service
    with pytest.raises(NotAllowed):
        service.tokens.revoke_token(1, person="olga", source="web")
    assert program.get("/me").status_code == 200
    service.tokens.revoke_token(1, person="dora", source="web")
    assert program.get("/me").json()["detail"] == f"This token was revoked: {CREATE_TOKEN_ADVICE}"
    with pytest.raises(TooLate):
        service.tokens.revoke_token(1, person="dora", source="web")
    assert api_harness.harness.list_entry_kinds()[-2:] == ["token revoked", "token refused"]


def test_ban_revokes_api_tokens_at_once_and_unban_does_not_restore_them(api_harness: ApiHarness):
    program, service = api_harness.program("dora", "request"), api_harness.harness.service
    assert program.get("/me").status_code == 200
    service.ban_person("dora", banned_by="olga", reason="the laptop is stolen")
    assert program.get("/me").status_code == 401
    assert program.post("/runs", json={"request": "toy show lb1"}).status_code == 401
    service.unban_person("dora", unbanned_by="adam", reason="it was found")
    assert program.get("/me").status_code == 401


def test_without_the_ban_check_a_banned_person_uses_their_api_token(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    from bot.db import stops

    program = api_harness.program("dora")
    assert program.get("/me").status_code == 200
    with api_harness.database.transaction() as tx:
        stops.add_ban(tx, "dora", by="", why="")
    assert program.get("/me").status_code == 401

    def nobody(_tx: object) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr(stops, "list_banned_people", nobody)
    assert program.get("/me").status_code == 200


def test_api_token_of_a_person_who_left_the_policy_is_refused_at_once(api_harness: ApiHarness):
    program = api_harness.program("adam")
    areas, people = api_harness.policy / "areas.yaml", api_harness.policy / "people.yaml"
    areas.write_text(areas.read_text().replace(", adam", ""))
    lines = people.read_text().splitlines(keepends=True)
    people.write_text("".join(line for line in lines if " adam:" not in line))
    assert program.get("/me").status_code == 401


def test_approval_that_needs_a_second_factor_is_refused_for_an_api_token(tmp_path: Path):
    with open_harness(tmp_path, rules=STEP_UP) as harness:
        assert _approved_by_token(harness) == 403
        assert harness.get_run(1).state is State.PENDING
        with harness.database.reading() as tx:
            refused = change_log.get_last_entry_of_kind(tx, "approval refused")
        assert refused is not None
        assert "second factor" in refused.facts["reason"]


def test_approval_without_a_stepup_rule_is_accepted_for_an_api_token(tmp_path: Path):
    with open_harness(tmp_path) as harness:
        assert _approved_by_token(harness) == 200


def _approved_by_token(harness: Harness) -> int:
    api_harness = create_api_harness(harness)
    run = harness.request(LAMP)
    with api_harness.program("olga", "approve") as program:
        if program.get(f"/runs/{run.id}").json()["requires_second_factor"]:
            assert harness.get_run(run.id).requirements.requires_second_factor
        return program.post(f"/runs/{run.id}/approve", json={"digest": run.digest}).status_code


def test_policy_rule_can_forbid_changes_by_the_source_api(tmp_path: Path):
    rules = get_starter_rules() + (
        '\nforbid (principal, action == Action::"request", resource) '
        'when { context.source == "api" && context.kind == "change" };\n'
    )
    with (
        open_harness(tmp_path, rules=rules) as harness,
        create_api_harness(harness).program("dora", "request") as dora,
    ):
        run = dora.post("/runs", json={"request": "toy set lb1 lamp on"}).json()
        assert run["run"]["state"] == "refused"
        assert not run["preview"]["allowed"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"person": "nobody"}, "not in the policy"),
        ({"scopes": ["root"]}, "no scope 'root'"),
        ({"scopes": []}, "a token needs a scope"),
        ({"days": 0}, "1 to 366 days"),
        ({"days": 10_000}, "1 to 366 days"),
        ({"name": "x" * 61}, "the limit is 60"),
        ({"name": "\u202egnp.exe"}, "invisible"),
    ],
)
def test_invalid_api_token_is_not_created(harness: Harness, wrong: dict[str, Any], says: str):
    wanted: dict[str, Any] = {"person": "dora", "scopes": ["read"], "days": 1, "source": "cli"}
    with pytest.raises(InvalidRequestError, match=says):
        harness.service.tokens.create_token(**(wanted | wrong))
    assert harness.list_entry_kinds() == []


def test_number_of_api_tokens_per_person_is_limited(harness: Harness):
    for _ in range(50):
        harness.service.tokens.create_token(person="dora", scopes=["read"], days=1, source="cli")
    with pytest.raises(InvalidRequestError, match="revoke unused ones first"):
        harness.service.tokens.create_token(person="dora", scopes=["read"], days=1, source="cli")


def test_api_token_in_a_text_is_redacted(api_harness: ApiHarness):
    whole = api_harness.token("dora")
    assert Redactor().redact_text(f"Bearer {whole}, see?") == "Bearer [secret], see?"
    answer = api_harness.program("dora", "request").post(
        "/runs", json={"request": "toy show lb1", "reason": f"with {whole}"}
    )
    assert answer.status_code == 202
    assert whole not in api_harness.program("dora").get("/log").text


def test_token_command_lists_every_scope(api_harness: ApiHarness):
    from bot.cli import access

    [choice] = [one.type for one in access.create_token.params if one.name == "scopes"]
    assert isinstance(choice, click.Choice)
    assert set(choice.choices) == set(SCOPES)


def _age(database: Database, *, expires: int) -> None:
    with database.transaction() as tx:
        change_rows(tx, tables.api_token, lambda _row: {"expires_at": expires})


def test_refused_api_token_is_logged_once_a_minute_without_its_secret(
    api_harness: ApiHarness,
) -> None:
    invented = "kt_0123abcd_" + "x" * 43
    for _ in range(3):
        program = api_harness.program()
        answer = program.get("/runs", headers={"Authorization": f"Bearer {invented}"})
        assert answer.status_code == 401
    with api_harness.database.reading() as tx:
        entries = [e for e in change_log.list_entries_after(tx, 0) if e.kind == "token refused"]
    assert len(entries) == 1
    assert entries[0].facts["reason"] == f"unknown token: {CREATE_TOKEN_ADVICE}"
    assert "xxxx" not in entries[0].body
