"""Describe a User-Agent header. Pure."""

import re

# The first match counts, because most browsers also name the browsers they imitate.
_BROWSER_PATTERNS = (
    (r"Edg(e|A|iOS)?/", "Edge"),
    (r"(OPR|Opera)/", "Opera"),
    (r"SamsungBrowser/", "Samsung Internet"),
    (r"(Firefox|FxiOS)/", "Firefox"),
    (r"(Headless)?(Chrome|Chromium|CriOS)/", "Chrome"),
    (r"Version/\S+.* Safari/", "Safari"),
)
_SYSTEM_PATTERNS = (
    (r"iPhone", "iPhone"),
    (r"iPad", "iPad"),
    (r"Android", "Android"),
    (r"CrOS", "ChromeOS"),
    (r"Windows", "Windows"),
    (r"Mac OS X|Macintosh", "macOS"),
    (r"Linux|X11", "Linux"),
)


def describe_user_agent(user_agent: str) -> str:
    """Return for example `Firefox on Linux`, or the header itself for an unknown client.

    The header is sent by the client, so it proves nothing.
    """
    found = [
        next((name for pattern, name in known if re.search(pattern, user_agent)), "")
        for known in (_BROWSER_PATTERNS, _SYSTEM_PATTERNS)
    ]
    if not found[0]:
        return user_agent or "Unknown browser"
    return " on ".join(filter(None, found))
