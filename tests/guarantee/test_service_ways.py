"""A thief of the whole Keyturn changes nothing on an enrolled host over real sshd and sudo."""

import subprocess
from collections.abc import Generator

import pytest

from tests.guarantee.attacked_host import AttackedHost, open_attacked_host
from tests.guarantee.campaign import list_changing, select_ways, service_way_changes
from tests.guarantee.service_ways import SERVICE_TWINS, ServiceTwin, list_service_ways

pytestmark = pytest.mark.real
_ALL = list_service_ways()
_KINDS = sorted({way.kind for way in _ALL})
_TRIED = select_ways(_ALL, SERVICE_TWINS)


@pytest.fixture(scope="module")
def attacked() -> Generator[AttackedHost]:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may give a server logins of its own")
    with open_attacked_host() as host:
        yield host


@pytest.mark.parametrize("kind", _KINDS)
def test_no_way_through_a_stolen_keyturn_changes_the_host(attacked: AttackedHost, kind: str):
    ways = [way for way in _TRIED if way.kind == kind]
    assert [way.name for way in list_changing(attacked, ways)] == []


def test_at_least_thirty_ways_lead_through_the_service_or_its_logins():
    assert len(_ALL) >= 30


@pytest.mark.parametrize("twin", SERVICE_TWINS, ids=lambda twin: twin.protection)
def test_without_a_protection_the_way_changes_the_host(attacked: AttackedHost, twin: ServiceTwin):
    assert service_way_changes(attacked, twin)
