"""What commands of csf share: where it is, and its errors. No I/O."""

from connectors.command import Hint, Setting

DIRECTORY = Setting("csf.directory", "/etc/csf", pattern=r"/[\w./-]+")
PROGRAM = Setting("csf.program", "/usr/sbin/csf", pattern=r"/[\w./-]+")
# Seconds: enough to load the list, and for Keyturn to reconnect.
SECONDS = Setting("csf.probation", "180", pattern=r"[1-9][0-9]{0,3}")
WHERE = (DIRECTORY, PROGRAM)

HINTS = (
    Hint(
        r"can't cd to|cd: .*No such file",
        "csf's directory does not exist: correct csf.directory in the inventory",
    ),
    Hint(r"csf: not found", "csf does not exist: correct csf.program in the inventory"),
    Hint(r"(?i)have been \S*disabled", "csf is disabled: run csf -e first"),
    Hint(r"csf is being restarted", "csf is restarting: try again in a minute"),
)
# csf exits with 0 after these errors, with an incomplete firewall.
ERROR = r"(?m)^\*?Error|^ip6?tables[^\n]*: |^ipset v[^\n]*: "
