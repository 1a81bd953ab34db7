"""The last word before the packet, on a real connection: a connection is not a command yet."""

from pathlib import Path

import pytest

from connectors.clearance import cleared_by
from connectors.command import Shell
from connectors.inventory import Host
from connectors.sessions import Sessions
from connectors.trouble import Unreachable
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real


class TooLate(Unreachable):
    """What whoever is asked says."""


def test_what_is_not_cleared_any_more_is_not_sent_over_a_connection_that_stands(
    sshd: Sshd, tmp_path: Path
):
    """Its twin first: cleared, the very same command is sent."""
    host = Host.model_validate({**sshd.inventory_entry(area="infra"), "name": "web1"})
    sessions, asked = Sessions(Path("/")), list[str]()

    def refuse() -> None:
        # By now there is a login: only the command itself is missing.
        asked.append(f"after {sshd.accepted} logins")
        raise TooLate("nothing was sent")

    try:
        with cleared_by(lambda: asked.append("cleared")):
            sessions.run(host, Shell(("touch", str(tmp_path / "first"))))
        with cleared_by(refuse), pytest.raises(TooLate) as refused:
            sessions.run(host, Shell(("touch", str(tmp_path / "second"))))
        assert refused.value.started is False
        # What is said to nobody in particular is sent as ever.
        sessions.run(host, Shell(("touch", str(tmp_path / "third"))))
    finally:
        sessions.close()
    assert asked == ["cleared", "after 1 logins"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["first", "third"]
