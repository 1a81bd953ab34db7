"""The status of a host without contacting it."""

from typing import Any

import pytest

from bot.queries.host_status import HostKeyKind, HostLogin, HostStatus
from connectors.inventory import Host

V3 = {"user": "keyturn", "auth_file": "a", "privacy_file": "p"}


@pytest.mark.parametrize(
    ("snmp", "changes", "login"),
    [
        (V3, True, HostLogin("keyturn", "reads and changes", "passphrases")),
        (V3, False, HostLogin("keyturn", "reads", "passphrases")),
        ({"community_file": "c"}, True, HostLogin("SNMP 2c", "reads and changes", "a community")),
    ],
)
def test_snmp_device_has_no_host_key_and_one_login(
    snmp: dict[str, str], login: HostLogin, *, changes: bool
):
    fields: dict[str, Any] = {"name": "pdu1", "address": "192.0.2.9", "area": "infra"}
    host = Host.model_validate({**fields, "platform": "snmp", "snmp": snmp, "changes": changes})
    status = HostStatus(host, "infra", "infra", (), None, "", None, None, ())
    assert (status.host_key_kind, status.logins) == (HostKeyKind.SNMP, [login])
