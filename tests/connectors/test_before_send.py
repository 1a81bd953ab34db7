"""The check right before a command is sent, on a real connection."""

from pathlib import Path

import pytest

from connectors.command import RunHooks, Shell
from connectors.errors import UnreachableError
from connectors.inventory import Host
from connectors.ssh_pool import SshPool
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real


class TooLateError(UnreachableError):
    """The hook refuses."""


def test_command_is_not_sent_over_an_open_connection_when_before_send_refuses(
    sshd: Sshd, tmp_path: Path
):
    """A hook that does not refuse comes first: the same command is sent."""
    host = Host.model_validate({**sshd.inventory_entry(area="infra"), "name": "web1"})
    sessions, asked = SshPool(Path("/")), list[str]()

    def refuse() -> None:
        # By now there is a login: only the command itself is missing.
        asked.append(f"after {sshd.accepted} logins")
        raise TooLateError("nothing was sent")

    try:
        allowing = RunHooks(lambda: asked.append("cleared"))
        sessions.run(host, Shell(("touch", str(tmp_path / "first"))), hooks=allowing)
        with pytest.raises(TooLateError) as refused:
            sessions.run(host, Shell(("touch", str(tmp_path / "second"))), hooks=RunHooks(refuse))
        assert refused.value.started is False
        sessions.run(host, Shell(("touch", str(tmp_path / "third"))))
    finally:
        sessions.close()
    assert asked == ["cleared", "after 1 logins"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["first", "third"]
