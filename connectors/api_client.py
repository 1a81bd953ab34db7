"""Calls of the HTTPS interfaces that manage hosts: Redfish of a BMC, the XML API of an HP MSA.

`https` verifies the certificate before anything is sent, and sends a call once: a lost answer is
an unknown outcome.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from connectors import https, msa_xml, password
from connectors.command import NO_HOOKS, Answer, ApiCall, RunHooks
from connectors.errors import (
    CommandError,
    HostError,
    HostKeyMismatchError,
    LoginError,
    OutputLimitError,
    ParseError,
    SetupError,
    UnknownOutcomeError,
    UnreachableError,
)
from connectors.inventory import Host
from connectors.password import Password
from connectors.visible_text import quote_text

_LIMITS = https.Limits(seconds=60, max_bytes=4 * 1024 * 1024)
_CONDITION_STATUSES = (HTTPStatus.PRECONDITION_REQUIRED, HTTPStatus.PRECONDITION_FAILED)


class ApiClient:
    """Makes calls. Any thread without an event loop can use it.

    Args:
        files: the directory that password and CA files in the inventory are relative to.
        poll_seconds: between two readings of the power state.
    """

    def __init__(self, files: Path, *, poll_seconds: float = 2.0) -> None:
        self._files = files
        self._poll_seconds = poll_seconds

    def call(self, host: Host, call: ApiCall, hooks: RunHooks = NO_HOOKS) -> Answer:
        """Make a resolved call, and wait for the power state that it names.

        Returns the document as text; "" for an answer without one. Raises HostError.
        """
        interface = _Interface(host, self._files)
        return asyncio.run(self._call(interface, call, hooks))

    async def _call(self, interface: "_Interface", call: ApiCall, hooks: RunHooks) -> Answer:
        async with interface.open_client() as client:
            if call.method == "GET":
                await interface.log_in(client)
                try:
                    return Answer(0, await interface.get(client, call.path))
                finally:
                    await interface.log_out(client)
            answer = await interface.change(client, call, hooks)
            if call.power_state:
                await self._await_power_state(interface, client, call)
            return Answer(0, answer)

    async def _await_power_state(
        self, interface: "_Interface", client: https.Client, call: ApiCall
    ) -> None:
        """Read the resource until it has the power state; a BMC may be silent meanwhile."""
        last = "nothing"
        try:
            async with asyncio.timeout(call.deadline):
                while last != call.power_state:
                    await asyncio.sleep(self._poll_seconds)
                    try:
                        text = await interface.get(client, call.watched_path)
                        resource = cast("Mapping[str, Any]", json.loads(text))
                        last = str(resource.get("PowerState") or "unknown")
                    except HostError:
                        continue
        except TimeoutError:
            raise CommandError(
                f"{interface} accepted the request, and the power is {quote_text(last)}, not "
                f"{call.power_state}, after {call.deadline} s"
            ) from None
        except (ValueError, AttributeError):
            raise ParseError(
                f"{interface} accepted the request, and does not return the power state"
            ) from None


class _ConditionError(CommandError):
    """The BMC did nothing: the call names no version of the resource, or not the present one.

    Some return 412 also for a call without a version, for which 428 is meant (RFC 6585).
    """


class _Interface:
    """The management interface of a host, with its login."""

    def __init__(self, host: Host, files: Path) -> None:
        self._host, self._entry, self._files = host, host.interface, files
        self._port = self._entry.port or 443

    def __str__(self) -> str:
        what = self._host.name if self._host.msa else f"the BMC of {self._host.name}"
        return f"{what} ({self._entry.address}:{self._port})"

    def open_client(self) -> https.Client:
        name = f"[{self._entry.address}]" if ":" in self._entry.address else self._entry.address
        return https.open_client(
            self._make_trust(),
            base_url=f"https://{name}:{self._port}",
            # An array has a login of its own.
            login=None if self._host.msa else (self._entry.user, self._password.text),
        )

    async def log_in(self, client: https.Client) -> None:
        """Open a session on an array, for the calls that follow."""
        if self._host.msa is None:
            return
        secret = f"{self._entry.user}_{self._password.text}".encode()
        digest = hashlib.new(self._host.msa.digest, secret, usedforsecurity=False).hexdigest()
        try:
            key = msa_xml.parse_login(await self.get(client, f"/api/login/{digest}"))
        except CommandError as error:
            raise LoginError(
                f"{self} refuses {self._entry.user} ({error}): correct the password in its "
                "password_file, or set `digest: md5` for old firmware"
            ) from None
        client.headers["sessionKey"] = key

    async def log_out(self, client: https.Client) -> None:
        """Close the session on an array, which allows few; it ends by itself if this fails."""
        if self._host.msa is not None:
            with suppress(HostError):
                await self.get(client, "/api/exit")

    @cached_property
    def _password(self) -> Password:
        return password.load_password(self._files / self._entry.password_file)

    async def get(self, client: https.Client, path: str) -> str:
        return (await self._read(client, path))[1]

    async def _read(self, client: https.Client, path: str) -> tuple[Mapping[str, str], str]:
        try:
            return await self._send(client, "GET", path)
        except https.HttpsError as error:
            raise self._explain(error) from None

    async def change(self, client: https.Client, call: ApiCall, hooks: RunHooks) -> str:
        """Send a call that changes something, once. Returns the text of the answer."""
        hooks.before_send()
        try:
            headers, text = await self._send_conditionally(client, call)
        except (https.NotSentError, https.ResponseTooLongError) as error:
            raise self._explain(error) from None
        except https.HttpsError as error:
            raise UnknownOutcomeError(
                f"{self} received the request and did not answer it ({self._explain(error)}): "
                "it may or may not have been carried out"
            ) from None
        return text or headers.get("Location", "")

    async def _send_conditionally(
        self, client: https.Client, call: ApiCall
    ) -> tuple[Mapping[str, str], str]:
        with suppress(_ConditionError):
            return await self._send(client, call.method, call.path, call.body)
        resource = call.watched_path or call.path  # the target of an action cannot be read
        for etag in _list_etags(*await self._read(client, resource)):
            with suppress(_ConditionError):
                return await self._send(client, call.method, call.path, call.body, etag)
        raise CommandError(
            f"{self} did nothing, because something else changes {resource} at this time: wait, "
            "and request it again with a new plan"
        )

    async def _send(
        self, client: https.Client, method: str, path: str, body: str = "", etag: str = ""
    ) -> tuple[Mapping[str, str], str]:
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        headers |= {"Content-Type": "application/json"} if body else {}
        headers |= {"If-Match": etag} if etag else {}
        request = https.Request(method, path, headers, body.encode())
        answer = await https.send(client, request, _LIMITS)
        shown = answer.body.decode(errors="backslashreplace")
        if error := self._find_error(answer.status, shown):
            raise error
        return answer.headers, shown

    def _find_error(self, status: int, text: str) -> HostError | None:
        """Return the error of an answer by its status, or None."""
        if 200 <= status < 300:
            return None
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return LoginError(
                f"{self} refuses {self._entry.user} (status {status}): correct the "
                "password in its password_file, or give the login the right to do this"
            )
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            return UnreachableError(f"{self} is busy (status {status}): try again")
        kind = _ConditionError if status in _CONDITION_STATUSES else CommandError
        return kind(f"{self} returned status {status}{_parse_message(text)}")

    def _explain(self, error: https.HttpsError) -> HostError:
        """Return the error of a connection that did not work."""
        if isinstance(error, https.CertificateError):
            return HostKeyMismatchError(
                f"the certificate of {self} is not the one in the inventory "
                f"({error}). The password was not sent: verify "
                "the certificate before you correct the inventory"
            )
        if isinstance(error, https.ResponseTooLongError):
            return OutputLimitError(f"{self} returned more than {_LIMITS.max_bytes} bytes")
        return UnreachableError(f"{self} cannot be reached by HTTPS ({error})")

    def _make_trust(self) -> https.Trust:
        if self._entry.ca is None:
            return https.pin_certificate(str(self._entry.certificate))
        file = self._files / self._entry.ca
        try:
            return https.trust_authority(file)
        except OSError as error:  # ssl's own errors among them
            raise SetupError(
                f"cannot use the CA file {file} ({error.strerror or error}): put the PEM "
                f"certificate of the CA that signed the certificate of {self} there"
            ) from None


def _list_etags(headers: Mapping[str, str], text: str) -> Sequence[str]:
    """Return the version of a resource in the forms in which BMCs accept it.

    The header is sometimes quoted twice, and If-Match compares weak versions with nothing, so that
    some BMCs want a weak one, and others the same as a strong one.
    """
    found = re.search(r'"@odata\.etag": *("(?:[^"\\]|\\.)*")', text)
    read = (json.loads(found[1]) if found else "", headers.get("ETag", ""))
    forms = [form for etag in read for form in (etag, etag.removeprefix("W/"))]
    return [*dict.fromkeys(form for form in forms if re.fullmatch(r"[!-~]+", form))] or ["*"]


def _parse_message(text: str) -> str:
    """Return what Redfish says of an error, to append; the beginning of any other text."""
    try:
        error = cast("Mapping[str, Any]", json.loads(text))["error"]
        details = cast("Sequence[Any]", error.get("@Message.ExtendedInfo") or [{}])
        words = str(details[0].get("Message") or error["message"])
    except (ValueError, LookupError, TypeError, AttributeError):
        words = text[:200]
    return f": {quote_text(words[:400])}" if words.strip() else ""
