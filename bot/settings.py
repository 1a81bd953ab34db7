"""Settings of an installation, read from the environment or a settings file."""

import os
import re
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from dotenv import dotenv_values
from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from bot.secret_sources import find_secret_file, resolve_secret
from bot.service_address import (
    DEFAULT_LISTEN,
    DEFAULT_PORT,
    PREFIX,
    SETTINGS_FILE,
    get_local_address,
    get_public_address,
)
from connectors.public_addresses import LOCAL_HOSTS, is_encrypted_or_local

# Variables of the command line and of compose.yaml, and the name of the settings file itself.
_OTHER_VARIABLES = frozenset({"URL", "TOKEN", "PASSWORD", "SETTINGS"})
# An empty value of this setting disables its default, which is Slack.
_EMPTY_ALLOWED = frozenset({"oidc_issuer"})
# SQLAlchemy needs the first one.
_POSTGRESQL = ("postgresql+psycopg", "postgresql", "postgres")
# Each may name where it is instead. The address of a database may have a password.
SECRETS = (
    *("slack_bot_token", "slack_app_token", "slack_signing_secret", "oidc_client_secret"),
    *("collector_token", "database", "migrations", "scim_token"),
)
_MIN_SCIM_TOKEN = 32
_OIDC_ENDPOINTS = ("oidc_authorization", "oidc_token", "oidc_keys")


class Settings(BaseSettings):
    """Every setting is an environment variable KEYTURN_…, or a line of the settings file:
    .env, or the one that KEYTURN_SETTINGS names.

    A secret can be file:PATH, or vault:MOUNT/PATH#KEY; or a credential of systemd.
    An empty variable counts as omitted, and overrides the file.

    data: the directory of the database and the logs. policy: the policy directory. keys: the
    directory of changelog.key and secrets.key, the same for every process; *data* if omitted.
    engine: `embedded`, one process that does everything, or `distributed`, any number of `keyturn
    serve` and `keyturn worker` on one PostgreSQL.
    database: empty for SQLite in *data*, or postgresql+psycopg://…
    listen, port: the address of the web server. base_url: its address for people. proxies:
    addresses and networks of reverse proxies on other machines, separated by commas.
    signing_page: the address of the page on which people sign plans, if another server has it.
    slack_…: bot token xoxb-…, app token xapp-… for Socket Mode or signing secret for HTTP, team id
    T…, channel C… for requests without one, and another one for alarms.
    log: the format of the service log: text, or json, one object on a line.
    runbooks: the directory of your own runbooks and dialects.
    hooks: the file with the sources of incoming events and the targets of outgoing ones.
    host_sources: the file with the systems from which hosts are proposed.
    oidc_…: sign-in with an OpenID Connect provider, enabled by a client id: its issuer, the client
    id and secret, the label of the button, whether its tokens contain Slack ids (claims: slack,
    or subject), and its discovery document or endpoints if they are not at the standard place.
    request_hours: how long a request waits for approvals, approval_hours: then for its turn.
    reminder_minutes: after how long approvers are reminded, unless a rule has @remind.
    keep_output: after how many days output is erased; 0 keeps it.
    witness: a file for checkpoints, on another disk or machine.
    witnesses: servers that cosign the change log, each its verifier key and its address, separated
    by commas.
    time_stamps: an authority (RFC 3161) that stamps the newest checkpoint each hour, and the PEM
    file with the certificates that its stamps lead to.
    syslog: a log server for checkpoints: udp://host[:port], tcp://host[:port] or unix:///dev/log.
    collector…: an HTTP address that receives the change log as JSON lines, its token, and the
    format: json, or ocsf.
    mail_…: notices by e-mail, enabled by a server, host[:port]: the sender's address, the
    encryption, and a user with the file of the password.
    migrations: the address of the database with a role that may change the schema, if the role
    above may not.
    scim_token: the token with which an identity provider adds and removes people at /scim/v2.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=SETTINGS_FILE,
        # Of systemd, each in a file with the name of its variable.
        secrets_dir=os.environ.get("CREDENTIALS_DIRECTORY"),
        extra="ignore",
    )

    data: Path = Path("var")
    keys: Path | None = None
    policy: Path = Path("policy")
    engine: Literal["embedded", "distributed"] = "embedded"
    database: str = ""
    listen: str = DEFAULT_LISTEN
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    base_url: str = ""
    signing_page: str = ""
    proxies: str = ""
    slack_bot_token: SecretStr = SecretStr("")
    slack_app_token: SecretStr = SecretStr("")
    slack_signing_secret: SecretStr = SecretStr("")
    slack_team: str = ""
    slack_channel: str = ""
    slack_alarm_channel: str = ""
    slack_api: str = "https://slack.com/api/"
    request_hours: Annotated[float, Field(gt=0, le=24 * 30)] = 8
    approval_hours: Annotated[float, Field(gt=0, le=24 * 30)] = 8
    reminder_minutes: Annotated[float, Field(gt=0, le=60 * 24)] = 30
    keep_output: Annotated[int, Field(ge=0, le=36_500)] = 0
    runbooks: Path | None = None
    hooks: Path | None = None
    host_sources: Path | None = None
    log: Literal["text", "json"] = "text"
    oidc_issuer: str = "https://slack.com"
    oidc_client_id: str = ""
    oidc_client_secret: SecretStr = SecretStr("")
    oidc_name: Annotated[str, Field(min_length=1, max_length=40)] = "Slack"
    oidc_claims: Literal["", "slack", "subject"] = ""
    oidc_discovery: str = ""
    oidc_authorization: str = ""
    oidc_token: str = ""
    oidc_keys: str = ""
    requests_a_minute: Annotated[int, Field(ge=1, le=10_000)] = 60
    witness: Path | None = None
    witnesses: str = ""
    time_stamps: str = ""
    time_stamps_ca: Path | None = None
    syslog: str = ""
    collector: str = ""
    collector_token: SecretStr = SecretStr("")
    collector_format: Literal["json", "ocsf"] = "json"
    mail_server: str = ""
    mail_from: str = ""
    mail_encryption: Literal["starttls", "tls", "off"] = "starttls"
    mail_user: str = ""
    mail_password_file: Path | None = None
    migrations: SecretStr = SecretStr("")
    scim_token: SecretStr = SecretStr("")

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_settings(cls, given: dict[str, object]) -> dict[str, object]:
        # `KEYTURN_WITNESS: ${WITNESS:-}` in a compose file would be the current directory.
        return {
            name: value for name, value in given.items() if value != "" or name in _EMPTY_ALLOWED
        }

    @field_validator(*SECRETS, mode="before")
    @classmethod
    def _resolve_secret(cls, given: object) -> object:
        return resolve_secret(given) if isinstance(given, str) else given

    @field_validator("database")
    @classmethod
    def _validate_database(cls, address: str) -> str:
        return _add_driver(address)

    @field_validator("migrations")
    @classmethod
    def _validate_migrations(cls, address: SecretStr) -> SecretStr:
        return SecretStr(_add_driver(address.get_secret_value()))

    @field_validator("base_url")
    @classmethod
    def _validate_base_url(cls, address: str) -> str:
        if address and not _is_page_address(address):
            raise ValueError("must be an address such as https://keyturn.example.com")
        return address

    @field_validator("signing_page")
    @classmethod
    def _validate_signing_page(cls, address: str) -> str:
        if address and not (_is_page_address(address) and "#" not in address):
            raise ValueError("must be an address such as https://sign.example.com/")
        return address

    @field_validator("proxies")
    @classmethod
    def _validate_proxies(cls, proxies: str) -> str:
        for one in proxies.split(","):
            try:
                ip_network(one.strip() or "::1", strict=False)
            except ValueError:
                raise ValueError(
                    f"{one.strip()!r} is not an address or network such as 192.0.2.7 or 10.0.0.0/8"
                ) from None
        return proxies

    @field_validator("witnesses")
    @classmethod
    def _validate_witnesses(cls, text: str) -> str:
        if text:
            from bot.model.verifier_keys import parse_witnesses

            parse_witnesses(text)
        return text

    @field_validator("syslog")
    @classmethod
    def _validate_syslog(cls, address: str) -> str:
        parts = urlsplit(address)
        fits = parts.path if parts.scheme == "unix" else parts.hostname
        if address and not (parts.scheme in {"udp", "tcp", "unix"} and fits):
            raise ValueError("must be udp://HOST[:PORT], tcp://HOST[:PORT] or unix:///PATH")
        return address

    @field_validator("oidc_issuer", "oidc_discovery", *_OIDC_ENDPOINTS)
    @classmethod
    def _validate_oidc_address(cls, address: str) -> str:
        parts = urlsplit(address)
        if address and not (is_encrypted_or_local(parts) and parts.hostname):
            raise ValueError("must begin with https://, except for an address of this machine")
        return address

    @model_validator(mode="after")
    def _check_oidc_settings(self) -> "Settings":
        if self.oidc_client_id and not self.oidc_issuer:
            raise ValueError("KEYTURN_OIDC_CLIENT_ID needs KEYTURN_OIDC_ISSUER: set it too")
        if self.oidc_client_secret.get_secret_value() and not self.oidc_client_id:
            raise ValueError("KEYTURN_OIDC_CLIENT_SECRET needs KEYTURN_OIDC_CLIENT_ID: set it too")
        return self

    @model_validator(mode="after")
    def _check_mail_settings(self) -> "Settings":
        if not self.mail_server:
            return self
        if not re.fullmatch(r"[^@\s<>]+@[^@\s<>]+", self.mail_from):
            raise ValueError("KEYTURN_MAIL_SERVER needs KEYTURN_MAIL_FROM: the sender's address")
        host, port = self.mail_address
        if not host or not 0 < port < 65536:
            raise ValueError("KEYTURN_MAIL_SERVER must be HOST or HOST:PORT")
        if self.mail_encryption == "off" and (host not in LOCAL_HOSTS or self.mail_user):
            raise ValueError(
                "KEYTURN_MAIL_ENCRYPTION=off is for a server on this machine, without a user"
            )
        if bool(self.mail_user) != (self.mail_password_file is not None):
            raise ValueError("set both KEYTURN_MAIL_USER and KEYTURN_MAIL_PASSWORD_FILE, or none")
        return self

    @model_validator(mode="after")
    def _check_time_stamps(self) -> "Settings":
        if bool(self.time_stamps) != (self.time_stamps_ca is not None):
            raise ValueError("set both KEYTURN_TIME_STAMPS and KEYTURN_TIME_STAMPS_CA, or none")
        if self.time_stamps and not _is_page_address(self.time_stamps):
            raise ValueError("KEYTURN_TIME_STAMPS must be an address such as https://tsa.example/")
        return self

    @model_validator(mode="after")
    def _check_collector(self) -> "Settings":
        if self.collector and urlsplit(self.collector).scheme not in {"http", "https"}:
            raise ValueError(
                "KEYTURN_COLLECTOR must be an address such as https://siem.example.com:8088/"
            )
        if self.collector_token.get_secret_value() and not self.collector:
            raise ValueError("KEYTURN_COLLECTOR_TOKEN needs KEYTURN_COLLECTOR: set it too")
        return self

    @field_validator("scim_token")
    @classmethod
    def _validate_scim_token(cls, token: SecretStr) -> SecretStr:
        text = token.get_secret_value()
        # A header cannot have any other character.
        if text and not (len(text) >= _MIN_SCIM_TOKEN and text.isascii() and text.isprintable()):
            raise ValueError(
                f"must be at least {_MIN_SCIM_TOKEN} ASCII characters: take those that "
                "`openssl rand -hex 32` prints"
            )
        return token

    @model_validator(mode="after")
    def _check_distributed_database(self) -> "Settings":
        if self.engine == "distributed" and not self.database.startswith("postgresql"):
            raise ValueError(
                "KEYTURN_ENGINE=distributed needs KEYTURN_DATABASE=postgresql+psycopg://…: SQLite "
                "supports only one process"
            )
        return self

    @model_validator(mode="after")
    def _check_slack_settings(self) -> "Settings":
        bot = self.slack_bot_token.get_secret_value()
        app = self.slack_app_token.get_secret_value()
        for given, prefix, name in ((bot, "xoxb-", "BOT"), (app, "xapp-", "APP")):
            if given and not given.startswith(prefix):
                raise ValueError(f"KEYTURN_SLACK_{name}_TOKEN must begin with {prefix}")
        if app and not bot:
            raise ValueError("KEYTURN_SLACK_APP_TOKEN needs KEYTURN_SLACK_BOT_TOKEN: set it too")
        if bot and not (app or self.slack_signing_secret.get_secret_value()):
            raise ValueError(
                "KEYTURN_SLACK_BOT_TOKEN needs KEYTURN_SLACK_APP_TOKEN (xapp-…, for Socket Mode) "
                "or KEYTURN_SLACK_SIGNING_SECRET (for HTTP): both are under Basic Information of "
                "the Slack app"
            )
        if bot and not self.slack_team:
            raise ValueError("KEYTURN_SLACK_BOT_TOKEN needs KEYTURN_SLACK_TEAM (T…): set it too")
        return self

    @property
    def shown(self) -> dict[str, str]:
        """The settings for the change log; of a secret, only whether it is set."""
        return {name: _hide_secret(name, value) for name, value in self if name != "port"}

    @property
    def secrets(self) -> list[str]:
        """The secrets, which must never be recorded, shown or logged."""
        kept = [value.get_secret_value() for _, value in self if isinstance(value, SecretStr)]
        # Of a token with its scheme, the scheme is none.
        kept.append(self.collector_token.get_secret_value().rpartition(" ")[2])
        addresses = [self.database, self.migrations.get_secret_value()]
        passwords = [urlsplit(address).password or "" for address in addresses]
        return [*kept, *passwords, *map(unquote, passwords)]

    @property
    def mail_address(self) -> tuple[str, int]:
        """Host and port of the mail server; port 0 if it is not a number."""
        default = {"starttls": "587", "tls": "465", "off": "25"}[self.mail_encryption]
        host, _, port = self.mail_server.partition(":")
        port = port or default
        return host, int(port) if port.isdecimal() else 0

    @property
    def proxy_networks(self) -> list[str]:
        return [one.strip() for one in self.proxies.split(",") if one.strip()]

    @property
    def key_directory(self) -> Path:
        return self.keys or self.data

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{(self.data / 'keyturn.db').absolute()}"

    @property
    def address(self) -> str:
        """The address of the pages for people, without a slash at the end."""
        return get_public_address(self.base_url, self.listen, self.port)

    @property
    def here(self) -> str:
        """The address of the pages for this machine."""
        return get_local_address(self.base_url, self.listen, self.port)


def find_misspelt_settings() -> dict[str, str]:
    """Return unknown KEYTURN_ variables, each with the setting of the most similar name."""
    known = {name.upper() for name in Settings.model_fields} | _OTHER_VARIABLES
    given = {
        name.upper().removeprefix(PREFIX)
        for name in (*os.environ, *dotenv_values(SETTINGS_FILE))
        if name.upper().startswith(PREFIX)
    }
    alike = {name: get_close_matches(name, known, 1, 0.8) for name in sorted(given - known)}
    return {PREFIX + name: PREFIX + found[0] for name, found in alike.items() if found}


def list_secret_files() -> dict[str, Path]:
    """Return the file of each secret that is in one of its own, by the name of its variable."""
    given = {
        name.upper(): value or ""
        for source in (dotenv_values(SETTINGS_FILE), os.environ)
        for name, value in source.items()
    }
    names = [f"{PREFIX}{name}".upper() for name in SECRETS]
    found = {name: find_secret_file(given.get(name, "")) for name in names}
    if password_file := given.get(f"{PREFIX}MAIL_PASSWORD_FILE"):
        found[f"{PREFIX}MAIL_PASSWORD_FILE"] = Path(password_file)
    if not given.get("VAULT_TOKEN") and given.get("VAULT_TOKEN_FILE"):
        found["VAULT_TOKEN_FILE"] = Path(given["VAULT_TOKEN_FILE"])
    return {name: file for name, file in found.items() if file is not None}


def _add_driver(address: str) -> str:
    """Return the address of a database with the driver of SQLAlchemy.

    Raises ValueError if it is neither PostgreSQL nor SQLite.
    """
    scheme, found, rest = address.partition("://")
    if address and not (found and scheme in {*_POSTGRESQL, "sqlite"}):
        raise ValueError(
            "must be postgresql://USER@HOST/NAME, or empty for SQLite in KEYTURN_DATA"
        )
    return f"{_POSTGRESQL[0]}://{rest}" if scheme in _POSTGRESQL else address


def _is_page_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        whole = parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError:
        return False
    return whole and parts.scheme in {"http", "https"} and bool(parts.hostname)


def _hide_secret(name: str, value: object) -> str:
    if isinstance(value, SecretStr):
        return "set" if value.get_secret_value() else ""
    if name == "database":
        parts = urlsplit(str(value))
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return "" if value is None else str(value)
