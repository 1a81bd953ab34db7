"""Read what an alert says: its state, and the hosts, addresses and values that it names. Pure.

Alerts are written by programs for people, and customised at each installation. So the whole
message is read as text, and only what the inventory knows, or a type accepts, is taken from it.
Sources of the formats:

* Alertmanager: https://github.com/prometheus/alertmanager/blob/main/template/default.tmpl
* Grafana: https://github.com/grafana/alerting/blob/main/templates/default_template.go
* Icinga: https://github.com/nisabek/icinga2-slack-notifications and
  https://github.com/jjethwa/icinga2-slack-notification
* Nagios: https://github.com/RunlevelConsulting/Nagios-Slack-Notifications and
  https://github.com/asciiphil/nagios-notify-slack
* Pingdom: https://www.pingdom.com, as `PingdomAlert DOWN: NAME (ADDRESS) is DOWN since TIME`
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import urlsplit

from bot.slack.parsing import unwrap_text
from connectors.inventory import Host

_MAX_LENGTH, _MAX_LINES, _MAX_PAIRS, _MAX_TOKENS = 20_000, 300, 200, 2_000
_MAX_DEPTH = 8
# What attachments and blocks hold, in the order in which people read it. A fallback repeats it.
_TEXT_KEYS = ("pretext", "title", "text", "fields", "elements", "blocks", "fallback")

_FIRING_PATTERN = re.compile(
    r"\bFIRING\b|\bPROBLEM\b|\bDOWN\b|\bCRITICAL\b|\bWARNING\b|\bUNREACHABLE\b|\bUNKNOWN\b"
)
# An acknowledgement or a downtime is no news about the host.
_ENDED_PATTERN = re.compile(
    r"\bRESOLVED\b|\bRECOVERY\b|\bOK\b|\bUP\b|\bACKNOWLEDGEMENT\b|\bDOWNTIME\w*|\bFLAPPING\w*"
)
# What Slack returns for the colours `danger` and `warning`, and what Grafana sets.
_FIRING_COLOURS = frozenset({"a30200", "danger", "daa038", "warning", "d63232"})
_EMOJI_PATTERN = re.compile(r":[a-z0-9_+-]{1,50}:")
# `- instance = lb1:9100`, `*Host:* web1`, `SERVICE: nginx`.
_PAIR_PATTERN = re.compile(r"[\s•*_-]*([A-Za-z][\w ]{0,40}?)[*_]*\s*(?::[*_]*\s+|\s=\s)(.+)")
_COLUMNS_PATTERN = re.compile(r"\s{2,}")
_SEPARATORS = re.compile(r"[\s,;|=\"'`()\[\]<>{}*]+")
_HOST_NAMES = frozenset(
    {"host", "hostname", "host name", "instance", "node", "nodename", "server", "target", "url"}
)
_SERVICE_NAMES = frozenset({"service", "servicedesc", "service description", "unit"})
# The names of labels and of fields of runbooks that mean the same.
_VALUE_NAMES = frozenset({"pool", "interface", "table"})
_UNIT_SUFFIX = ".service"
# `Service nginx is still in state CRITICAL`, and `web1 / nginx is CRITICAL`.
_SERVICE_PATTERNS = (
    re.compile(r"\bservice\s+(\S{1,100})\s+(?:transitioned|is)\b", re.IGNORECASE),
    re.compile(r"^\S{1,100} / (\S{1,100})(?: is [A-Z]+)?$"),
)
_CAMEL_PATTERN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_SHORT = 2
_STATE_WORDS = frozenset(
    (
        *("firing", "problem", "critical", "warning", "unknown", "ok", "up", "unreachable"),
        *("alert", "alerts", "page", "severity", "state", "resolved", "transitioned", "since"),
    )
)


class AlertState(Enum):
    """What an alert says of its subject."""

    FIRING = auto()
    ENDED = auto()
    """Resolved, acknowledged, or in a downtime."""
    UNCLEAR = auto()


@dataclass(frozen=True)
class Alert:
    """What a message says."""

    state: AlertState
    hosts: Sequence[str]
    """Hosts of the inventory, in the order in which the message names them."""
    addresses: Sequence[str]
    """IP addresses that are not those of hosts."""
    values: Mapping[str, str]
    """Values by the field of runbooks that they are for, such as `service`."""
    words: Sequence[str]
    """The words of the headline, in lower case."""
    headline: str
    """The first line."""


def read_alert(message: Mapping[str, Any], hosts: Mapping[str, Host]) -> Alert:
    """Read a message of Slack. hosts: of the inventory, by name."""
    lines = _list_lines(message)
    pairs = _list_pairs(lines, message)
    headline = lines[0] if lines else ""
    found = _find_hosts(headline, pairs, lines, hosts)
    named = {hosts[name].address for name in found}
    addresses = [
        token
        for token in _iterate_tokens(lines)
        if _is_ip_address(token) and token not in named and token not in found
    ]
    return Alert(
        _find_state(lines, message),
        found,
        list(dict.fromkeys(addresses))[:1],
        _find_values(pairs, lines),
        _list_words(headline, pairs, found),
        headline,
    )


# --- text ---


def _list_lines(message: Mapping[str, Any]) -> list[str]:
    """Return the lines of a message without markup, each once."""
    text = "\n".join(_iterate_texts(message, 0))[:_MAX_LENGTH]
    plain = _EMOJI_PATTERN.sub(" ", unwrap_text(text))
    stripped = (line.strip() for line in plain.splitlines())
    return list(dict.fromkeys(line for line in stripped if line))[:_MAX_LINES]


def _iterate_texts(value: object, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _iterate_texts(one, depth + 1)
    elif isinstance(value, dict):
        found = cast("dict[str, object]", value)
        if isinstance(found.get("value"), str) and isinstance(found.get("title"), str):
            yield f"{found['title']}: {found['value']}"
            return
        keys = (*_TEXT_KEYS, "attachments") if depth == 0 else _TEXT_KEYS
        for key in keys:
            yield from _iterate_texts(found.get(key), depth + 1)


def _list_pairs(lines: Sequence[str], message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names in lower case with their values, as labels and fields have them."""
    pairs = [(name.lower(), unwrap_text(value)) for name, value in _iterate_fields(message)]
    for line in lines:
        for part in _COLUMNS_PATTERN.split(line):
            found = _PAIR_PATTERN.fullmatch(part)
            if found:
                pairs.append((found[1].strip().lower(), found[2].strip(" *_`")))
    return pairs[:_MAX_PAIRS]


def _iterate_fields(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for attachment in _list_dicts(message.get("attachments")):
        for one in _list_dicts(attachment.get("fields")):
            name, value = one.get("title"), one.get("value")
            if isinstance(name, str) and isinstance(value, str):
                yield name[:100], value[:1000]


def _list_dicts(value: object) -> list[dict[str, object]]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, object]", one) for one in listed if isinstance(one, dict)]


def _iterate_tokens(texts: Sequence[str]) -> Iterator[str]:
    left = _MAX_TOKENS
    for text in texts:
        for token in _SEPARATORS.split(text):
            if token and left:
                left -= 1
                yield token.strip(".:!?_/")


# --- state ---


def _find_state(lines: Sequence[str], message: Mapping[str, Any]) -> AlertState:
    """Return the first state that the message names; that of its colour if it names none."""
    for line in lines:
        ended, firing = _ENDED_PATTERN.search(line), _FIRING_PATTERN.search(line)
        if ended and not (firing and firing.start() < ended.start()):
            return AlertState.ENDED
        if firing:
            return AlertState.FIRING
    colours = (one.get("color") for one in _list_dicts(message.get("attachments")))
    shown = {one.lower().removeprefix("#") for one in colours if isinstance(one, str)}
    return AlertState.FIRING if shown & _FIRING_COLOURS else AlertState.UNCLEAR


# --- hosts and values ---


def _find_hosts(
    headline: str,
    pairs: Sequence[tuple[str, str]],
    lines: Sequence[str],
    hosts: Mapping[str, Host],
) -> list[str]:
    """Return the hosts that labels name; else those of the headline; else all of the message.

    The text of an alert also names hosts that it is not about, such as Grafana's own.
    """
    by_address = {host.address.lower(): name for name, host in hosts.items()}
    labelled = [value for name, value in pairs if name in _HOST_NAMES]
    others = [line for line in lines if "://" not in line]
    for texts in (labelled, [headline], others):
        tokens = _iterate_tokens(texts)
        found = [
            name for token in tokens if (name := _find_host(token.lower(), hosts, by_address))
        ]
        if found:
            return list(dict.fromkeys(found))
    return []


def _find_host(token: str, hosts: Mapping[str, Host], by_address: Mapping[str, str]) -> str:
    """Return the host that a name or address means exactly; "" for none.

    `web1.staging.example.com` is not web1, if that is web1.example.com.
    """
    place = _strip_port(token)
    if place in hosts:
        return place
    if place in by_address:
        return by_address[place]
    first, _, domain = place.partition(".")
    known = hosts.get(first)
    if not domain or known is None or _is_ip_address(place):
        return ""
    _, dot, its_domain = known.address.lower().partition(".")
    has_domain = bool(dot) and not _is_ip_address(known.address)
    return "" if has_domain and its_domain != domain else first


def _strip_port(token: str) -> str:
    """Return the host of `lb1:9100`, `[::1]:22` or an address of the web."""
    if "://" in token:
        try:
            return urlsplit(token).hostname or ""
        except ValueError:
            return ""
    place, colon, port = token.rpartition(":")
    return place if colon and port.isdecimal() and ":" not in place else token


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _find_values(pairs: Sequence[tuple[str, str]], lines: Sequence[str]) -> Mapping[str, str]:
    """Return the first single-word value for each field."""
    values: dict[str, str] = {}
    for name, value in pairs:
        if not value or " " in value:
            continue
        if name in _SERVICE_NAMES or value.endswith(_UNIT_SUFFIX):
            values.setdefault("service", value.removesuffix(_UNIT_SUFFIX))
        elif name in _VALUE_NAMES:
            values.setdefault(name, value)
    for line in lines:
        for pattern in _SERVICE_PATTERNS:
            if "service" not in values and (found := pattern.search(line)):
                values["service"] = found[1].strip("*_`").removesuffix(_UNIT_SUFFIX)
    return values


def _split_camel_case(token: str) -> list[str]:
    """Return the words of `HAProxyBackendDown`, a short first one also with the next one."""
    words: list[str] = _CAMEL_PATTERN.findall(token)
    is_short = len(words) > 1 and len(words[0]) <= _SHORT
    return [words[0] + words[1], *words] if is_short else words


def _list_words(
    headline: str, pairs: Sequence[tuple[str, str]], hosts: Sequence[str]
) -> Sequence[str]:
    """Return the words of the headline and of the alert's name, without hosts and states."""
    named = [value for name, value in pairs if name == "alertname"]
    words = [
        word.lower()
        for token in _iterate_tokens([headline, *named])
        if token.lower() not in hosts and not {".", ":"} & {*token}
        for word in _split_camel_case(token)
    ]
    return list(dict.fromkeys(word for word in words if word not in _STATE_WORDS))
