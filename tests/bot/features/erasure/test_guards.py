"""Without the check of who confirms, one person alone erases output."""

import pytest

from bot.db import runs
from bot.features.erasure import actions
from bot.features.erasure.actions import ErasureActions
from bot.features.erasure.readings import preview_erasure
from bot.model.errors import NotAllowed
from bot.model.run import Run, State
from tests.bot.harness import Harness
from tests.toy import SetSwitch

WHY = "it names a customer"
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


class TestErasure:
    @pytest.fixture
    def done(self, harness: Harness) -> Run:
        return harness.approve(harness.request(LAMP_ON))

    def _alone(self, harness: Harness, run: Run) -> str:
        """Let one person ask and confirm, and return what is left of the answer."""
        harness.service.bind(ErasureActions).request_erasure(
            run.id, person="olga", reason=WHY, source="web"
        )
        with harness.database.reading() as tx:
            digest = preview_erasure(tx, runs.get_run(tx, run.id)).digest
        harness.service.bind(ErasureActions).confirm_erasure(run.id, person="olga", digest=digest)
        with harness.database.reading() as tx:
            return runs.list_steps(tx, run.id)[0].output

    def test_erasure_needs_confirmation_by_a_second_person(self, harness: Harness, done: Run):
        assert done.state is State.SUCCEEDED
        with pytest.raises(NotAllowed, match="another person"):
            self._alone(harness, done)

    def test_without_the_confirmation_check_one_person_erases_output(
        self, harness: Harness, done: Run, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(actions, "get_confirmation_refusal", _find_no_reason)
        assert self._alone(harness, done) == ""


def _find_no_reason(*_: object) -> str:
    return ""
