"""What Tab completes after a command: words of runbooks, hosts, people, tags, states and runs."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.shell_completion import CompletionItem

from bot.cli.client import find_address_problem, get_service_url, is_remote

if TYPE_CHECKING:
    from click.core import Context, Parameter

Complete = Callable[["Context", "Parameter", str], list[CompletionItem]]

# A person waits for it: better no words than a wait.
_TIMEOUT_SECONDS = 1.0
_CACHE_SECONDS = 60.0
_MAX_RUNS = 30


def complete(*kinds: str) -> Complete:
    """Return a completion with names of these kinds: host, tag, area, person, state, run."""

    def list_items(
        context: "Context", parameter: "Parameter", incomplete: str
    ) -> list[CompletionItem]:
        del parameter
        return _match(_list_names(context, kinds), incomplete)

    return list_items


def complete_request(
    context: "Context", _parameter: "Parameter", incomplete: str
) -> list[CompletionItem]:
    """Complete the next word of a runbook's name, and then hosts and tags."""
    typed = [str(word) for word in context.params.get("words") or ()]
    items: dict[str, str] = {}
    is_named = False
    for name, summary in _list_runbooks(context):
        words = name.split()
        is_named |= words == typed[: len(words)]
        if words[: len(typed)] == typed and len(words) > len(typed):
            is_last = len(words) == len(typed) + 1
            items.setdefault(words[len(typed)], summary * is_last)
    found = _match(items.items(), incomplete)
    return found or (_match(_list_names(context, ("host", "tag")), incomplete) if is_named else [])


def _match(items: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word, help=hint) for word, hint in items if word.startswith(incomplete)]


def _list_names(context: "Context", kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Return names with a hint; none if the service does not answer in time."""
    if set(kinds) == {"state"}:
        from bot.model.run import RUN_STATUSES

        return [(status, "") for status in RUN_STATUSES]
    names: dict[str, str] = {}
    for kind in kinds:
        if kind == "run":
            listed = _fetch(context, f"/runs?limit={_MAX_RUNS}").get("runs", ())
            names |= {str(run["id"]): f"{run['state']}: {run['title']}" for run in listed}
        elif kind == "person":
            for group in _fetch(context, "/policy").get("people", ()):
                names |= group["people"]
        else:
            for host in _fetch(context, "/hosts").get("hosts", ()):
                names |= _describe_host(host, kind)
    return [*names.items()]


def _describe_host(host: dict[str, Any], kind: str) -> dict[str, str]:
    if kind == "tag":
        return dict.fromkeys((f"@{tag}" for tag in host["tags"]), "tag")
    if kind == "bare tag":
        return dict.fromkeys(host["tags"], "")
    return {host["area"]: ""} if kind == "area" else {host["name"]: host["area"]}


def _list_runbooks(context: "Context") -> list[tuple[str, str]]:
    """Return names and summaries of the service's runbooks, or else of those on this machine."""
    listed = _fetch(context, "/runbooks").get("runbooks", ())
    if listed:
        return [(one["name"], one["summary"]) for one in listed]
    from bot.cli.context import CommandEnvironment
    from runbooks import list_pending_words, load_catalogue

    # Reads the settings, which name the directory of your own runbooks.
    environment = context.find_object(CommandEnvironment)
    if environment is not None:
        environment.read_settings()
    pending = [(name, "not enabled") for name in sorted(list_pending_words())]
    return pending + [
        (name, (runbook.__doc__ or "").splitlines()[0])
        for name, runbook in load_catalogue().items()
    ]


def _fetch(context: "Context", path: str) -> dict[str, Any]:
    """Return a response of the service, a minute old at most; {} on any error."""
    token = os.environ.get("KEYTURN_TOKEN", "").strip()
    url = os.environ.get("KEYTURN_URL") or get_service_url(context)
    url = str(context.params.get("url") or url).rstrip("/")
    if not token or find_address_problem(url):
        return {}
    import httpx2

    name = hashlib.sha256(f"{url} {token} {path}".encode()).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "keyturn" / name
    with suppress(OSError, ValueError):
        if time.time() - cache.stat().st_mtime < _CACHE_SECONDS:
            return json.loads(cache.read_text(encoding="utf-8"))
    try:
        response = httpx2.get(
            f"{url}/api/v1{path}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_SECONDS,
            verify=is_remote(url),
            trust_env=is_remote(url),
        )
        data = response.raise_for_status().json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return {}
    with suppress(OSError):
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        cache.write_text(json.dumps(data), encoding="utf-8")
    return data
