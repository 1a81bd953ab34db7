"""Hosts that Ansible sets up: each an sshd in a mount namespace with an /etc of its own."""

import json
import shlex
from pathlib import Path
from typing import Any

from tests.playground.keys import KeyPair
from tests.playground.sshd import Sshd

# What is changed below these directories is seen by this sshd and its children only.
_BEGIN = """\
set -e
mount -t tmpfs -o size=32m none {layer}
for place in /etc /home /usr/local/lib /var/lib; do
    upper={layer}/upper$place work={layer}/work$place
    mkdir -p "$upper" "$work"
    mount -t overlay -o "lowerdir=$place,upperdir=$upper,workdir=$work" none "$place"
done
printf 'root ALL=(ALL) ALL\\n@includedir /etc/sudoers.d\\n' >/etc/sudoers
rm -f /etc/sudoers.d/*
cp {key} /etc/ssh/ssh_host_ed25519_key.pub
exec "$@"
"""


class BareHost(Sshd):
    """A host as it was installed: root logs in by a key, and nothing of Keyturn is there.

    Logins that Ansible creates read their keys from their own homes.
    """

    def __init__(self, root_key: KeyPair, *, address: str = "127.0.0.1") -> None:
        super().__init__(address=address, client=root_key)
        root_keys = self.directory / "keys_of_root"
        root_keys.write_text(f"{root_key.public}\n")
        self._options = (
            "AllowUsers *",
            f"AuthorizedKeysFile .ssh/authorized_keys {self.directory}/keys_of_%u",
        )

    def describe_for_ansible(self) -> dict[str, Any]:
        """Return the variables by which Ansible reaches it."""
        return {"ansible_host": self.address, "ansible_port": self.port}

    def _configure(self) -> list[str]:
        command = super()._configure()
        (self.directory / "own_key.pub").write_text(f"{self.host_key}\n")
        layer = self.directory / "layer"
        layer.mkdir(exist_ok=True)
        begin = _BEGIN.format(
            layer=shlex.quote(str(layer)), key=shlex.quote(str(self.directory / "own_key.pub"))
        )
        return ["unshare", "-m", "sh", "-c", begin, "begin", *command]


def write_ansible_inventory(path: Path, hosts: dict[str, BareHost], variables: Any) -> Path:
    """Write an inventory for Ansible, in JSON, and return its path."""
    group = {
        "hosts": {name: host.describe_for_ansible() for name, host in hosts.items()},
        "vars": variables,
    }
    path.write_text(json.dumps({"all": group}))
    return path
