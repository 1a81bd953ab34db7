"""SNMP: read tables of a device, and set values there, by version 3 or 2c.

Each command has an engine of its own and ends with it: a device is asked a few times a day, and an
engine that several threads shared would have to be locked. pysnmp sends a request again if no
response arrives. Reading may be repeated; setting may not, since a repeated power cycle is a
second one. So a set is sent once, and without a response its outcome is unknown.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pysnmp.error import PySnmpError
from pysnmp.hlapi.v3arch.asyncio import (
    USM_AUTH_HMAC96_MD5,
    USM_AUTH_HMAC96_SHA,
    USM_AUTH_HMAC128_SHA224,
    USM_AUTH_HMAC192_SHA256,
    USM_AUTH_HMAC256_SHA384,
    USM_AUTH_HMAC384_SHA512,
    USM_PRIV_CBC56_DES,
    USM_PRIV_CFB128_AES,
    USM_PRIV_CFB192_AES,
    USM_PRIV_CFB256_AES,
    CommunityData,
    ContextData,
    ObjectIdentity,
    ObjectType,
    SnmpEngine,
    Udp6TransportTarget,
    UdpTransportTarget,
    UsmUserData,
    get_cmd,  # pyright: ignore[reportUnknownVariableType] - its options have no types
    set_cmd,  # pyright: ignore[reportUnknownVariableType] - its options have no types
    walk_cmd,  # pyright: ignore[reportUnknownVariableType] - its options have no types
)
from pysnmp.proto import errind
from pysnmp.proto.rfc1902 import Integer, Integer32, OctetString

from connectors import password
from connectors.command import Answer, RemoteCommand, RunHooks, SnmpWalk, SwitchLines
from connectors.errors import (
    CommandError,
    LoginError,
    SetupError,
    UnknownOutcomeError,
    UnreachableError,
)
from connectors.inventory import Host, Snmp

# Seconds to wait for each response, and how often a reading is repeated: those of Net-SNMP's tools
# (snmpcmd(1), -t and -r), with more time for the small processors of power strips.
_TIMEOUT, _RETRIES = 3, 3
_AUTH: Mapping[str, Any] = {
    "md5": USM_AUTH_HMAC96_MD5,
    "sha": USM_AUTH_HMAC96_SHA,
    "sha224": USM_AUTH_HMAC128_SHA224,
    "sha256": USM_AUTH_HMAC192_SHA256,
    "sha384": USM_AUTH_HMAC256_SHA384,
    "sha512": USM_AUTH_HMAC384_SHA512,
}
_PRIVACY: Mapping[str, Any] = {
    "des": USM_PRIV_CBC56_DES,
    "aes": USM_PRIV_CFB128_AES,
    "aes192": USM_PRIV_CFB192_AES,
    "aes256": USM_PRIV_CFB256_AES,
}
# sysDescr of SNMPv2-MIB (RFC 3418), which every agent has.
_SYSTEM_DESCRIPTION = "1.3.6.1.2.1.1.1.0"
_SET_LINE = re.compile(r"(1(?:\.[0-9]+)+) i (-?[0-9]+)", re.ASCII)
# What an agent, or the check of its response, says of a wrong user or passphrase.
_LOGIN_ERRORS = (
    errind.UnknownUserName,
    errind.UnknownSecurityName,
    errind.WrongDigest,
    errind.AuthenticationFailure,
    errind.AuthenticationError,
    errind.DecryptionError,
    errind.UnsupportedSecurityLevel,
)


def run_command(host: Host, keys: Path, command: RemoteCommand, hooks: RunHooks) -> Answer:
    """Run a resolved command on a device. keys: the directory that its files are relative to.

    Raises HostError, whose `started` says whether a value may have been set.
    """
    if host.snmp is None or not isinstance(command, SnmpWalk | SwitchLines):
        raise SetupError(f"{host.name} does not run such a command. Nothing was sent")
    settings = _parse_lines(command) if isinstance(command, SwitchLines) else ()
    authentication = _load_authentication(host.snmp, keys)
    connection = _Connection(host, authentication)
    try:
        if isinstance(command, SnmpWalk):
            return asyncio.run(connection.walk_columns(command.columns, hooks))
        return asyncio.run(connection.set_values(settings, hooks))
    except PySnmpError as error:
        raise UnreachableError(f"{host.name} cannot be reached by SNMP: {error}") from None


def _parse_lines(command: SwitchLines) -> Sequence[tuple[str, int]]:
    found = [_SET_LINE.fullmatch(line) for line in command.lines]
    values = [(one[1], int(one[2])) for one in found if one]
    if not values or len(values) != len(found):
        raise SetupError("these lines are not for SNMP. Nothing was sent")
    return values


def _load_authentication(snmp: Snmp, keys: Path) -> UsmUserData | CommunityData:
    if snmp.community_file is not None:
        community = password.load_password(keys / snmp.community_file).text
        return CommunityData(community, mpModel=1)  # noqa: S508 - `policy check` warns of it
    if snmp.auth_file is None or snmp.privacy_file is None:
        raise SetupError("the inventory has no passphrases for this device. Nothing was sent")
    try:
        return UsmUserData(
            snmp.user,
            authKey=password.load_password(keys / snmp.auth_file).text,
            privKey=password.load_password(keys / snmp.privacy_file).text,
            authProtocol=_AUTH[snmp.auth],
            privProtocol=_PRIVACY[snmp.privacy],
        )
    except PySnmpError:
        raise SetupError("the passphrases of this device have an invalid length") from None


class _Connection:
    """The requests of one command."""

    def __init__(self, host: Host, authentication: UsmUserData | CommunityData) -> None:
        self._host, self._authentication = host, authentication

    async def walk_columns(self, columns: Sequence[str], hooks: RunHooks) -> Answer:
        """Return every value below these columns, one in each line."""
        engine = SnmpEngine()
        try:
            hooks.before_send()
            request = (engine, self._authentication, await self._make_target(_RETRIES))
            lines: list[str] = []
            for column in columns:
                async for error, status, _, values in walk_cmd(
                    *request, ContextData(), _make_object(column), lookupMib=False
                ):
                    self._check_response(error, status)
                    objects = cast("Sequence[tuple[Any, Any]]", values)
                    rows = [(str(oid), value) for oid, value in objects]
                    # An agent without this table goes on with what comes after it.
                    if not all(oid.startswith(f"{column}.") for oid, _ in rows):
                        break
                    lines += [_format_value(oid, value) for oid, value in rows]
            return Answer(0, "".join(f"{line}\n" for line in lines))
        finally:
            engine.close_dispatcher()

    async def set_values(self, values: Sequence[tuple[str, int]], hooks: RunHooks) -> Answer:
        """Set values by one message, which is sent once."""
        engine = SnmpEngine()
        try:
            # Version 3 first finds out the engine and its clock, which takes requests that may be
            # repeated.
            target = await self._make_target(_RETRIES)
            error, status, *_ = await get_cmd(
                engine,
                self._authentication,
                target,
                ContextData(),
                _make_object(_SYSTEM_DESCRIPTION),
                lookupMib=False,
            )
            self._check_response(error, status)
            once = await self._make_target(0)
            hooks.before_send()
            objects = [_make_object(oid, Integer32(value)) for oid, value in values]
            error, status, *_ = await set_cmd(
                engine, self._authentication, once, ContextData(), *objects, lookupMib=False
            )
            self._check_set_response(error, status)
            return Answer(0, "".join(f"{oid} = INTEGER: {value}\n" for oid, value in values))
        finally:
            engine.close_dispatcher()

    async def _make_target(self, retries: int) -> Any:
        kind = Udp6TransportTarget if ":" in self._host.address else UdpTransportTarget
        address = (self._host.address, self._host.port)
        return await kind.create(address, timeout=_TIMEOUT, retries=retries)

    def _check_response(self, error: Any, status: Any) -> None:
        """Raise HostError for a response that is none, or that has an error."""
        if isinstance(error, _LOGIN_ERRORS):
            raise LoginError(
                f"{self._host.name} refuses {self._host.snmp}: check the user, its protocols and "
                f"its passphrase files ({error})"
            )
        if error:
            raise UnreachableError(
                f"{self._host.name} does not answer SNMP at {self._host.address}, port "
                f"{self._host.port} ({error}): check that its SNMP is on, that it accepts this "
                "machine, and, for version 2c, the community"
            )
        if status:
            raise CommandError(f"{self._host.name} returns {status.prettyPrint()}")

    def _check_set_response(self, error: Any, status: Any) -> None:
        if error and not isinstance(error, _LOGIN_ERRORS):
            raise UnknownOutcomeError(
                f"{self._host.name} did not confirm that the value was set ({error}): it may or "
                "may not have been"
            )
        try:
            self._check_response(error, status)
        except CommandError as refused:
            raise CommandError(
                f"{refused}: give {self._host.snmp} the right to write on the device"
            ) from None


def _make_object(oid: str, *value: Integer32) -> ObjectType:
    return ObjectType(ObjectIdentity(oid), *value)


def _format_value(oid: str, value: Any) -> str:
    """Return a value as one line. Bytes that are not UTF-8 become `\\xNN`."""
    if isinstance(value, Integer32 | Integer):
        return f".{oid} = INTEGER: {int(value)}"
    if isinstance(value, OctetString):
        text = bytes(value).decode(errors="backslashreplace")
        return f".{oid} = STRING: {json.dumps(text)}"
    return f".{oid} = {type(value).__name__}: {json.dumps(value.prettyPrint())}"
