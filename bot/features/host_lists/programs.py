"""The programs that give Keyturn its rights on the hosts of a list, before it is confirmed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bot.features.host_lists.changes import HostListFile
from bot.hosts.host_files import build_enrolment
from bot.hosts.sudo_rules import format_install_program
from bot.model.errors import InvalidRequestError
from bot.policy.freezes import FreezeList
from bot.policy.loader import describe_validation_error, load_policy
from connectors.inventory import Host


def build_programs(directory: Path, data: Mapping[str, Any], *, page: str) -> Mapping[str, str]:
    """Return the program of each host of a list, by the name of its file.

    Args:
        directory: Of the policy.
        data: The list, as its file has it.
        page: The address on which people sign, for hosts that check signatures; "" for sudo rules.

    Raises:
        InvalidRequestError: A host of the list is not valid.
        SetupError: A host cannot check signatures.
    """
    policy = load_policy(directory)
    hosts: list[Host] = []
    try:
        listed = HostListFile.model_validate(data)
        for name, one in listed.hosts.items():
            known = policy.inventory.hosts.get(name)
            fields = known.model_dump(mode="json", exclude_none=True) if known else {}
            hosts.append(Host.model_validate({**fields, **one.given, "name": name}))
    except ValidationError as error:
        raise InvalidRequestError(describe_validation_error(error)) from None
    for host in hosts:
        if host.area not in policy.organisation.areas:
            raise InvalidRequestError(f"{host.name}: area {host.area} is not in areas.yaml")
    with_hosts = policy.with_hosts_and_freezes(hosts, FreezeList())
    return {
        f"{host.name}.sh": build_enrolment(with_hosts, host, page)
        if page
        else format_install_program(host)
        for host in hosts
        if host.platform == "linux"
    }
