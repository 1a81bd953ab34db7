"""The kinds of value that runbooks ask people for."""

from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

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
    """Offer only hosts that carry *tag* in the inventory; the engine refuses any other."""
    return Field(
        description=f"The host to work on: one tagged {tag}",
        json_schema_extra={"choices": "hosts", "tag": tag},
    )


def _parse_address(typed: object) -> IPv4Address | IPv6Address:
    """Take an address as people write it: alone, without mask, port or network card."""
    if isinstance(typed, IPv4Address | IPv6Address):
        typed = str(typed)
    try:
        # Numbers would be taken too (1 is 0.0.0.1), and anything behind a "%".
        return ip_address(typed if isinstance(typed, str) and "%" not in typed else "")
    except ValueError:
        raise ValueError("give one address, such as 203.0.113.9 or 2001:db8::9") from None


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
        description="The stick table that HAProxy keeps its marks in",
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
    # ZFS would take blanks as well; nobody should.
    Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_.:-]{0,99}$",
        description="The ZFS pool, such as tank",
        json_schema_extra={"lists": "pools"},
    ),
]

ServiceName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,127}$",
        description="The service, as systemd calls it, such as nginx",
        json_schema_extra={"lists": "services"},
    ),
]


def _parse_instant(typed: object) -> datetime:
    """Take a moment as people write it; without a time zone it is in UTC."""
    try:
        # A bare number would be taken too, for a day or for seconds since 1970.
        moment = datetime.fromisoformat(str(typed) if "-" in str(typed) else "")
        # A zone's offset may lead out of the years that there are.
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("give a moment, such as 2026-03-01 or 2026-03-01T14:30Z") from None
    return moment.replace(microsecond=0)


Instant = Annotated[
    datetime,
    BeforeValidator(_parse_instant),
    Field(description="A moment, such as 2026-03-01T14:30Z; UTC unless it names its time zone"),
]

AgentName = Annotated[
    str,
    # Nothing here means anything to nginx but "." and "+", which are said as themselves.
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._/+-]{2,78}[A-Za-z0-9]$",
        description="A part of what the client calls itself, such as EvilBot/2",
    ),
]

InterfaceName = Annotated[
    str,
    # Linux takes up to 15 characters; nobody should use odd ones.
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$",
        description="The network interface, such as eth0",
        json_schema_extra={"lists": "interfaces"},
    ),
]
