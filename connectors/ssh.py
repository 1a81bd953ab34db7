"""One warm SSH connection to one host, on which commands run."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import paramiko

from connectors import keyfile
from connectors.command import Answer, Shell
from connectors.exchange import Exchange
from connectors.inventory import Host
from connectors.transport import Gone, Limits, dial, opened, place
from connectors.trouble import Unreachable
from connectors.warm import WarmTransport


def connect(
    host: Host, keys: Path, limits: Limits | None = None, *, via: "Session | None" = None
) -> "Session":
    """Connect to *host* and log in.

    keys: the directory that key files are relative to. via: the jump host's connection.
    """
    limits = limits or Limits()
    key = keyfile.load(keys / host.key)
    stream = via.tunnel(host) if via else dial(host, limits)
    return Session(host, opened(host, key, limits, stream), limits, via=via)


class Session:
    """A connection that is logged in. Any number of threads may run commands on it at once."""

    def __init__(
        self,
        host: Host,
        transport: WarmTransport,
        limits: Limits,
        *,
        via: "Session | None",
    ) -> None:
        self.via = via
        self._host = host
        self._transport = transport
        self._limits = limits

    @property
    def alive(self) -> bool:
        return self._transport.is_active() and not self._transport.retired

    @property
    def stands(self) -> bool:
        """Whether something may be under way on it, though it takes nothing new."""
        return self._transport.is_active()

    @property
    def transport(self) -> WarmTransport:
        """The paramiko transport, to look at and not to use."""
        return self._transport

    def close(self) -> None:
        self._transport.close()

    def tunnel(self, to: Host) -> paramiko.Channel:
        """Open a stream from here to another host's SSH port.

        Our host says nothing of one that does not answer it, as long as it waits itself. So it is
        asked for a sign besides: what gives one carries others, who go on.
        """
        began = time.monotonic()
        try:
            self._transport.ask_for_a_sign()
            return self._transport.open_channel(
                "direct-tcpip",
                (to.address, to.port),
                ("127.0.0.1", 0),
                timeout=self._limits.connect,
            )
        except paramiko.ChannelException as trouble:
            raise Unreachable(
                f"the jump host {self._host.name} does not get through to {place(to)}: "
                f"{trouble.text or 'no reason given'}. "
                "Is it up, and does AllowTcpForwarding let us?"
            ) from None
        except Exception:  # noqa: BLE001 - paramiko hands on whatever its thread died of
            is_there = self._transport.is_active() and self._transport.last_heard > began
        # By now nobody holds the channel any more that was asked for.
        if is_there:
            raise Unreachable(
                f"the jump host {self._host.name} does not get through to {place(to)} within "
                f"{self._limits.connect:g} s: is it up, and does a firewall let the jump host "
                "through?"
            )
        self._transport.retire()
        raise Gone(f"the connection to {place(self._host)} was lost before anything was sent")

    def run(self, shell: Shell) -> Answer:
        """Run a resolved command and return its answer; trouble says whether it was started."""
        with closing(self.exchange(shell)) as exchange:
            exchange.begin()
            while not isinstance(found := exchange.look(), Answer):
                exchange.wait(found)
            return found

    def exchange(self, shell: Shell, bell: Callable[[], None] | None = None) -> Exchange:
        """Return the same for whoever does not wait for it, yet to begin; see Exchange."""
        return Exchange(self._host, self._transport, self._limits, shell, bell)
