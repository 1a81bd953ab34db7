"""The patient: an installation, as its settings describe it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bot.model.redaction import Redactor


@dataclass(frozen=True)
class Installation:
    """data, policy: directories. keys: the directory of changelog.key and secrets.key.

    database: its address. distributed: whether workers do what is asked, each for its sites.

    base_url: how people reach the pages, "" if nobody said. slack_…: as in the settings. settings
    file: where secrets may stand. redactor: knows what must never be shown. misspelt: what looks
    like a setting and is none, with the one that may be meant. authorities: SSL_CERT_FILE.
    """

    data: Path
    policy: Path
    keys: Path
    database: str = field(repr=False)
    redactor: Redactor
    distributed: bool = False
    base_url: str = ""
    witness: Path | None = None
    slack_api: str = "https://slack.com/api/"
    slack_bot_token: str = field(default="", repr=False)
    slack_app_token: str = field(default="", repr=False)
    slack_signing_secret: str = field(default="", repr=False)
    slack_team: str = ""
    slack_channel: str = ""
    slack_alarm_channel: str = ""
    settings_file: Path = Path(".env")
    misspelt: Mapping[str, str] = field(default_factory=dict[str, str])
    authorities: str = ""

    @property
    def embedded_file(self) -> Path | None:
        """The file of the database; None if a server keeps it."""
        return self.data / "keyturn.db" if self.database.startswith("sqlite:") else None
