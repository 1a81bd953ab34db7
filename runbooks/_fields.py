"""Field types for runbooks.

Annotate a field with one of them, such as `address: Address`. Each validates its value and has a
description for forms and help. The following keys of `json_schema_extra` control forms:

* `choices: "hosts"`: hosts of the inventory, only those with the tag `tag` if it is set.
* `lists: NAME`: values that the host itself lists, by a function in `_lists.LISTS`.
* `within: [FIELD, …]`: other fields that such a list depends on.
"""

from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from connectors import zpool

# A name is looked up in the inventory and never reaches a command line.
Host = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="The host to work on",
        json_schema_extra={"choices": "hosts"},
    ),
]


def make_host_field(tag: str) -> Any:
    """Return a field for hosts with *tag* in the inventory; Keyturn refuses any other host.

    Use it as the default: `host: Host = make_host_field("zfs")`.
    """
    return Field(
        description=f"The host to work on: one tagged {tag}",
        json_schema_extra={"choices": "hosts", "tag": tag},
    )


def _parse_address(value: object) -> IPv4Address | IPv6Address:
    """Parse an address without mask, port or network card."""
    if isinstance(value, IPv4Address | IPv6Address):
        value = str(value)
    try:
        # ip_address also accepts numbers (1 is 0.0.0.1), and anything after a "%".
        return ip_address(value if isinstance(value, str) and "%" not in value else "")
    except ValueError:
        raise ValueError("enter one IP address, such as 203.0.113.9 or 2001:db8::9") from None


Address = Annotated[
    IPv4Address | IPv6Address,
    BeforeValidator(_parse_address),
    Field(description="One IPv4 or IPv6 address"),
]

TableName = Annotated[
    str,
    # Names of proxies; a table of a `peers` section is written peers/table.
    Field(
        pattern=r"^[A-Za-z0-9_.:-]{1,64}(/[A-Za-z0-9_.:-]{1,64})?$",
        description="The stick table of HAProxy with the marks",
        json_schema_extra={"lists": "tables"},
    ),
]

CounterName = Annotated[
    str,
    Field(
        pattern=r"^gp[ct][0-9]{1,2}$",
        description="The counter that marks an abuser, as `show table` prints it",
    ),
]

PoolName = Annotated[
    str,
    Field(
        pattern=rf"^{zpool.POOL}$",
        description="The ZFS pool, such as tank",
        json_schema_extra={"lists": "pools"},
    ),
]

DatasetName = Annotated[
    str,
    Field(
        pattern=rf"^{zpool.DATASET}$",
        description="The dataset, such as tank/home",
    ),
]

ServiceName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,127}$",
        description="The systemd service, such as nginx",
        json_schema_extra={"lists": "services"},
    ),
]


def _parse_instant(value: object) -> datetime:
    """Parse a date or time; without a time zone it is in UTC."""
    try:
        # fromisoformat also accepts a bare number as a date.
        time = datetime.fromisoformat(str(value) if "-" in str(value) else "")
        # The offset of a zone may lead out of the range of years.
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("enter a time, such as 2026-03-01 or 2026-03-01T14:30Z") from None
    return time.replace(microsecond=0)


Instant = Annotated[
    datetime,
    BeforeValidator(_parse_instant),
    Field(description="A time, such as 2026-03-01T14:30Z; UTC unless it has a time zone"),
]

AgentName = Annotated[
    str,
    # Of these, only "." and "+" are special to nginx, and they are escaped.
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._/+-]{2,78}[A-Za-z0-9]$",
        description="A part of the client's user agent, such as EvilBot/2",
    ),
]

InterfaceName = Annotated[
    str,
    # Linux allows up to 15 characters, also unusual ones, which Keyturn does not.
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$",
        description="The network interface, such as eth0",
        json_schema_extra={"lists": "interfaces"},
    ),
]

BondName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$",
        description="The bond, such as bond0, without a VLAN",
        json_schema_extra={"lists": "bonds"},
    ),
]
