"""Markers: what a host stores of each step, so that Keyturn can query it after a crash. No I/O.

Before a host starts a step it creates a directory for it. If the directory exists, nothing runs:
a step runs at most once, however often it is sent. The directory is kept for a week:

    <dir>/<run>-<step>/begun   the hash of its secret word, the boot id, /proc/PID/stat
    <dir>/<run>-<step>/in      its standard input while it runs; empty afterwards
    <dir>/<run>-<step>/out     the first MiB of its output; err: of its error output
    <dir>/<run>-<step>/end     its exit status; an incomplete line counts as none
    <dir>/<run>-<step>/closed  instead of the others: it did not start, and never will
    <dir>/<run>@<fence>        a worker has used this fencing token for this run
    <dir>/<Keyturn>-swept-…    old markers were deleted within these eighteen hours

The step does not end with the connection. `timeout` puts it into a process group of its own, it
has no terminal, its input has arrived completely before it starts, and its output goes to `tee`,
which continues to read it when the connection is gone. A change that is cut off half way is worse
than one without a reader, and the host ends it at its deadline anyway.

Output is framed with a secret word. Anyone who knows the word can fake an end, so the host stores
only its hash until the step has ended.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from connectors.errors import SettingError
from connectors.script import Script

# Seconds between SIGTERM and SIGKILL for an overdue command. Less than Keyturn's grace period, so
# that the host's exit status arrives first.
KILL_AFTER = 3
# Days for which a marker is kept: a missing one is meaningful only within them.
KEEP_DAYS = 7
MARKER_SETTING = "keyturn.marker"
NO_MARKER = "none"


@dataclass(frozen=True)
class StepMarker:
    """Identifies one step of one run on a host, which may serve several Keyturns."""

    run: str
    """A unique name of the run. The part before the first dash is the name of the Keyturn."""
    step: int
    """The number of the step."""
    fence: int = 1
    """The fencing token: it grows when another worker takes over, and lower ones are refused."""
    directory: str = ""
    """The directory of all markers on the host; "" for ~/.keyturn."""

    def resolve(self, settings: Mapping[str, str]) -> "StepMarker | None":
        """Return the marker with the host's directory; None if the host keeps no markers."""
        place = settings.get(MARKER_SETTING, self.directory)
        if place == NO_MARKER:
            return None
        if place and not place.startswith("/"):
            raise SettingError(
                f"the inventory sets {MARKER_SETTING} to {place!r}: it must be a directory, "
                f"such as /var/lib/keyturn, or {NO_MARKER}"
            )
        return replace(self, directory=place.rstrip("/"))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of both scripts: directory, run, step, fence."""
        return self.directory, self.run, str(self.step), str(self.fence)


# Both scripts begin with this: without the secret word nothing is started. It is never exported.
READ_WORD = (
    "unset kt_word kt_seconds kt_note kt_place kt_run kt_step kt_fence kt_in kt_print kt_end "
    "kt_dir kt_seen kt_stat kt_boot; read -r kt_word || exit 125"
)


def hash_word(word: str) -> str:
    """Return the SHA-256 of a secret word, in hexadecimal."""
    return hashlib.sha256(word.encode()).hexdigest()


# No single quotes, backslashes and exclamation marks, since it passes through any login shell.
# kt_end is the exit status, or one word with the reason why nothing was run.
_FIND_PLACE = (
    "kt_place=${kt_place:-$HOME/.keyturn}; kt_dir=$kt_place/$kt_run-$kt_step; "
    '[ -d "$kt_place" ] || mkdir -m 700 "$kt_place" 2>/dev/null; '
)
_OWN_PLACE = (
    '[ -O "$kt_place" ] && { if [ -L "$kt_place" ]; then false; '
    'else true >"$kt_place/$kt_run@$kt_fence"; fi; } 2>/dev/null'
)
# Why no marker can be written: the disk is full, or something else. Not every shell prints the
# reason; programs do.
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
# Runs while the command's input arrives, and ends before the command starts.
_NOTE = (
    'if [ "$kt_note" ]; then '
    'timeout 2 logger -t keyturn "$kt_note" </dev/null >/dev/null 2>&1 & fi'
)
# Stores the input in one block, and `dd` prints whether the block is complete. `dd` collects
# partial reads only if its input and output block sizes differ.
_STDIN = (
    'if [ "$kt_in" -gt 0 ]; then '
    'case $(dd ibs=$((kt_in + 1)) obs="$kt_in" of="$kt_dir/in" 2>&1) in '
    '*"1+0 records out"*) exec <"$kt_dir/in";; *) kt_end=short;; esac; fi'
)
# Deletes only markers of the same Keyturn: the directory may contain other files. A run's name
# ends with the second of its request: without four digits it changes every eighteen hours.
_SWEEP = (
    "kt_seen=${kt_run##*-}; kt_seen=$kt_place/${kt_run%%-*}-swept-${kt_seen%????}; "
    'if [ "$kt_step" = 1 ] && [ ! -e "$kt_seen" ] && { true >"$kt_seen"; } 2>/dev/null; then '
    f'find "$kt_place" -mindepth 1 -maxdepth 1 -name "${{kt_run%%-*}}-*" -mtime +{KEEP_DAYS} '
    "-exec rm -rf {} + </dev/null >/dev/null 2>&1 & fi"
)
_BODY = (
    f"{_NOTE}; {_STDIN}; "
    # This shell stays until the command has ended: the status script checks whether it runs.
    "read -r kt_stat </proc/self/stat; read -r kt_boot </proc/sys/kernel/random/boot_id; "
    'if [ "$kt_end" ]; then echo "$kt_end" >"$kt_dir/closed"; '
    'elif { echo "$kt_print $kt_boot $kt_stat" >"$kt_dir/begun"; } 2>/dev/null; then '
    f'wait; timeout -k {KILL_AFTER} "$kt_seconds" "$@"; kt_end=$?; '
    '{ echo "$kt_end" >"$kt_dir/end"; } 2>/dev/null; '
    "else kt_end=$(kt_full); fi; "
    'kt_say "$kt_end"; [ "$kt_in" -eq 0 ] || { true >"$kt_dir/in"; } 2>/dev/null; '
    f"{_SWEEP}"
)
# Reads the output even when the connection is gone, and stores 1 MiB of it.
_KEEP = '{ trap "" PIPE XFSZ; ulimit -f 2048; exec tee "$kt_dir/%s" %s2>/dev/null %s; }'
_RUN = (
    f"{{ {{ {_BODY}; }} 2>&1 >&3 3>&- 4>&- | {_KEEP % ('err', '>&4 ', '3>&- 4>&-')}; }} "
    f"3>&1 4>&2 | {_KEEP % ('out', '', '')}"
)
# $1 to $8: the command's deadline, the note for the host's log, the marker's four arguments, the
# bytes of the command's input, and the hash of the secret word. The rest is the command.
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
    # The start time of a process, which distinguishes it from another with the same number.
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
# Prints the status of a step. A step that has not started by now never will: a slow connection
# that brings it later finds that its directory exists.
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
    # It may end while this script checks.
    "if kt_ended; then kt_is=ended; "
    'elif [ "$kt_boot" != "$kt_booted" ]; then kt_is=rebooted; '
    f"else {_ALIVE}; if [ $kt_is = gone ] && kt_ended; then kt_is=ended; fi; fi; "
    'elif [ -e "$kt_dir/closed" ]; then kt_is=closed; '
    'elif [ -d "$kt_dir" ]; then kt_is=starting; else kt_is=unmarked; fi; '
    "else kt_is=unmarked; fi; "
    f"{_TELL}",
    argument_count=4,
)
