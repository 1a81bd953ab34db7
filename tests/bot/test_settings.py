"""Invalid settings are rejected with their name and fix."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from bot.service_address import export_library_variables, read_local_address
from bot.settings import Settings, find_misspelt_settings

BOT, APP = "KEYTURN_SLACK_BOT_TOKEN", "KEYTURN_SLACK_APP_TOKEN"
OIDC, MAIL = "KEYTURN_OIDC_", "KEYTURN_MAIL_"
SECRET, TEAM = "KEYTURN_SLACK_SIGNING_SECRET", "KEYTURN_SLACK_TEAM"


def read_settings_from(monkeypatch: pytest.MonkeyPatch, **given: str) -> Settings:
    for name in (BOT, APP, SECRET, TEAM):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return Settings(_env_file=None)  # pyright: ignore[reportCallIssue] - a parameter of pydantic's


@pytest.mark.parametrize("way", [{APP: "xapp-1"}, {SECRET: "s"}, {APP: "xapp-1", SECRET: "s"}])
def test_slack_settings_accept_app_token_signing_secret_or_both(
    monkeypatch: pytest.MonkeyPatch, way: dict[str, str]
):
    assert (
        read_settings_from(monkeypatch, **{BOT: "xoxb-1", TEAM: "T0KEYTURN"}, **way).slack_team
        == "T0KEYTURN"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({BOT: "xoxb-1", TEAM: "T0KEYTURN"}, f"needs {APP}"),
        ({BOT: "xoxb-1", SECRET: "s"}, f"needs {TEAM}"),
        ({BOT: "xapp-1", APP: "xoxb-1", TEAM: "T0KEYTURN"}, f"{BOT} must begin with xoxb-"),
        ({BOT: "xoxb-1", APP: "xoxb-1", TEAM: "T0KEYTURN"}, f"{APP} must begin with xapp-"),
        ({APP: "xapp-1"}, f"{APP} needs {BOT}"),
        ({"KEYTURN_DATABASE": "mysql://db/keyturn"}, "must be postgresql://USER@HOST/NAME"),
        ({"KEYTURN_DATABASE": "db.example.com"}, "must be postgresql://USER@HOST/NAME"),
        ({"KEYTURN_MIGRATIONS": "mysql://db/keyturn"}, "must be postgresql://USER@HOST/NAME"),
        ({"KEYTURN_BASE_URL": "keyturn.example.com"}, "such as https://keyturn.example.com"),
        ({"KEYTURN_BASE_URL": "https://"}, "such as https://keyturn.example.com"),
        ({"KEYTURN_BASE_URL": "https://[keyturn"}, "such as https://keyturn.example.com"),
        ({"KEYTURN_BASE_URL": "https://keyturn.example.com?a"}, "such as https://"),
        ({OIDC + "ISSUER": "http://login.example.com", OIDC + "CLIENT_ID": "k"}, "https://"),
        ({OIDC + "TOKEN": "ftp://127.0.0.1/token", OIDC + "CLIENT_ID": "k"}, "https://"),
        ({OIDC + "KEYS": "keys", OIDC + "CLIENT_ID": "k"}, "https://"),
        ({OIDC + "CLIENT_SECRET": "s"}, f"needs {OIDC}CLIENT_ID"),
        ({OIDC + "CLIENT_ID": "k", OIDC + "ISSUER": ""}, f"needs {OIDC}ISSUER"),
        ({MAIL + "SERVER": "mx"}, f"needs {MAIL}FROM"),
        ({MAIL + "SERVER": "mx:smtp", MAIL + "FROM": "k@x"}, "must be HOST or HOST:PORT"),
        ({MAIL + "SERVER": "mx", MAIL + "FROM": "k@x", MAIL + "ENCRYPTION": "off"},
         "for a server on this machine"),
        ({MAIL + "SERVER": "mx", MAIL + "FROM": "k@x", MAIL + "USER": "k"},
         f"set both {MAIL}USER and {MAIL}PASSWORD_FILE"),
    ],
)  # fmt: skip
def test_invalid_settings_are_rejected_with_their_name_and_fix(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], message: str
):
    with pytest.raises(ValidationError) as refused:
        read_settings_from(monkeypatch, **given)
    assert message in str(refused.value)
    assert "xoxb-1" not in str(refused.value)


@pytest.mark.parametrize(
    ("encryption", "server", "address"),
    [("", "mx.example.com", ("mx.example.com", 587)), ("tls", "mx", ("mx", 465)),
     ("off", "localhost", ("localhost", 25)), ("off", "127.0.0.1:2525", ("127.0.0.1", 2525))],
)  # fmt: skip
def test_mail_server_port_defaults_to_the_port_of_its_encryption(
    monkeypatch: pytest.MonkeyPatch, encryption: str, server: str, address: tuple[str, int]
):
    given = {"SERVER": server, "FROM": "keyturn@example.com", "ENCRYPTION": encryption}
    settings = read_settings_from(
        monkeypatch, **{MAIL + name: value for name, value in given.items()}
    )
    assert settings.mail_address == address


@pytest.mark.parametrize("name", ["witness", "keys", "hooks", "data", "policy", "port", "log"])
def test_empty_setting_uses_its_default(monkeypatch: pytest.MonkeyPatch, name: str):
    assert getattr(
        read_settings_from(monkeypatch, **{f"KEYTURN_{name.upper()}": ""}), name
    ) == getattr(read_settings_from(monkeypatch), name)


def test_empty_environment_variable_overrides_the_settings_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text("KEYTURN_WITNESS=elsewhere.log\n")
    assert Settings().witness == Path("elsewhere.log")
    monkeypatch.setenv("KEYTURN_WITNESS", "")
    assert Settings().witness is None


def test_library_variables_in_the_settings_file_are_exported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    wanted = {"HTTPS_PROXY": "http://proxy:3128", "OTEL_SERVICE_NAME": "keys"}
    for name in (*wanted, "SSL_CERT_FILE", "PATH_OF_OURS"):
        monkeypatch.setenv(name, "as it was")
    for name in wanted:
        monkeypatch.delenv(name)
    lines = {**wanted, "SSL_CERT_FILE": "/another", "PATH_OF_OURS": "/another"}
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    export_library_variables()
    assert {name: os.environ[name] for name in wanted} == wanted
    assert os.environ["SSL_CERT_FILE"] == os.environ["PATH_OF_OURS"] == "as it was"
    for name in wanted:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"PORT": "9000"},
        {"LISTEN": "0.0.0.0", "PORT": "80"},  # noqa: S104 - a setting
        {"LISTEN": "::"},
        {"LISTEN": "192.0.2.7"},
        {"BASE_URL": "https://keyturn.example.com/", "LISTEN": "0.0.0.0"},  # noqa: S104 - as above
    ],
)
def test_address_is_read_as_the_settings_read_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str]
):
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text("".join(f"KEYTURN_{name}={value}\n" for name, value in given.items()))
    assert read_local_address() == Settings().here
    monkeypatch.setenv("KEYTURN_PORT", "")
    monkeypatch.setenv("keyturn_listen", "192.0.2.8")
    assert read_local_address() == Settings().here
    monkeypatch.setenv("KEYTURN_PORT", "none")
    assert not read_local_address()


def test_misspelt_settings_are_found_in_environment_and_settings_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEYTURN_SLACK_CHANEL", "C0OPS")
    monkeypatch.setenv("KEYTURN_OF_OUR_OWN", "x")
    (tmp_path / ".env").write_text("KEYTURN_WITNES=/there\nKEYTURN_TOKEN=kt_1\nKEYTURN_DATA=var\n")
    assert find_misspelt_settings() == {
        "KEYTURN_SLACK_CHANEL": "KEYTURN_SLACK_CHANNEL",
        "KEYTURN_WITNES": "KEYTURN_WITNESS",
    }


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_database_url_is_accepted_with_the_schemes_of_psql(
    monkeypatch: pytest.MonkeyPatch, scheme: str
):
    there = f"{scheme}://keyturn@db.example.com/keyturn"
    settings = read_settings_from(monkeypatch, KEYTURN_DATABASE=there, KEYTURN_MIGRATIONS=there)
    ours = "postgresql+psycopg://keyturn@db.example.com/keyturn"
    assert (settings.database, settings.migrations.get_secret_value()) == (ours, ours)
