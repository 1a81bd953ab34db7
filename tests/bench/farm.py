"""A farm: many real sshd's on loopback, each a process with an address and a host key of its own.

One process could listen at sixteen addresses at most and would share its host keys and its list
of startups among them; hosts do not. So each host is an sshd of its own, at 127.0.x.y.
"""

from pathlib import Path
from typing import Self

from ruamel.yaml import YAML

from connectors.inventory import Host, Inventory
from tests.playground.daemon import close_all
from tests.playground.keys import make_key
from tests.playground.sshd import Sshd
from tests.policies import write_policy

_AT_ONCE = 40
KEY = "keys/keyturn"


class Farm:
    """So many hosts, web1 …, in a policy directory whose rules let a request go to all of them."""

    def __init__(self, directory: Path, count: int) -> None:
        self.policy = directory / "policy"
        write_policy(self.policy)
        client = make_key()
        self.key = client.write(self.policy / KEY)
        self.servers = [
            Sshd(
                address=f"127.{1 + n // 62500}.{n // 250 % 250}.{n % 250 + 1}",
                client=client,
            )
            for n in range(count)
        ]

    @property
    def names(self) -> list[str]:
        return [f"web{n}" for n in range(1, len(self.servers) + 1)]

    @property
    def inventory(self) -> Inventory:
        entries = YAML(typ="safe", pure=True).load(self.policy / "inventory.yaml")
        return Inventory.model_validate(entries)

    @property
    def hosts(self) -> list[Host]:
        inventory = self.inventory
        return [inventory[name] for name in self.names]

    def places(self) -> list[str]:
        """Return address:port of each."""
        return [f"{server.address}:{server.port}" for server in self.servers]

    def __enter__(self) -> Self:
        try:
            for first in range(0, len(self.servers), _AT_ONCE):
                batch = self.servers[first : first + _AT_ONCE]
                for server in batch:
                    server.launch()
                for server in batch:
                    server.ready()
        except BaseException:
            self.close()
            raise
        self._tell_the_policy()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        close_all(self.servers)

    def _tell_the_policy(self) -> None:
        yaml = YAML()
        yaml.width = 200
        entries = {
            name: server.inventory_entry(area="web", tags=("web",), key=KEY)
            for name, server in zip(self.names, self.servers, strict=True)
        }
        yaml.dump({"hosts": entries}, self.policy / "inventory.yaml")
        areas = "areas:\n  web: {title: the web servers, owners: [olga]}\n"
        (self.policy / "areas.yaml").write_text(areas)
        rules = self.policy / "policy.cedar"
        text = rules.read_text()
        for name in ("checks need no approval", "developers request, owners approve"):
            text = text.replace(f'@id("{name}")', f'@id("{name}") @hosts("{len(self.servers)}")')
        rules.write_text(text)
