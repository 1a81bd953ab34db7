"""What of a run that is over may be asked for once more, wherever one asks."""

from dataclasses import replace

import pytest

from bot.model.run import ENDED, Run, State
from bot.model.schedule import CronExpression, ScheduleTiming
from bot.workflow import resubmit
from bot.workflow.requests import InvalidRequest
from runbooks import load_catalogue
from runbooks.service_restart import RestartService
from tests.bot.slack.stories import a_run

OVER = a_run(State.STALE)
HOSTS = {"lb1": frozenset({"haproxy"}), "lb2": frozenset({"haproxy"}), "web1": frozenset[str]()}


@pytest.mark.parametrize("state", State)
def test_only_what_is_over_is_asked_for_again(state: State):
    assert (resubmit.why_not_resubmit(a_run(state)) == "") == (state in ENDED)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (a_run(State.RUNNING), "is not over: it is running"),
        (replace(OVER, undo_of=7), "ask for the undo of run 7"),
        (
            replace(OVER, timing=ScheduleTiming("n", CronExpression("@daily", "UTC"))),
            "ask for a schedule",
        ),
        (replace(OVER, words="toy gone"), "there is no runbook 'toy gone' any more"),
    ],
)
def test_where_it_cannot_be_it_says_what_to_do(run: Run, said: str):
    assert said in resubmit.why_not_resubmit(run)
    with pytest.raises(InvalidRequest, match=said):
        resubmit.resubmit_requests(run, HOSTS)


def test_its_values_make_the_same_request():
    spelled, [request] = resubmit.resubmit_requests(OVER, HOSTS)
    assert spelled == ""
    assert isinstance(request, load_catalogue()["abusers clear"])
    assert dict(OVER.fields).items() <= {k: str(v) for k, v in request}.items()


def test_of_several_hosts_those_are_meant_that_fit_by_now():
    run = replace(OVER, fields={**OVER.fields, "host": "lb*"}, hosts=("lb1",))
    spelled, requests = resubmit.resubmit_requests(run, HOSTS)
    assert (spelled, [one.target for one in requests]) == ("lb*", ["lb1", "lb2"])


def test_the_moment_of_asking_is_that_of_asking_again():
    fields = {"host": "web1", "service": "nginx", "since": "2020-01-01T00:00:00Z"}
    run = replace(OVER, words="service restart", fields=fields)
    assert resubmit.resubmit_values(run) == {"host": "web1", "service": "nginx"}
    _, [request] = resubmit.resubmit_requests(run, HOSTS)
    assert isinstance(request, RestartService)
    assert request.since.year > 2020
