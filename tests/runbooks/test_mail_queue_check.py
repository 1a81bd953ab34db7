from connectors import exim, postfix
from connectors.mail_message import MailMessage, MailQueue
from runbooks.mail_queue_check import MailQueueCheck
from tests.connectors.test_exim import THREE
from tests.connectors.test_postfix import THREE as THREE_OF_POSTFIX
from tests.scripted_fleet import ScriptedFleet

CHECK = MailQueueCheck.model_validate({"host": "mail1"})


def messages(count: int, sender: str, *, age: int = 60, to: int = 1) -> tuple[MailMessage, ...]:
    left = [f"a{n}@example.net" for n in range(to)]
    return tuple(
        MailMessage(age, 1000, f"m{n}", sender, is_frozen=False, recipients=left)
        for n in range(count)
    )


def test_mail_queue_with_few_messages_is_healthy():
    fleet = ScriptedFleet(
        {
            ("mail1", postfix.query_is_installed().command): "",
            ("mail1", exim.query_queue().command): THREE,
        }
    )
    report = CHECK.report(CHECK.read(fleet.run_query))
    assert report.healthy
    assert report.summary == (
        "The mail queue of mail1 has 3 messages (902 B), 1 of them frozen; the oldest has waited "
        "for less than a minute"
    )
    assert report.table is not None
    assert report.table.rows == [
        ("shop@example.com", "2", "3"),
        ("<> (bounces)", "1", "1"),
        ("script 1001:mailer.php", "2", "-"),
    ]


def test_mail_queue_check_reads_postfix_where_it_is_installed():
    fleet = ScriptedFleet(
        {
            ("mail1", postfix.query_is_installed().command): "/usr/sbin/postqueue\n",
            ("mail1", postfix.query_queue().command): THREE_OF_POSTFIX,
        }
    )
    report = CHECK.report(CHECK.read(fleet.run_query))
    assert report.summary == (
        "The mail queue of mail1 has 3 messages (854 B), 1 of them frozen; the oldest has waited "
        "for 5 s"
    )
    assert report.table is not None
    assert set(report.table.rows) == {
        ("shop@example.com", "1", "2"),
        ("eve@example.com", "1", "1"),
        ("<> (bounces)", "1", "1"),
        ("script 1001:mailer.php", "1", "-"),
    }


def test_mail_queue_check_reports_messages_that_were_only_counted():
    report = CHECK.report(MailQueue(messages(10, "ada@example.com"), (), unlisted_count=5000))
    assert report.summary.startswith("The mail queue of mail1 has 5,010 messages")
    assert report.findings[0].startswith("5,000 messages were only counted")


def test_mail_queue_check_reports_an_empty_queue():
    assert CHECK.report(MailQueue((), ())).summary == "The mail queue of mail1 is empty"


def test_sender_or_script_of_many_queued_messages_is_a_finding():
    report = CHECK.report(MailQueue(messages(100, "eve@example.com"), ("1001:x.php",) * 100))
    assert not report.healthy
    assert "100 messages are from eve@example.com" in report.findings[0]
    assert "sent by the script 1001:x.php" in report.findings[1]
    assert CHECK.report(MailQueue(messages(99, "ada@example.com"), ("1001:x.php",) * 99)).healthy


def test_many_bounces_in_the_mail_queue_are_a_finding():
    (finding,) = CHECK.report(MailQueue(messages(100, ""), ())).findings
    assert finding.startswith("100 are bounces that no server accepts")


def test_queued_message_with_many_recipients_is_a_finding():
    (finding,) = CHECK.report(MailQueue(messages(1, "eve@example.com", to=150), ())).findings
    assert finding == "m0 from eve@example.com is for 150 people"


def test_messages_queued_for_over_three_days_are_a_finding():
    (finding,) = CHECK.report(MailQueue(messages(2, "a@example.com", age=4 * 86400), ())).findings
    assert finding.startswith("2 have waited for over three days")
