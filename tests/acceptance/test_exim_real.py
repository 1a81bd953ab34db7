"""The mail queue runbooks against a real Exim with its own spool, over a real sshd."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks.mail_queue_check import MailQueueCheck
from runbooks.mail_queue_remove import RemoveMail
from runbooks.mail_queue_retry import RetryMail
from tests.acceptance.direct_execution import execute_plan
from tests.playground.daemon import find_program
from tests.playground.sshd import Sshd

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="Exim takes a configuration from root alone"),
]

EXIM = "/usr/sbin/exim4"
CHECK = MailQueueCheck.model_validate({"host": "mail1"})
_CONFIGURATION = """
spool_directory = {0}/spool
log_file_path = {0}/log/%slog
primary_hostname = mail1.example.com
queue_only = true
keep_environment =
"""


class Exim:
    """An Exim that only queues. Its account must be able to reach the spool."""

    def __init__(self, directory: Path) -> None:
        self.command = directory / "exim"
        self._configuration = configuration = directory / "configuration"
        configuration.write_text(_CONFIGURATION.format(directory))
        exim = find_program(EXIM, package="exim4-daemon-light")
        self.command.write_text(f'#!/bin/sh\nexec {exim} -C {configuration} "$@"\n')
        self.command.chmod(0o755)
        for name in ("spool", "log"):
            (directory / name).mkdir()
            shutil.chown(directory / name, "Debian-exim", "Debian-exim")

    def add(self, section: str) -> None:
        with self._configuration.open("a") as file:
            file.write(f"{section}\n")

    def queue(self, sender: str, *recipients: str, header: str = "Subject: hello") -> None:
        words = [str(self.command), "-odq", "-f", sender, *recipients]
        subprocess.run(words, input=f"{header}\n\nhello\n".encode(), check=True, timeout=30)


@pytest.fixture
def exim() -> Iterator[Exim]:
    directory = Path(tempfile.mkdtemp(prefix="kt-exim-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        yield Exim(directory)
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def fleet(sshd: Sshd, exim: Exim) -> Iterator[Fleet]:
    entry = sshd.inventory_entry(area="mail", settings={"exim.program": str(exim.command)})
    fleet = Fleet(Inventory.model_validate({"hosts": {"mail1": entry}}), SshPool(Path("/")))
    yield fleet
    fleet.close()


def test_exim_queue_is_listed_by_sender_and_script(fleet: Fleet, exim: Exim):
    script = "X-PHP-Originating-Script: 1001:mailer.php"
    exim.queue("shop@example.com", "a@example.net", "b@example.net", header=script)
    exim.queue("<>", "c@example.net")
    report = CHECK.report(CHECK.read(fleet.run_query))
    assert report.summary.startswith("The mail queue of mail1 has 2 messages")
    assert report.table is not None
    assert {tuple(row) for row in report.table.rows} == {
        ("<> (bounces)", "1", "1"),
        ("script 1001:mailer.php", "1", "-"),
        ("shop@example.com", "1", "2"),
    }


def test_empty_exim_queue_is_reported(fleet: Fleet, exim: Exim):
    exim.queue("a@example.com", "b@example.net")
    (message,) = CHECK.read(fleet.run_query).messages
    subprocess.run([exim.command, "-Mrm", message.id], check=True, capture_output=True)
    assert CHECK.report(CHECK.read(fleet.run_query)).summary == "The mail queue of mail1 is empty"


def test_exim_messages_of_one_sender_are_removed_and_others_stay(fleet: Fleet, exim: Exim):
    exim.queue("spam@example.com", "a@example.net")
    exim.queue("spam@example.com", "b@example.net")
    exim.queue("shop@example.com", "c@example.net")
    later = datetime.now(UTC) + timedelta(seconds=2)
    values = {"host": "mail1", "sender": "spam@example.com", "before": later.isoformat()}
    plan = execute_plan(fleet, RemoveMail.model_validate(values))
    assert "2 messages from spam@example.com wait on mail1" in plan.current_state
    assert [one.sender for one in CHECK.read(fleet.run_query).messages] == ["shop@example.com"]


def test_exim_message_is_removed_by_its_id(fleet: Fleet, exim: Exim):
    exim.queue("a@example.com", "b@example.net")
    exim.queue("a@example.com", "c@example.net")
    gone, stays = CHECK.read(fleet.run_query).messages
    execute_plan(fleet, RemoveMail.model_validate({"host": "mail1", "message": gone.id}))
    assert [one.id for one in CHECK.read(fleet.run_query).messages] == [stays.id]


def test_retried_exim_message_that_stays_queued_shows_the_reason(fleet: Fleet, exim: Exim):
    exim.add("begin routers\none:\ndriver = manualroute\nroute_list = * 127.0.0.1")
    exim.add("transport = smtp\nbegin transports\nsmtp:\ndriver = smtp")
    exim.add("begin retry\n* * F,2h,10m")
    retry = _request_retry(fleet, exim)
    (step,) = retry.plan(retry.read(fleet.run_query)).steps
    output = fleet.run_command("mail1", step.do).text
    assert "b@example.net R=one defer (-1): remote host address is the local host" in output
    assert retry.plan(retry.read(fleet.run_query)).steps[0].before == "is frozen"


def test_unroutable_exim_message_is_returned_to_its_sender(fleet: Fleet, exim: Exim):
    plan = execute_plan(fleet, _request_retry(fleet, exim))
    assert "A message that its server refuses for good is returned to its sender." in plan.notes


def _request_retry(fleet: Fleet, exim: Exim) -> RetryMail:
    exim.queue("a@example.com", "b@example.net")
    (message,) = CHECK.read(fleet.run_query).messages
    return RetryMail.model_validate({"host": "mail1", "message": message.id})
