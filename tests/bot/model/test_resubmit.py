"""Which ended runs can be requested again, and with which values."""

from dataclasses import replace

import pytest

from bot.model import resubmit
from bot.model.errors import InvalidRequestError
from bot.model.run import ENDED_STATES, Run, State
from bot.model.schedule import CronExpression, ScheduleTiming
from runbooks import load_catalogue
from runbooks.service_control import RestartService
from tests.bot.slack.sample_views import build_run

OVER = build_run(State.STALE)
HOSTS = {"lb1": frozenset({"haproxy"}), "lb2": frozenset({"haproxy"}), "web1": frozenset[str]()}


@pytest.mark.parametrize("state", State)
def test_only_an_ended_run_can_be_resubmitted(state: State):
    assert (resubmit.get_resubmit_refusal(build_run(state)) == "") == (state in ENDED_STATES)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (build_run(State.RUNNING), "has not ended: it is running"),
        (replace(OVER, undo_of=7), "request the undo of run 7"),
        (
            replace(OVER, timing=ScheduleTiming("n", CronExpression("@daily", "UTC"))),
            "request a new schedule",
        ),
        (replace(OVER, runbook="toy gone"), "the runbook 'toy gone' does not exist any more"),
    ],
)
def test_refusal_to_resubmit_a_run_names_what_to_do(run: Run, message: str):
    assert message in resubmit.get_resubmit_refusal(run)
    with pytest.raises(InvalidRequestError, match=message):
        resubmit.build_resubmit_requests(run, HOSTS)


def test_resubmitted_run_has_the_same_values():
    spelled, [request] = resubmit.build_resubmit_requests(OVER, HOSTS)
    assert spelled == ""
    assert isinstance(request, load_catalogue()["abusers clear"])
    assert dict(OVER.values).items() <= {k: str(v) for k, v in request}.items()


def test_resubmitted_host_pattern_matches_the_current_hosts():
    run = replace(OVER, values={**OVER.values, "host": "lb*"}, hosts=("lb1",))
    spelled, requests = resubmit.build_resubmit_requests(run, HOSTS)
    assert (spelled, [one.target for one in requests]) == ("lb*", ["lb1", "lb2"])


def test_resubmitted_run_has_a_new_request_time():
    fields = {"host": "web1", "service": "nginx", "since": "2020-01-01T00:00:00Z"}
    run = replace(OVER, runbook="service restart", values=fields)
    assert resubmit.get_resubmit_values(run) == {"host": "web1", "service": "nginx"}
    _, [request] = resubmit.build_resubmit_requests(run, HOSTS)
    assert isinstance(request, RestartService)
    assert request.since.year > 2020
