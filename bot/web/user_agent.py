"""What a browser says it is, in words that people know. Pure."""

import re

# The first that fits tells: most browsers also name those that they are like.
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
    """Return `Firefox on Linux`; of what is no browser we know, what it says itself.

    It is what was sent, which anybody may make up.
    """
    found = [
        next((name for pattern, name in known if re.search(pattern, user_agent)), "")
        for known in (_BROWSER_PATTERNS, _SYSTEM_PATTERNS)
    ]
    if not found[0]:
        return user_agent or "A browser that does not say what it is"
    return " on ".join(filter(None, found))
