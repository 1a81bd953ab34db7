"""Processes of the distributed mode, as `keyturn serve` and `keyturn worker` start them."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from bot.app import Foundation, NoHostConnector, build_foundation
from bot.auth import secret_box
from bot.db import migrations
from bot.db.database import Database
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.model import signing
from bot.model.redaction import Redactor
from bot.settings import Settings


class Replicas:
    """Any number of them on one database. directory: holds the policy in `policy`."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory, self._url = directory, url
        self._processes: list[subprocess.Popen[str]] = []

    @property
    def settings(self) -> Settings:
        return Settings(
            data=self.directory / "var",
            policy=self.directory / "policy",
            database=self._url,
            engine="distributed",
            port=0,
        )

    def __enter__(self) -> Self:
        data = self.directory / "var"
        data.mkdir(parents=True, exist_ok=True)
        database = Database(self._url, signing.load_signing_key(data / "changelog.key"))
        secret_box.load_secret_box(data / "secrets.key")
        migrations.upgrade_schema(database)
        database.close()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            # One that was stopped takes no other signal.
            process.kill()
            process.communicate()

    def foundation(self) -> Foundation:
        """Return what a replica of `keyturn serve` stands on, in this very process."""
        foundation = build_foundation(
            self.settings,
            ProcrastinateDispatcher(),
            Redactor(),
            connector=NoHostConnector(),
            file_suffix="-here",
        )
        foundation.housekeeping.start({})
        return foundation

    def workers(self, number: int, *, site: str = "main") -> list[subprocess.Popen[str]]:
        """Start so many workers at once, and return them once they work."""
        return self._start(number, "worker", "--site", site, until="Working for")

    def serving(self, number: int) -> list[subprocess.Popen[str]]:
        """Do the same with `keyturn serve`."""
        return self._start(number, "serve", until="Keyturn is ready")

    def _start(self, number: int, *words: str, until: str) -> list[subprocess.Popen[str]]:
        environment = {
            "KEYTURN_DATA": str(self.settings.data),
            "KEYTURN_POLICY": str(self.settings.policy),
            "KEYTURN_DATABASE": self._url,
            "KEYTURN_ENGINE": "distributed",
            "KEYTURN_PORT": "0",
        }
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "bot", *words],
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for _ in range(number)
        ]
        self._processes += started
        for process in started:
            assert process.stdout
            line = process.stdout.readline()
            assert until in line, line
        return started


def end(process: subprocess.Popen[str], *, seconds: float = 30) -> int:
    """Ask a process to end, as an orchestrator does, and return its exit status."""
    process.send_signal(signal.SIGTERM)
    return process.wait(seconds)
