"""An installation, for the checks of `keyturn doctor`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot.model.redaction import Redactor
from bot.model.verifier_keys import WitnessAddress


@dataclass(frozen=True)
class Installation:
    """An installation as its settings describe it."""

    data: Path
    """The data directory."""
    policy: Path
    """The policy directory."""
    keys: Path
    """The directory of changelog.key and secrets.key."""
    database: str = field(repr=False)
    """The URL of the database."""
    redactor: Redactor
    distributed: bool = False
    """Whether workers execute the runs, each for its sites."""
    base_url: str = ""
    """The address of the pages for people; "" if not set."""
    witness: Path | None = None
    witnesses: Sequence[WitnessAddress] = ()
    """Those that cosign the log."""
    slack_api: str = "https://slack.com/api/"
    slack_bot_token: str = field(default="", repr=False)
    slack_app_token: str = field(default="", repr=False)
    slack_signing_secret: str = field(default="", repr=False)
    slack_team: str = ""
    slack_channel: str = ""
    slack_alarm_channel: str = ""
    settings_file: Path = Path(".env")
    """The settings file, which can hold secrets."""
    secret_files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """The file of each secret that has one, by the name of its variable."""
    misspelt_settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Unknown KEYTURN_ variables, each with the setting of the most similar name."""
    authorities: str = ""
    """The value of SSL_CERT_FILE."""

    @property
    def embedded_file(self) -> Path | None:
        """The SQLite file; None for PostgreSQL."""
        return self.data / "keyturn.db" if self.database.startswith("sqlite:") else None
