"""A small fleet of real hosts on loopback, with its inventory."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ruamel.yaml import YAML

from bot.hosts.host_files import Signer
from connectors.inventory import Inventory
from connectors.step_marker import MARKER_SETTING, NO_MARKER
from tests.playground.daemon import Daemon, close_all, root
from tests.playground.enrolled import EnrolledLogins
from tests.playground.haproxy import Haproxy, Level
from tests.playground.keys import make_key
from tests.playground.nginx import Nginx
from tests.playground.sshd import Sshd

KEY = "keys/keyturn"


def get_agents_file(nginx: Nginx) -> Path:
    """Return the list of blocked agents that Keyturn writes."""
    return nginx.directory / "keyturn-agents.conf"


@dataclass(frozen=True)
class Place:
    """A host to be: its name, and what the inventory says of it.

    Tagged haproxy or nginx, it runs one.
    """

    name: str
    area: str
    tags: tuple[str, ...] = ()
    site: str = "main"


PLACES = (
    Place("lb1", "edge", ("haproxy",)),
    Place("web1", "web", ("web",)),
    Place("db1", "storage", ("database",)),
    Place("nas1", "storage", ("nfs",)),
)
# With a second balancer, and a web server that runs.
SHOP_PLACES = (
    *(PLACES[0], Place("web1", "web", ("nginx", "web")), *PLACES[2:]),
    Place("lb2", "edge", ("haproxy",)),
)


@dataclass(frozen=True)
class Enrolment:
    """What a host that checks signatures knows."""

    signers: Sequence[Signer]
    owners: Sequence[str]
    page: str
    """The origin of the page on which people sign."""


class LoopbackFleet:
    """Starts every host of *places* at once, each with an address and a host key of its own.

    directory: where `inventory.yaml` and `keys/keyturn` are written, such as a policy directory;
        what is written there stays. By default a temporary one, which goes with the fleet.
    level: of the HAProxy socket that the inventory's setting `haproxy.socket` names.
    options: lines of sshd_config for every host.
    enrolled: balancers that check signatures once `enrol` was called, by name. Only root can start
        them.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        places: Sequence[Place] = PLACES,
        level: Level = "operator",
        options: Sequence[str] = (),
        enrolled: Mapping[str, Enrolment] | None = None,
    ) -> None:
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="fleet-", dir=root()))
        self._places = tuple(places)
        self._level: Level = level
        self._client, self._options = make_key(), options
        self.client_key = self._client.write(self.directory / KEY)
        self._enrolled, self._says_enrolled = enrolled or {}, False
        addresses = {place.name: f"127.0.0.{n}" for n, place in enumerate(self._places, start=1)}
        self.haproxies = {
            place.name: Haproxy(address=addresses[place.name])
            for place in self._places
            if "haproxy" in place.tags
        }

        self.nginxes = {
            place.name: Nginx("include keyturn-agents.conf;")
            for place in self._places
            if "nginx" in place.tags
        }
        for nginx in self.nginxes.values():
            get_agents_file(nginx).touch()
        self.hosts = {
            place.name: self._create_host(place, addresses[place.name]) for place in self._places
        }

    def _create_host(self, place: Place, address: str) -> Sshd:
        enrolment = self._enrolled.get(place.name)
        if enrolment is None:
            return Sshd(address=address, client=self._client, options=self._options)
        return EnrolledLogins(
            name=place.name,
            address=address,
            tags=place.tags,
            settings=self._settings(place.name) | {MARKER_SETTING: NO_MARKER},
            signers=enrolment.signers,
            owners=enrolment.owners,
            page=enrolment.page,
            root_key=self._client,
        )

    def enrol(self) -> None:
        """Take root's login away on hosts that check signatures, and say so in the inventory."""
        self._says_enrolled = True
        for name in self._enrolled:
            host = self.hosts[name]
            assert isinstance(host, EnrolledLogins)
            host.refuse_root()
            # The configuration is for all to read on a host.
            haproxy = self.haproxies[name].directory
            for directory in (haproxy, haproxy.parent):
                directory.chmod(0o711)
        self._write_inventory()

    @property
    def haproxy(self) -> Haproxy:
        """The HAProxy of lb1."""
        return self.haproxies["lb1"]

    @property
    def inventory_file(self) -> Path:
        return self.directory / "inventory.yaml"

    @property
    def inventory(self) -> Inventory:
        """What the inventory file says, read and validated."""
        return Inventory.model_validate(YAML(typ="safe", pure=True).load(self.inventory_file))

    def start(self) -> Self:
        try:
            for daemon in self._daemons:
                daemon.launch()
            for daemon in self._daemons:
                daemon.ready()
        except BaseException:  # also Ctrl-C: no half of a fleet is left behind
            self.close()
            raise
        self._write_inventory()
        return self

    def _write_inventory(self) -> None:
        yaml = YAML()
        yaml.width = 200  # a public key stays on its line
        yaml.dump({"hosts": self._entries()}, self.inventory_file)

    def stop(self) -> None:
        """End every daemon; `start` brings them back at the same ports."""
        for daemon in self._daemons:
            daemon.stop()

    def close(self) -> None:
        """Stop, and remove all files but those in a directory that was given."""
        close_all(self._daemons)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _daemons(self) -> list[Daemon]:
        return [*self.haproxies.values(), *self.nginxes.values(), *self.hosts.values()]

    def _entries(self) -> dict[str, dict[str, object]]:
        return {place.name: self._build_entry(place) for place in self._places}

    def _build_entry(self, place: Place) -> dict[str, object]:
        host = self.hosts[place.name]
        if isinstance(host, EnrolledLogins) and self._says_enrolled:
            entry = host.host(area=place.area, site=place.site)
            return entry.model_dump(mode="json", exclude={"name"}, exclude_defaults=True)
        return host.inventory_entry(
            area=place.area,
            tags=place.tags,
            site=place.site,
            settings=self._settings(place.name),
            key=KEY,
        )

    def _settings(self, name: str) -> dict[str, str]:
        nginx = self.nginxes.get(name)
        if nginx is not None:
            agents = str(get_agents_file(nginx))
            return {"nginx.config": str(nginx.configuration), "nginx.agents": agents}
        haproxy = self.haproxies.get(name)
        if haproxy is None:
            return {}
        return {
            "haproxy.socket": haproxy.socket(self._level),
            "haproxy.config": str(haproxy.config),
        }
