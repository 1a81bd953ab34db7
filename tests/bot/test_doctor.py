"""`keyturn doctor`: each problem with its fix; Slack is the emulator."""

import asyncio
import json
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.audit import verification
from bot.integrations import witness_file
from bot.model import signing
from bot.model.check_result import CheckResult
from bot.model.signing import SigningKey
from bot.model.verifier_keys import COSIGNATURE, VerifierKey
from bot.slack import self_check
from bot.slack.app import create_client
from tests.bot.bogus_entry import add_bogus_entry
from tests.playground import sample_company
from tests.playground.fleet import PLACES, LoopbackFleet
from tests.playground.service import Service
from tests.slack_emulator import Emulator

CHANNEL = "C0PRODUCTION"


@dataclass
class Clinic:
    """An installation that runs, and whose Slack is the emulator."""

    place: Path
    service: Service
    environment: pytest.MonkeyPatch

    @property
    def slack(self) -> Emulator:
        return self.service.emulator

    def set(self, **settings: str) -> None:
        for name, value in settings.items():
            self.environment.setenv(f"KEYTURN_{name}", value)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["doctor", *words], catch_exceptions=False)

    def about(self, about: str) -> CheckResult:
        report = json.loads(self.run("--json").output)
        [finding] = [each for each in report["findings"] if each["subject"] == about]
        return CheckResult(**finding)


def _build_clinic(place: Path, environment: pytest.MonkeyPatch, service: Service) -> Clinic:
    clinic = Clinic(place, service, environment)
    environment.chdir(place)
    clinic.set(
        DATA=str(place / "var"),
        POLICY=str(place / "policy"),
        WITNESS=str(place / "witness"),
        BASE_URL="https://keyturn.example.com",
        SLACK_API=clinic.slack.api_url,
        SLACK_BOT_TOKEN=clinic.slack.bot_token,
        SLACK_APP_TOKEN=clinic.slack.app_token,
        SLACK_TEAM=clinic.slack.workspace.app.team_id,
        SLACK_CHANNEL=CHANNEL,
    )
    return clinic


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Clinic]:
    sample_company.create_policy(tmp_path / "policy")
    (tmp_path / "policy" / "inventory.yaml").write_text("hosts: {}\n")
    with Service(tmp_path) as service:
        yield _build_clinic(tmp_path, monkeypatch, service)


@pytest.mark.real
def test_doctor_reports_a_healthy_installation_and_an_unreachable_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sample_company.create_policy(tmp_path / "policy")
    # No NFS server runs here.
    places = [place for place in PLACES if "nfs" not in place.tags]
    with (
        LoopbackFleet(tmp_path / "policy", places=places) as fleet,
        Service(tmp_path) as service,
    ):
        clinic = _build_clinic(tmp_path, monkeypatch, service)
        answer = clinic.run()
        assert answer.exit_code == 0, answer.output
        assert "ERROR" not in answer.output
        assert "\nHealthy" in answer.output
        fleet.hosts["lb1"].stop()
        assert clinic.run().exit_code == 1
        assert "lb1" in clinic.about("host lb1").message


def test_doctor_lists_one_result_for_each_subject(clinic: Clinic):
    report = json.loads(clinic.run("--json").output)
    assert report["healthy"] is True
    assert [each["subject"] for each in report["findings"]] == [
        "policy",
        "signing key",
        "second-factor key",
        "database",
        "change log",
        "schedules",
        "set up",
        "witness",
        "pages",
        "bot token",
        "workspace",
        "scopes",
        "clock",
        "app token",
        f"channel {CHANNEL}",
        "people",
        "hosts",
    ]


def test_doctor_prints_no_tokens_and_no_signing_secret(clinic: Clinic):
    clinic.set(SLACK_SIGNING_SECRET="8f742231b10e8888abcd99yyyzzz85a5")
    for words in ([], ["--json"]):
        output = clinic.run(*words).output
        for secret in (clinic.slack.bot_token, clinic.slack.app_token, "8f742231"):
            assert secret not in output


def test_doctor_reports_a_wrong_slack_bot_token(clinic: Clinic):
    clinic.set(SLACK_BOT_TOKEN="xoxb-wrong")
    finding = clinic.about("bot token")
    assert (finding.level, clinic.run().exit_code) == ("error", 1)
    assert "invalid_auth" in finding.message
    assert "OAuth & Permissions" in finding.message


def test_doctor_reports_that_slack_is_unreachable(clinic: Clinic):
    clinic.set(SLACK_API="http://127.0.0.1:9/api/")
    assert "HTTPS_PROXY" in clinic.about("connection to Slack").message


def test_doctor_reports_the_rate_limit_of_slack(clinic: Clinic):
    clinic.slack.workspace.faults.calls_to_limit = 10
    assert "limits the rate of calls" in clinic.about("bot token").message


def test_doctor_suggests_the_name_of_a_misspelt_setting(clinic: Clinic):
    clinic.set(SLACK_CHANEL="C0OPS")
    assert "did you mean KEYTURN_SLACK_CHANNEL?" in clinic.about("settings").message


def test_doctor_asks_for_a_default_channel_by_its_id(clinic: Clinic):
    clinic.set(SLACK_CHANNEL="#production")
    assert "not a channel ID" in clinic.about("channel #production").message
    clinic.set(SLACK_CHANNEL="")
    assert "Set KEYTURN_SLACK_CHANNEL" in clinic.about("default channel").message


def test_doctor_reports_people_who_are_unknown_or_deactivated_in_slack(clinic: Clinic):
    people = clinic.place / "policy" / "people.yaml"
    people.write_text(people.read_text().replace("user: U0ADAM", "user: U0ADMA"))
    clinic.slack.workspace.set_active("U0STAN", active=False)
    finding = clinic.about("people: adam")
    assert (finding.level, "U0ADMA is unknown in Slack" in finding.message) == ("error", True)
    assert "is deactivated" in clinic.about("people: stan").message
    people.write_text(people.read_text().replace("team: T0KEYTURN", "team: T0OTHER", 1))
    assert clinic.about("people").message.endswith("so unable to use Slack: dora")


def test_doctor_reports_that_nobody_has_an_account_in_the_workspace(clinic: Clinic):
    people = clinic.place / "policy" / "people.yaml"
    people.write_text(people.read_text().replace("team: T0KEYTURN", "team: T0OTHER"))
    finding = clinic.about("people")
    assert (finding.level, "Copy member ID" in finding.message) == ("error", True)


def test_doctor_reports_a_wrong_slack_app_token(clinic: Clinic):
    clinic.set(SLACK_APP_TOKEN="xapp-wrong")
    finding = clinic.about("app token")
    assert finding.level == "error"
    assert "connections:write" in finding.message


def test_doctor_names_the_events_url_when_no_app_token_is_set(clinic: Clinic):
    clinic.set(SLACK_APP_TOKEN="", SLACK_SIGNING_SECRET="s")
    assert (
        "https://keyturn.example.com/slack/events" in clinic.about("requests from Slack").message
    )
    clinic.set(BASE_URL="http://10.0.0.1:8080")
    assert "Socket Mode" in clinic.about("requests from Slack").message


def test_doctor_reports_that_the_token_belongs_to_another_workspace(clinic: Clinic):
    clinic.set(SLACK_TEAM="T0OTHER")
    assert "KEYTURN_SLACK_TEAM is T0OTHER" in clinic.about("workspace").message


@pytest.mark.parametrize(
    ("less", "more", "mark", "message"),
    [
        ({"im:write"}, set[str](), "error", "im:write missing"),
        (set[str](), {"admin"}, "warning", "admin"),
        (
            {"im:history"},
            set[str](),
            "ok",
            "without the optional im:history (messages to Keyturn itself are not answered)",
        ),
        (
            {"files:write", "channels:history"},
            set[str](),
            "ok",
            "files:write (long output is cut in chat, and whole on the page of its run)",
        ),
    ],
)
def test_doctor_compares_the_scopes_of_the_bot_token_with_the_manifest(
    clinic: Clinic, less: set[str], more: set[str], mark: str, message: str
):
    workspace = clinic.slack.workspace
    scopes = tuple((set(workspace.app.scopes) - less) | more)
    workspace.app = replace(workspace.app, scopes=scopes)
    finding = clinic.about("scopes")
    assert finding.level == mark
    assert message in finding.message


def test_doctor_reports_a_channel_without_the_bot_archived_or_missing(clinic: Clinic):
    workspace = clinic.slack.workspace
    workspace.set_bot_inside(CHANNEL, inside=False)
    assert "/invite @Keyturn" in clinic.about(f"channel {CHANNEL}").message
    workspace.set_bot_inside(CHANNEL, inside=True)
    workspace.set_archived(CHANNEL, archived=True)
    assert "archived" in clinic.about(f"channel {CHANNEL}").message
    clinic.set(SLACK_CHANNEL="C0NOWHERE")
    assert "it does not exist, or is private" in clinic.about("channel C0NOWHERE").message


def test_doctor_warns_of_a_channel_that_another_organisation_shares(clinic: Clinic):
    clinic.slack.workspace.channel(CHANNEL).shared = True
    finding = clinic.about(f"channel {CHANNEL}")
    assert finding.level == "warning"
    assert "shared with another organisation" in finding.message


@pytest.mark.parametrize(
    ("ahead", "mark"),
    [(0, "ok"), (60, "warning"), (-60, "warning"), (400, "error"), (-400, "error")],
)
def test_doctor_compares_the_local_clock_with_slack(clinic: Clinic, ahead: float, mark: str):
    speaker = create_client(clinic.slack.bot_token, clinic.slack.api_url)
    way = self_check.SlackConnectionSettings("T", "", "s", "https://k", {})

    async def look() -> list[CheckResult]:
        return [
            each
            async for each in self_check.check_slack_connection(
                speaker, way, clock=lambda: time.time() + ahead
            )
        ]

    [finding] = [each for each in asyncio.run(look()) if each.subject == "clock"]
    assert finding.level == mark


def test_doctor_reports_a_signing_key_that_others_can_read(clinic: Clinic):
    (clinic.place / "var" / "changelog.key").chmod(0o644)
    assert "chmod 600" in clinic.about("signing key").message


def test_doctor_reports_missing_stylesheets_of_the_pages(clinic: Clinic):
    assert clinic.about("pages").level == "ok"
    clinic.environment.setattr("bot.web.assets._VENDOR_FILES", ("vendor/none.css",))
    finding = clinic.about("pages")
    assert (finding.level, "make assets" in finding.message) == ("error", True)


def test_doctor_reports_a_database_file_that_others_can_read(clinic: Clinic):
    var = clinic.place / "var"
    (var / "keyturn.db").chmod(0o644)
    assert clinic.about("database").level == "ok"  # nobody else comes to it
    var.chmod(0o755)
    assert f"chmod 700 {var}" in clinic.about("database").message


def test_doctor_reports_a_data_directory_that_others_can_write(clinic: Clinic):
    var = clinic.place / "var"
    var.chmod(0o777)
    finding = clinic.about("database")
    assert finding.level == "error"
    assert f"{var} is writable by others: chmod go-w it" in finding.message


def test_doctor_checks_the_signing_key_in_the_configured_key_directory(clinic: Clinic):
    elsewhere = clinic.place / "keys"
    (clinic.place / "var" / "changelog.key").chmod(0o644)
    elsewhere.mkdir()
    clinic.set(KEYS=str(elsewhere))
    finding = clinic.about("signing key")
    assert (finding.level, str(elsewhere) in finding.message) == ("warning", True)
    signing.create_signing_key(elsewhere / "changelog.key")
    assert clinic.about("signing key").level == "ok"
    assert f"than {elsewhere}/changelog.key" in clinic.about("change log").message


def test_doctor_reports_a_signing_key_that_is_not_the_key_of_the_change_log(clinic: Clinic):
    (clinic.place / "var" / "changelog.key").unlink()
    assert clinic.about("signing key").level == "warning"
    signing.create_signing_key(clinic.place / "var" / "changelog.key")
    assert "another key" in clinic.about("change log").message


def test_doctor_reports_a_settings_file_that_others_can_read(clinic: Clinic):
    file = clinic.place / ".env"
    file.write_text("")
    file.chmod(0o644)
    assert "chmod 600" in clinic.about("settings").message
    file.chmod(0o600)
    assert "chmod 600" not in clinic.run().output


def test_commands_say_which_entry_of_the_change_log_is_not_ours(clinic: Clinic):
    says = add_bogus_entry(clinic.service.keyturn.database)
    finding = clinic.about("change log")
    assert finding.level == "error"
    assert "BROKEN at entry" in finding.message
    assert "keyturn changelog verify" in finding.message
    words = ["ban", "dora", "--as", "adam", "--reason", "the laptop is stolen"]
    ended = CliRunner().invoke(main, words, catch_exceptions=False)
    assert (ended.exit_code, says[1:] in ended.stderr) == (1, True), ended.output


def test_doctor_reports_an_altered_entry_of_the_change_log(clinic: Clinic):
    with clinic.service.keyturn.database.engine.connect() as connection:
        for trigger in connection.exec_driver_sql(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'entry'"
        ).fetchall():
            connection.exec_driver_sql(f"DROP TRIGGER {trigger[0]}")
        connection.exec_driver_sql("UPDATE entry SET kind = 'nothing' WHERE seq = 1")
        connection.commit()
    finding = clinic.about("change log")
    assert finding.level == "error"
    assert "BROKEN at entry 1" in finding.message


def test_doctor_reports_a_change_log_shorter_than_its_witness(clinic: Clinic):
    with clinic.service.keyturn.database.transaction() as tx:
        point = verification.create_checkpoint(tx)
    witness_file.write_checkpoint(clinic.place / "witness", replace(point, size=point.size + 5))
    assert clinic.about("change log").level == "error"


def test_doctor_reports_a_database_of_a_newer_version(clinic: Clinic):
    with clinic.service.keyturn.database.engine.connect() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'before'")
        connection.commit()
    assert "a newer version of Keyturn made the schema" in clinic.about("database").message


def test_doctor_reports_an_unreachable_database_without_its_password(clinic: Clinic):
    clinic.set(DATABASE="postgresql+psycopg://keyturn:hunter2@127.0.0.1:9/keyturn")
    answer = clinic.run()
    assert answer.exit_code == 1
    assert "hunter2" not in answer.output


def test_doctor_asks_each_witness_to_cosign_the_log(clinic: Clinic):
    key = VerifierKey("w1.example", COSIGNATURE, SigningKey.create().public_key)
    clinic.set(WITNESSES=f"{key.text} http://127.0.0.1:9")
    finding = clinic.about("witness w1.example")
    assert (finding.level, finding.message[:15]) == ("error", "does not answer")


def test_doctor_reports_a_witness_file_that_cannot_be_written(clinic: Clinic):
    clinic.set(WITNESS=str(clinic.place / "nowhere" / "witness"))
    assert clinic.about("witness").level == "error"


def test_doctor_reports_a_witness_path_that_is_a_directory(clinic: Clinic):
    clinic.set(WITNESS=str(clinic.place))
    finding = clinic.about("witness")
    assert (finding.level, "set a file in it" in finding.message) == ("error", True)


def test_doctor_says_how_a_policy_begins(clinic: Clinic, tmp_path: Path):
    clinic.set(POLICY=str(tmp_path))
    assert "run keyturn init)" in clinic.about("policy").message


def test_doctor_reports_an_invalid_policy_and_continues_with_other_checks(clinic: Clinic):
    (clinic.place / "policy" / "policy.cedar").write_text("permit (everything);")
    assert "keyturn policy check" in clinic.about("policy").message
    assert clinic.about("bot token").level == "ok"


def test_doctor_creates_no_files_before_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sample_company.create_policy(tmp_path / "policy")
    (tmp_path / "policy" / "inventory.yaml").write_text("hosts: {}\n")
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(main, ["doctor"], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert "does not exist yet" in answer.output
    assert not (tmp_path / "var").exists()
