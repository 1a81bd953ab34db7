#!/bin/sh
# Run one step of a plan that people signed, once. The host's own program: it belongs to root, asks
# Keyturn nothing, and trusts only /etc/keyturn/signers and /etc/keyturn/floor.
#
# Standard input, a letter and a blank before each line:
#   a  do, undo, close or report, and the number of the step; or history and a number of days, alone
#   d  the document; s the section of this host; g the signatures of ssh-keygen -Y sign
#
# do and undo run the command; close makes sure that a step which has not begun never will. report
# needs no signatures, and prints what the record says.
#
# Exit status: that of the step, also when it is sent again; 64 for a refusal, whose reason is on
# standard error; 65 if the step began, and has not ended as far as this host knows.
# The formats are in docs/signed-plans.md.
set -uf
umask 077
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
unset IFS ENV BASH_ENV CDPATH
root=
signers=$root/etc/keyturn/signers floor=$root/etc/keyturn/floor
record=$root/var/lib/keyturn-signed
MOST_BYTES=4194304

refuse() {
    echo "not run: $1" >&2
    exit 64
}

refuse_full() { refuse "$record cannot be written: is the disk full?"; }

. ./floor.sh
. ./signatures.sh

# Print a time in seconds since 1970 for people.
say_time() { date -u -d "@$1" '+%F %T UTC' 2>/dev/null || echo "$1"; }

# Anyone who can change these files can run anything.
check_files() {
    for file in "${signers%/*}" "$signers" "$floor" "$record"; do
        { [ -e "$file" ] && [ ! -L "$file" ]; } || refuse "$file is missing: this host is not enrolled"
    done
    loose=$(find "${signers%/*}" "$signers" "$floor" "$record" -prune \( ! -user 0 -o -perm -020 -o -perm -002 \)) ||
        refuse "$record cannot be looked at"
    [ -z "$loose" ] || refuse "others than root can change $loose"
}

# Write the parts of standard input, and the words and the input of the step, into files of their
# own. Let $action, $number, $run, $nonce, $begins, $ends, $count (of signatures), $limit (the
# seconds that the step may take) and $said (the words in one line) say the rest.
receive() {
    { : >"$work/in" && : >"$work/hosts" && : >"$work/words"; } || refuse_full
    head -c "$((MOST_BYTES + 1))" >"$work/all" 2>/dev/null || refuse_full
    facts=$(awk -v work="$work" -v most="$MOST_BYTES" -v name="$name" '
        function fail(why) { failed = 1; print "- " why; exit }
        function keep(key, pattern) {
            if (key in fact) fail("the document says its " key " twice")
            fact[key] = substr(line, length(key) + 2)
            if (fact[key] !~ pattern) fail("the document has no valid line for " key)
        }
        { size += length($0) + 1; part = substr($0, 1, 2); line = substr($0, 3) }
        size > most { fail("the input is larger than " most " bytes") }
        part == "a " && line ~ /^(do|undo|close|report|history) [1-9][0-9]?[0-9]?[0-9]?$/ && !asked { asked = line; split(line, ask, " "); next }
        !asked { fail("the input does not begin with what to do") }
        part == "d " {
            print line >(work "/d")
            if (++documents == 1 && line != "keyturn-plan 1") fail("the document is not a plan of version 1")
            if (line ~ /^run /) keep("run", "^[0-9]+$")
            if (line ~ /^nonce /) keep("nonce", "^[0-9a-f]+$")
            if (line ~ /^not-before /) keep("not-before", "^[0-9]+$")
            if (line ~ /^expires /) keep("expires", "^[0-9]+$")
            if (line ~ /^host [^ ]+ [0-9a-f]+ SHA256:[A-Za-z0-9+\/]+$/ && split(line, host, " ") && host[2] == name)
                print host[3], host[4] >(work "/hosts")
            next
        }
        part == "s " {
            print line >(work "/s")
            if (++sections == 1 && line != "keyturn-section 1") fail("the section has not version 1")
            if (line ~ /^step( |$)/) step++
            if (step != ask[2]) next
            at = index(line, " "); key = at ? substr(line, 1, at - 1) : line; text = substr(line, length(key) + 2)
            undo = ask[1] == "undo" ? "undo-" : ""
            if (key == (undo ? "undo" : "do")) { print text >(work "/words"); said = said " " text }
            if (key == undo "in") printf "%s%s", (inputs++ ? "\n" : ""), text >(work "/in")
            if (key == undo "deadline") limit = text
            next
        }
        part == "g " {
            if (line == "-----BEGIN SSH SIGNATURE-----") signatures++
            else if (line !~ /^[A-Za-z0-9+\/=]+$/ && line != "-----END SSH SIGNATURE-----") fail("a signature has other letters than it may")
            if (!signatures || signatures > 16) fail("there is no signature, or more than 16")
            print line >(work "/sig." signatures)
            next
        }
        { fail("line " NR " of the input is not that of a plan") }
        END {
            if (failed) exit
            if (ask[1] == "history") { print asked; exit }
            for (key in fact) known++
            if (known != 4 || !sections || length(fact["nonce"]) != 32 || length(fact["expires"]) > 10 || length(fact["not-before"]) > 10 || limit !~ /^[0-9]*$/)
                print "- the document or the section is not complete"
            else print asked, fact["run"], fact["nonce"], fact["not-before"], fact["expires"], signatures + 0, limit + 0, substr(said, 1, 400)
        }' "$work/all") || refuse_full
    [ "${facts#- }" = "$facts" ] || refuse "${facts#- }"
    read -r action number run nonce begins ends count limit said <<END
$facts
END
    [ "$action" != history ] || return 0
    [ -s "$work/words" ] || refuse "step $number has no command to $action"
    read -r first <"$work/words"
    case $first in '' | -* | *=*) refuse "step $number does not begin with a program" ;; esac
}

# Let $keys be the fingerprints of $own, the keys of this host. What was computed before is kept:
# it takes as long as to verify a signature.
read_keys() {
    keys='' kept='' own=''
    set +f
    for file in "$root"/etc/ssh/ssh_host_*_key.pub; do
        { read -r key <"$file"; } 2>/dev/null && own="$own$key|"
    done
    set -f
    { read -r kept && read -r keys; } 2>/dev/null <"$record/keys"
    [ "$kept" != "$own" ] || return 0
    echo "$own" | tr '|' '\n' >"$work/keys" || refuse_full
    keys=$(ssh-keygen -l -f "$work/keys" 2>/dev/null | tr '\n' ' ')
}

keep_keys() {
    [ "$kept" = "$own" ] || { printf '%s\n' "$own" "$keys" >"$work/kept" && mv "$work/kept" "$record/keys"; }
}

# The plan is for this host, and the section is its own.
check_host() {
    hash=$(sha256sum <"$work/s") || refuse_full
    hash=${hash%% *} fingerprint=''
    while read -r found key; do
        [ "$found" != "$hash" ] || fingerprint=$key
    done <"$work/hosts"
    [ -n "$fingerprint" ] || refuse "these steps are not part of the plan for $name"
    read_keys
    case $keys in *" $fingerprint "*) ;; *) refuse "the plan is for a host with the key $fingerprint, which $name does not have" ;; esac
}

check_time() {
    [ "$now" -ge "$((begins - skew))" ] || refuse "the plan holds from $(say_time "$begins") on, and the clock of this host says $(say_time "$now"): set the clock"
    [ "$now" -lt "$ends" ] || refuse "the plan expired at $(say_time "$ends"), and the clock of this host says $(say_time "$now")"
}

# Let $plan be the record of this plan on this host, and $taken that of the step. A plan from before
# the record began may have run already, and so may one that it forgot.
open_record() {
    since='' forgotten=0
    { read -r since <"$record/since"; } 2>/dev/null
    case $since in '' | *[!0-9]*) refuse "the record of what ran is missing: as root, write the output of date +%s to $record/since" ;; esac
    [ "$begins" -ge "$since" ] || refuse 'the plan is older than the record of this host: plan it again'
    [ ! -e "$record/forgotten" ] || read -r forgotten <"$record/forgotten" || refuse "$record/forgotten is empty"
    [ "$ends" -gt "$forgotten" ] || refuse 'the plan is older than what this host remembers: is its clock right?'
    plan=$record/$nonce-$hash
    taken=$plan/$number-do
    [ "$action" != undo ] || taken=$plan/$number-undo
}

# Let $life identify a process: its number, this boot of the host, and when the process began.
read_life() {
    life=''
    { read -r boot </proc/sys/kernel/random/boot_id && read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    # shellcheck disable=SC2086 # the fields of the process are words
    set -- ${stat##*") "}
    case $1 in Z | X) ;; *) life="${stat%% *} $boot ${20}" ;; esac
}

# Let $end be how an action of a step ended: its exit status, "closed", "unknown" once it began, or
# "". An action without an end is "running" as long as the program that began it.
read_end() {
    end='' was=''
    [ ! -d "$plan/$1" ] || end=unknown
    { read -r was <"$plan/$1/process"; } 2>/dev/null && read_life "${was%% *}" && [ "$was" = "$life" ] && end=running
    # It is empty while it is written, and where the disk was full.
    { read -r was <"$plan/$1/end"; } 2>/dev/null && end=$was
}

report() {
    read_end "$number-undo"
    undone=$end
    read_end "$number-do"
    [ -n "$end" ] || [ "$now" -lt "$ends" ] || end=expired
    printf '%s\n' "do ${end:-never}" "undo ${undone:-never}"
    [ -e "$plan/$number-do" ] || exit 0
    for each in began end whole; do
        [ ! -e "$plan/$number-do/$each" ] || echo "$each $(date -r "$plan/$number-do/$each" +%s)"
    done
    for each in out err; do
        [ ! -e "$plan/$number-do/$each" ] || awk -v each="$each" '{ print each, $0 }' "$plan/$number-do/$each"
    done
    exit 0
}

# Print what people did without Keyturn in the last days: of each step its place in the record,
# when it began, how it ended, and what this program was sent.
history() {
    # shellcheck disable=SC2044 # names of the record have no blanks
    for sent in $(find "$record" -mindepth 3 -maxdepth 3 -name input -mtime "-$number" -exec grep -lx 'd run 0' {} +); do
        step=${sent%/input} plan=${sent%/*/input} began=''
        read_end "${step##*/}"
        case $end in closed) continue ;; running) end=unknown ;; esac
        { read -r began <"$step/began"; } 2>/dev/null
        echo "p ${step#"$record/"} ${began:-never} $end"
        awk 1 "$sent"
    done
    exit 0
}

# A step that is sent again answers what it answered before, and is not run again.
answer_again() {
    read_end "${taken##*/}"
    case $end in
    '') ;;
    unknown | running)
        echo "not run: $action of step $number began already, and how it ended is unknown" >&2
        exit 65
        ;;
    closed) refuse "step $number was given up before it began" ;;
    *)
        cat "$taken/out" 2>/dev/null
        cat "$taken/err" >&2 2>/dev/null
        exit "$end"
        ;;
    esac
}

check_order() {
    if [ "$action" = undo ]; then
        read_end "$number-do"
        case $end in '' | closed) refuse "step $number did not begin here: there is nothing to undo" ;; esac
    elif [ "$number" -gt 1 ]; then
        read_end "$((number - 1))-do"
        [ "$end" = 0 ] || refuse "step $((number - 1)) has not succeeded here"
    fi
}

# Have what says that the step begins outlast a loss of power. Older programs write everything.
write_through() {
    sync "$taken/began" "$taken/input" "$plan/ends" "$taken" "$plan" "$record/log" "$record" 2>/dev/null || sync
}

# Remember that the step begins, in a way that only one caller can; then log who signed it.
begin() {
    [ -d "$plan" ] || mkdir -p "$plan" || refuse_full
    { echo "$ends" >"$plan/ends"; } || refuse_full
    if ! mkdir "$taken" 2>/dev/null; then
        [ ! -d "$taken" ] || answer_again
        refuse_full
    fi
    line="run $run, $action $number, signed by ${people:-no one}: $said"
    {
        echo "$now" >"$taken/began" &&
            mv "$work/all" "$taken/input" && keep_keys &&
            echo "$now $nonce $line" >>"$record/log" && write_through
    } || refuse_full
    ! command -v logger >/dev/null || logger -p authpriv.notice -t keyturn-signed -- "$line" || :
}

record_end() { { echo "$1" >"$taken/end"; } 2>/dev/null; }

# Take a step that has not begun, so that it never will.
close_step() {
    read_end "$number-do"
    [ -n "$end" ] || { begin && record_end closed; } || refuse_full
    report
}

# Run the words until their deadline, and record how they ended. They do not end with the connection.
run_words() {
    read_life self
    echo "$life" >"$taken/process"
    set -- env -i PATH="$PATH" HOME=/root LC_ALL=C "$@"
    [ "$limit" = 0 ] || set -- timeout -k 3 "$limit" "$@"
    "$@" <"$work/in" 4>&-
    record_end "$?" || echo "how it ended could not be recorded: is the disk full?" >&2
}

# Pass a stream on, and record the first MiB of it.
keep() {
    trap '' PIPE XFSZ
    ulimit -f 2048
    exec tee "$taken/$1" 2>/dev/null
}

run() {
    set --
    while IFS= read -r word; do set -- "$@" "$word"; done <"$work/words"
    { { run_words "$@" 2>&1 >&3 3>&- | keep err >&4 3>&-; } 3>&1 | keep out; } 4>&2
    : >"$taken/whole"
    read_end "${taken##*/}"
    case $end in unknown | running) exit 65 ;; *) exit "$end" ;; esac
}

# Forget plans that expired a month ago; what is forgotten stays refused, whatever the clock says.
# One plan of sixteen has the host look.
forget() {
    mark=$((now - 2592000))
    case $nonce in 0*) ;; *) return 0 ;; esac
    for one in $(find "$record" -mindepth 2 -maxdepth 2 -name ends -mtime +30 | head -n 50); do
        { read -r ended <"$one" && [ "$ended" -lt "$mark" ]; } || continue
        { echo "$mark" >"$work/mark" && mv "$work/mark" "$record/forgotten"; } || return 0
        rm -rf "${one%/ends}"
    done
}

check_files
read_floor
work=$(mktemp -d "$record/in.XXXXXX" 2>/dev/null) || refuse_full
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 143' TERM
now=$(date +%s)
receive
[ "$action" != history ] || history
check_host
open_record
[ "$action" != report ] || report
check_time
check_signatures
check_floor "$work/words" "$work/in"
[ "$action" != close ] || close_step
answer_again
check_order
begin
forget
run
