"""Why Slack was not reached, and what a person can do about it: network, proxy, certificates."""

import ssl
from ssl import SSLError
from urllib.parse import urlsplit

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientHttpProxyError,
    ClientProxyConnectionError,
)

_IN_GENERAL = "does this machine need HTTPS_PROXY to get out?"


def why(trouble: Exception, *, proxy: str = "", authorities: str = "") -> str:
    """Say it of what aiohttp raised.

    proxy: the address of HTTPS_PROXY, "" without; of it, only where it is is said. authorities:
    the file of SSL_CERT_FILE, "" without.
    """
    if isinstance(trouble, ClientConnectorCertificateError):
        return f"the certificate shown for Slack is not one we trust: {_of(authorities)}"
    if proxy:
        return _on_the_way(trouble, _at(proxy))
    if isinstance(trouble, TimeoutError):
        return f"Slack did not answer in time: {_IN_GENERAL}"
    return f"Slack was not reached ({type(trouble).__name__}): {_IN_GENERAL}"


def _on_the_way(trouble: Exception, at: str) -> str:
    """Say what the proxy has to do with it. at: where it is, "" if it is no address."""
    match trouble:
        case _ if not at:
            return "HTTPS_PROXY is no address of a proxy: it must be http://HOST:PORT"
        case ClientHttpProxyError(status=407):
            return f"the proxy {at} wants a login: HTTPS_PROXY=http://NAME:PASSWORD@{at}"
        case ClientHttpProxyError():
            return (
                f"the proxy {at} does not lead there (it answered {trouble.status}): have it let "
                "us through to slack.com and wss-primary.slack.com, port 443"
            )
        case ClientProxyConnectionError() | ClientConnectorDNSError():
            return f"the proxy {at} of HTTPS_PROXY does not answer: is that its address?"
        case _:
            return f"Slack was not reached through the proxy {at} ({type(trouble).__name__})"


def _at(proxy: str) -> str:
    """Return host and port of a proxy, without its password; "" if that is none."""
    try:
        parts = urlsplit(proxy)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    return f"{parts.hostname}:{port}" if port else parts.hostname


def _of(authorities: str) -> str:
    """Say what is to be done about the authorities that we trust."""
    if not authorities:
        return "if a proxy on the way shows its own, SSL_CERT_FILE must be its authority's file"
    try:
        ssl.create_default_context(cafile=authorities)
    except SSLError:
        return f"{authorities}, as SSL_CERT_FILE says, holds no certificates (PEM)"
    except OSError as trouble:
        return f"{authorities}, as SSL_CERT_FILE says, cannot be read ({trouble.strerror})"
    return f"{authorities}, as SSL_CERT_FILE says, does not hold the authority that signed it"
