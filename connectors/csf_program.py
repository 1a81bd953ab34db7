"""What commands of csf share: where it is, its errors, and restoring its rules. No I/O."""

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

# Parts of restore scripts. They restore the rules that let Keyturn in before, whatever csf loads
# now. With LFDSTART, `-r` leaves the loading to a daemon.
IS_SET = 'on() { grep -Eq "^$2 *= *.1." "$1/csf.conf"; }; '
SAVE_RULES = (
    'iptables-save >rules && : >rules6 && { ! on "$2" IPV6 || ip6tables-save >rules6; } && sync'
)
RESTORE_RULES = (
    'sync "$2"; option=-r; if on "$2" LFDSTART; then option=-sf; fi; "$3" "$option"; status=0; '
    "iptables-restore <rules || status=1; "
    "[ ! -s rules6 ] || ip6tables-restore <rules6 || status=1; exit $status"
)
