"""`keyturn freeze`: list freezes, order one, end it."""

from tests.bot.cli.test_runs import CliService


def test_freeze_commands_list_order_and_end(cli_service: CliService):
    assert cli_service.type("dora", "freeze", "list").stderr == "No freezes.\n"
    words = ("freeze", "order", "lb1", "--until", "2h", "--reason", "the fair")
    refused = cli_service.type("dora", *words)
    assert refused.exit_code == 4
    assert "only owners of" in refused.stderr
    ordered = cli_service.type("olga", *words)
    assert ordered.stdout.split()[:2] == ["1", "active"]
    assert "the fair" in cli_service.type("dora", "freeze", "list").stdout
    assert cli_service.type("olga", "freeze", "end", "1").stderr == "No freezes.\n"
    assert cli_service.type("olga", "freeze", "end", "1").exit_code == 3
