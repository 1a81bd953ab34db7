"""Its route of the API counts what its caller may view."""

from tests.bot.api.conftest import ApiHarness


def test_waiting_report_does_not_count_hidden_runs(restricted_desk: ApiHarness):
    def counted(person: str) -> int:
        report = restricted_desk.program(person, "read").get("/report/waiting").json()
        return report["total"]["requested"]

    assert counted("adam") > counted("dora") == 0
