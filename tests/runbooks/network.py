"""A scripted fleet of switches, routers and a host with a bond, with recorded output."""

from collections.abc import Mapping
from pathlib import Path

from connectors.command import QueryCommand
from connectors.inventory import Inventory
from tests.scripted_fleet import Replies, ScriptedFleet, build_inventory

ANSWERS = Path(__file__).parent.parent / "connectors" / "answers" / "network"


def recorded(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


def build_network_fleet(
    answers: Mapping[tuple[str, str | QueryCommand], Replies],
    *,
    platforms: Mapping[str, str],
    settings: Mapping[str, str] | None = None,
    user: str = "root",
) -> ScriptedFleet:
    """Return hosts with these platforms; `linux` hosts have the settings and the login."""
    hosts: dict[str, object] = {}
    for name, platform in platforms.items():
        entry = build_inventory(name)[name].model_dump(exclude={"name", "settings", "user"})
        linux = {"settings": dict(settings or {}), "user": user} if platform == "linux" else {}
        hosts[name] = {**entry, **linux, "platform": platform}
    return ScriptedFleet(answers, inventory=Inventory.model_validate({"hosts": hosts}))
