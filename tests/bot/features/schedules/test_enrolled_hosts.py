"""Schedules of enrolled hosts, which run without signatures only what they name."""

from ruamel.yaml import YAML

from bot.model.run import RequestTerms, Run, State
from bot.model.schedule import ScheduleTiming, parse_cron
from tests.bot.features.schedules.due import fire_schedule
from tests.bot.harness import WEB, Harness
from tests.bot.web.conftest import Site
from tests.toy import SetSwitch

HOURLY = ScheduleTiming("hourly", parse_cron("0 * * * *", "Europe/Amsterdam"))
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def enrol(harness: Harness, *unsigned: str, signed: bool = True) -> None:
    """Enrol lb1. unsigned: what it runs without signatures."""
    file = harness.policies.path / "inventory.yaml"
    yaml = YAML()
    inventory = yaml.load(file)
    inventory["hosts"]["lb1"] |= {"user": "kt", "signed": signed, "unsigned": list(unsigned)}
    yaml.dump(inventory, file)


def request(harness: Harness) -> Run:
    terms = RequestTerms("dora", WEB, timing=HOURLY)
    run = harness.service.request_on_hosts([LAMP_ON], terms, host_pattern="")
    harness.run_queued_work()
    return harness.get_run(run.id)


def test_schedule_of_an_enrolled_host_is_refused(harness: Harness):
    enrol(harness)
    run = request(harness)
    assert run.state is State.REFUSED
    assert "lb1 checks who signed each change, and a schedule signs nothing" in run.summary


def test_schedule_of_a_command_that_the_host_runs_signed_only_is_refused_when_planned(
    harness: Harness,
):
    enrol(harness, "set lamp off")
    run = request(harness)
    assert run.state is State.REFUSED
    assert run.summary.startswith(
        "lb1 runs this only if people sign it, and a schedule signs nothing: set lamp on. Add "
    )


def test_schedule_of_a_command_that_the_host_runs_unsigned_needs_no_signature(site: Site):
    harness = site.harness
    enrol(harness, "set lamp on")
    run = request(harness)
    assert (run.state, run.requirements.requires_signature) == (State.PENDING, False)
    harness.approve(run)
    shown = site.browser("dora").get("/schedules/1").text
    assert "Without signatures, lb1 runs only: set lamp on." in shown


def test_schedule_is_refused_once_its_host_is_enrolled(site: Site):
    harness = site.harness
    harness.approve(request(harness))
    enrol(harness)
    shown = site.browser("dora").get("/schedules/1").text
    assert "The policy refuses these runs: lb1 checks who signed each change, and a sche" in shown
    ended = fire_schedule(harness)
    assert (ended.state, harness.fleet.sent) == (State.REFUSED, [])
    assert "a schedule signs nothing" in ended.summary
