"""The marker: what a host keeps of each step that it is told, so that it can be asked later.

Before a host begins a step it makes a directory for it. Who finds that there runs nothing: one
step runs once at the most, however often and by whomever it is sent. What became of it is kept in
there until it is a week old:

    <place>/<run>-<step>/begun   the print of its word, the boot id, /proc/PID/stat
    <place>/<run>-<step>/in      what it reads, while it runs; empty afterwards
    <place>/<run>-<step>/out     what it has said, the first MiB of it; err: on its error output
    <place>/<run>-<step>/end     its exit status: a line that is not whole says nothing
    <place>/<run>-<step>/closed  instead of the others: it was not begun, and never will be
    <place>/<run>@<fence>        somebody has come for this run with this fence
    <place>/<Keyturn>-swept-…    what was too old went in these eighteen hours

The step does not end with the connection. `timeout` puts it into a process group of its own, there
is no terminal whose end it would be told, what it reads has arrived whole before it begins, and
what it says goes to `tee`, which keeps on taking it when nobody listens here any more. A change
that is cut off half way is worse than one that nobody watches, and the host ends it in time
anyway.

The word that frames what it says is known to nobody there before the end, as whoever knows it can
make up an end: so only a print of it is written down. No I/O.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from connectors.errors import SettingError
from connectors.script import Script

# Seconds between asking an overdue command to end and killing it. Less than the patience of
# whoever waits for it, so that the host's own verdict arrives first.
KILL_AFTER = 3
# Days that a marker is kept, and for which one that is missing says anything.
KEEP_DAYS = 7
MARKER_SETTING = "keyturn.marker"
NO_MARKER = "none"


@dataclass(frozen=True)
class StepMarker:
    """Which step of which run this is, to a host that has many, of several Keyturns.

    run: a name for the run that is never given to another; up to the first dash, that of the
    Keyturn. fence: grows each time that somebody takes the run over; who comes with a lower one
    comes too late.
    place: the directory of all markers there; "" for the one in the login's home.
    """

    run: str
    step: int
    fence: int = 1
    directory: str = ""

    def resolve(self, settings: Mapping[str, str]) -> "StepMarker | None":
        """Return it as the inventory would have it on one host; None if that keeps none."""
        place = settings.get(MARKER_SETTING, self.directory)
        if place == NO_MARKER:
            return None
        if place and not place.startswith("/"):
            raise SettingError(
                f"the inventory sets {MARKER_SETTING} to {place!r}: it must be a directory, "
                "such as "
                f"/var/lib/keyturn, or {NO_MARKER}"
            )
        return replace(self, directory=place.rstrip("/"))

    @property
    def arguments(self) -> tuple[str, ...]:
        """What both scripts are told of it."""
        return self.directory, self.run, str(self.step), str(self.fence)


# The first that both scripts do: without a word nothing is started. It is exported to nobody.
READ_WORD = (
    "unset kt_word kt_seconds kt_note kt_place kt_run kt_step kt_fence kt_in kt_print kt_end "
    "kt_dir kt_seen kt_stat kt_boot; read -r kt_word || exit 125"
)


def hash_word(word: str) -> str:
    """Return what tells a word from all others and does not tell the word."""
    return hashlib.sha256(word.encode()).hexdigest()


# Without single quotes, backslashes and exclamation marks, as it goes through any login shell.
# kt_end says in a word why nothing is run, and is the exit status otherwise.
_FIND_PLACE = (
    "kt_place=${kt_place:-$HOME/.keyturn}; kt_dir=$kt_place/$kt_run-$kt_step; "
    '[ -d "$kt_place" ] || mkdir -m 700 "$kt_place" 2>/dev/null; '
)
_OWN_PLACE = (
    '[ -O "$kt_place" ] && { if [ -L "$kt_place" ]; then false; '
    'else true >"$kt_place/$kt_run@$kt_fence"; fi; } 2>/dev/null'
)
# Why no marker can be kept: there is no room, or something else. Of a shell's own words for that
# not all give the reason; those of a program do.
_WHY_NONE = (
    'kt_full() { case $(if [ -d "$kt_place" ]; then if [ -L "$kt_place" ]; then :; '
    'elif [ -O "$kt_place" ]; then echo room | tee "$kt_place/$kt_run@$kt_fence"; fi; '
    'else mkdir -m 700 "$kt_place"; fi 2>&1 >/dev/null) in '
    '*"No space left"*|*"uota exceeded"*) echo full;; *) echo unmarked;; esac; }; '
)
_TAKE = (
    f"if {_OWN_PLACE}; then "
    'for kt_seen in "$kt_place/$kt_run@"*; do '
    'if [ "${kt_seen##*@}" -gt "$kt_fence" ]; then kt_end=fenced; fi; done; '
    'if [ "$kt_end" ]; then :; elif mkdir -m 700 "$kt_dir" 2>/dev/null; then :; '
    'elif [ -d "$kt_dir" ]; then kt_end=held; else kt_end=$(kt_full); fi; '
    "else kt_end=$(kt_full); fi"
)
# Written while what the command reads is on its way; it is waited for before the command begins.
_NOTE = (
    'if [ "$kt_note" ]; then '
    'timeout 2 logger -t keyturn "$kt_note" </dev/null >/dev/null 2>&1 & fi'
)
# All of it in one piece, and `dd` says whether that has become whole. Only where the sizes of what
# goes in and out differ does every one gather.
_STDIN = (
    'if [ "$kt_in" -gt 0 ]; then '
    'case $(dd ibs=$((kt_in + 1)) obs="$kt_in" of="$kt_dir/in" 2>&1) in '
    '*"1+0 records out"*) exec <"$kt_dir/in";; *) kt_end=short;; esac; fi'
)
# Only markers of the same Keyturn: the directory may be one that also holds other things. A run's
# name ends with the second in which it was asked for: without four of its digits that is a new one
# every eighteen hours.
_SWEEP = (
    "kt_seen=${kt_run##*-}; kt_seen=$kt_place/${kt_run%%-*}-swept-${kt_seen%????}; "
    'if [ "$kt_step" = 1 ] && [ ! -e "$kt_seen" ] && { true >"$kt_seen"; } 2>/dev/null; then '
    f'find "$kt_place" -mindepth 1 -maxdepth 1 -name "${{kt_run%%-*}}-*" -mtime +{KEEP_DAYS} '
    "-exec rm -rf {} + </dev/null >/dev/null 2>&1 & fi"
)
_BODY = (
    f"{_NOTE}; {_STDIN}; "
    # This shell stays until the command has ended: who asks later looks whether it is there.
    "read -r kt_stat </proc/self/stat; read -r kt_boot </proc/sys/kernel/random/boot_id; "
    'if [ "$kt_end" ]; then echo "$kt_end" >"$kt_dir/closed"; '
    'elif { echo "$kt_print $kt_boot $kt_stat" >"$kt_dir/begun"; } 2>/dev/null; then '
    f'wait; timeout -k {KILL_AFTER} "$kt_seconds" "$@"; kt_end=$?; '
    '{ echo "$kt_end" >"$kt_dir/end"; } 2>/dev/null; '
    "else kt_end=$(kt_full); fi; "
    'kt_say "$kt_end"; [ "$kt_in" -eq 0 ] || { true >"$kt_dir/in"; } 2>/dev/null; '
    f"{_SWEEP}"
)
# Takes what is said though nobody may listen any more, and keeps 1 MiB of it.
_KEEP = '{ trap "" PIPE XFSZ; ulimit -f 2048; exec tee "$kt_dir/%s" %s2>/dev/null %s; }'
_RUN = (
    f"{{ {{ {_BODY}; }} 2>&1 >&3 3>&- 4>&- | {_KEEP % ('err', '>&4 ', '3>&- 4>&-')}; }} "
    f"3>&1 4>&2 | {_KEEP % ('out', '', '')}"
)
# $1 to $8: the command's deadline, the note for the host's log, the four words of the mark, how
# many bytes the command reads, and the print of the word. The rest is the command.
STEP_SCRIPT = (
    "kt_seconds=$1 kt_note=$2 kt_place=$3 kt_run=$4 "
    "kt_step=$5 kt_fence=$6 kt_in=$7 kt_print=$8 kt_end=; shift 8; "
    "LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export LC_ALL PATH; "
    'kt_say() { echo "$kt_word $1"; echo "$kt_word $1" >&2; }; kt_say begins; '
    f"{_FIND_PLACE}{_WHY_NONE}"
    "if command -v timeout >/dev/null && command -v tee >/dev/null; then "
    f"{_TAKE}; else kt_end=unwatched; fi; "
    f'if [ "$kt_end" ]; then kt_say "$kt_end"; else {_RUN}; fi'
)

_ALIVE = (
    'kt_pid=${kt_stat%% *}; kt_now=; { read -r kt_now <"/proc/$kt_pid/stat"; } 2>/dev/null; '
    'kt_stat=${kt_stat##*") "}; kt_now=${kt_now##*") "}; '
    'kt_begun() { case $1 in Z|X) ;; *) echo "${20}";; esac; }; '
    # The moment that a process began, which another of the same number has not in common with it.
    'if [ "$(kt_begun $kt_now)" ] && [ "$(kt_begun $kt_stat)" = "$(kt_begun $kt_now)" ]; '
    "then kt_is=running; else kt_is=gone; fi"
)
_TELL = (
    'kt_size() { if [ -e "$1" ]; then echo $(($(wc -c <"$1"))); else echo 0; fi; }; '
    'kt_at() { date -r "$1" +%s 2>/dev/null || echo -; }; '
    'echo "$kt_is ${kt_status:--} $kt_up ${kt_print:--} ${kt_boot:--} ${kt_booted:--} '
    '$(kt_at "$kt_dir/begun") $(kt_at "$kt_dir/end") $(kt_size "$kt_dir/out") '
    '$(kt_size "$kt_dir/err")"; '
    'if [ "$kt_print" ] && [ "$kt_is" != running ]; then '
    'for kt_seen in out err; do [ -e "$kt_dir/$kt_seen" ] && cat "$kt_dir/$kt_seen"; '
    'echo "$kt_print next"; done; fi'
)
# Asks what became of a step. What was not begun by now never will be: whoever comes for it later,
# on a connection that was slow, finds that its place is taken.
STATUS_SCRIPT = Script(
    "marker",
    "kt_place=$1 kt_run=$2 kt_step=$3 kt_fence=$4; "
    f"{_FIND_PLACE}"
    "read -r kt_booted </proc/sys/kernel/random/boot_id; read -r kt_up kt_rest </proc/uptime; "
    "kt_print= kt_boot= kt_stat= kt_status=; "
    'kt_known() { [ -s "$kt_dir/begun" ] && read -r kt_print kt_boot kt_stat <"$kt_dir/begun"; }; '
    'kt_ended() { if [ -e "$kt_dir/end" ] && read -r kt_status <"$kt_dir/end"; then :; '
    "else kt_status=; false; fi; }; "
    f"if {_OWN_PLACE}; then "
    'if mkdir -m 700 "$kt_dir" 2>/dev/null && echo asked >"$kt_dir/closed"; then kt_is=closed; '
    "elif kt_known; then "
    # It may end while this looks.
    "if kt_ended; then kt_is=ended; "
    'elif [ "$kt_boot" != "$kt_booted" ]; then kt_is=rebooted; '
    f"else {_ALIVE}; if [ $kt_is = gone ] && kt_ended; then kt_is=ended; fi; fi; "
    'elif [ -e "$kt_dir/closed" ]; then kt_is=closed; '
    'elif [ -d "$kt_dir" ]; then kt_is=starting; else kt_is=unmarked; fi; '
    "else kt_is=unmarked; fi; "
    f"{_TELL}",
    argument_count=4,
)
