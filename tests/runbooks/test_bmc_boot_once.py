import json

import pytest

from connectors import ipmi
from connectors.command import ApiCall, Shell
from connectors.errors import ParseError
from runbooks import Refused
from runbooks.bmc_boot_once import SetBootOnce
from tests.runbooks.servers import CONTROLLER, FLAGS, SYSTEM, build_server_fleet, recorded

PXE = SetBootOnce.model_validate({"host": "nas1", "device": "pxe"})
USUAL = SetBootOnce.model_validate({"host": "nas1", "device": "usual"})
BOOT = recorded("ilo5-system")["Boot"]
ONCE = BOOT | {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}
ALWAYS = BOOT | {"BootSourceOverrideEnabled": "Continuous", "BootSourceOverrideTarget": "Cd"}


def override(command: object) -> tuple[str, str]:
    assert isinstance(command, ApiCall)
    assert (command.method, command.path) == ("PATCH", SYSTEM)
    boot = json.loads(command.body)["Boot"]
    return boot["BootSourceOverrideEnabled"], boot["BootSourceOverrideTarget"]


@pytest.mark.parametrize(
    ("now", "undo"), [(BOOT, ("Disabled", "None")), (ALWAYS, ("Continuous", "Cd"))]
)
def test_bmc_boot_once_sets_the_next_boot_and_undo_restores_it(now: object, undo: tuple[str, str]):
    (step,) = PXE.plan(PXE.read(build_server_fleet(Boot=now).run_query)).steps
    assert override(step.do) == ("Once", "Pxe")
    assert override(step.undo) == undo


def test_bmc_boot_once_plans_no_steps_when_set_and_can_be_removed():
    fleet = build_server_fleet(Boot=ONCE)
    assert not PXE.plan(PXE.read(fleet.run_query)).steps
    (step,) = USUAL.plan(USUAL.read(fleet.run_query)).steps
    assert override(step.do) == ("Disabled", "None")
    assert override(step.undo) == ("Once", "Pxe")


def test_bmc_boot_once_refuses_a_device_that_the_bmc_lacks():
    only = BOOT | {"BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Hdd"]}
    with pytest.raises(Refused, match="cannot boot it from pxe"):
        PXE.plan(PXE.read(build_server_fleet(Boot=only).run_query))


def test_bmc_boot_once_uses_ipmitool_for_a_server_with_ipmi():
    fleet = build_server_fleet()
    old = PXE.model_copy(update={"host": "old1"})
    (step,) = old.plan(old.read(fleet.run_query)).steps
    assert isinstance(step.do, Shell)
    assert isinstance(step.undo, Shell)
    assert step.do.words[-3:] == ("chassis", "bootdev", "pxe")
    assert step.undo.words[-3:] == ("chassis", "bootdev", "none")
    fleet.script("gate1", ipmi.query_boot_once(CONTROLLER).command, FLAGS.format("8004"))
    assert not old.plan(old.read(fleet.run_query)).steps


@pytest.mark.parametrize(
    ("flags", "device"),
    [("8004", "pxe"), ("8008", "disk"), ("8014", "cd"), ("8018", "setup"), ("803C", "device 15")],
)
def test_ipmi_boot_flags_are_parsed(flags: str, device: str):
    assert ipmi.parse_boot_once(FLAGS.format(flags)) == device


@pytest.mark.parametrize("flags", ["0004", "C004", "8000"])
def test_ipmi_boot_flags_that_are_invalid_or_permanent_set_no_next_boot(flags: str):
    assert ipmi.parse_boot_once(FLAGS.format(flags)) == ""


def test_ipmi_answer_without_boot_flags_is_a_parse_error():
    with pytest.raises(ParseError, match="no boot flags"):
        ipmi.parse_boot_once("Error")
