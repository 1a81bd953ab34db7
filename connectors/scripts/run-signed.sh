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

refuse() {
    printf '%s\n' "not run: $1" >&2
    exit 64
}
refuse_full() { refuse "$record cannot be written: is the disk full?"; }

# Print a time in seconds since 1970 for people.
say_time() { date -u -d "@$1" '+%F %T UTC' 2>/dev/null || echo "$1"; }

# Let $life identify a process: its number, this boot of the host, and when the process began.
read_life() {
    life=''
    { read -r boot </proc/sys/kernel/random/boot_id && read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    # shellcheck disable=SC2086 # the fields of the process are words
    set -- ${stat##*") "}
    case ${1-} in Z | X) ;; *) life="${stat%% *} $boot ${20-}" ;; esac
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
    for each in began end whole; do
        [ ! -e "$plan/$number-do/$each" ] || echo "$each $(date -r "$plan/$number-do/$each" +%s)"
    done
    for each in out err; do
        [ ! -e "$plan/$number-do/$each" ] || awk -v each="$each" '{ print each, $0 }' "$plan/$number-do/$each"
    done
    exit 0
}

# Anyone who can change these files can run anything.
loose=$(find "${signers%/*}" "$signers" "$floor" "$record" -prune \
    \( ! -user 0 -o -perm -020 -o -perm -002 -o -type l \) 2>/dev/null) ||
    refuse "$signers, $floor or $record is missing: this host is not enrolled"
[ -z "$loose" ] || refuse "others than root can change $loose, or it is a link"

# Write document, section and signatures, and the words and the input of the step, into files of
# their own. Compare what they say with signers and floor.
work=$(mktemp -d "$record/in.XXXXXX" 2>/dev/null) || refuse_full
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 143' TERM
most=4194304
# A NUL ends the line for one awk, belongs to it for another, and is nothing for the shell.
{ head -c "$((most + 1))" | tr -d '\000' >"$work/input" && : >"$work/in"; } 2>/dev/null || refuse_full

. ./floor.sh
. ./signatures.sh

facts=$(awk -v work="$work" -v most="$most" -v signers="$signers" -v floor="$floor" "$floor_rules$signature_rules"'
    function fail(why) { failed = 1; print "refused " why; exit }
    BEGIN { wanted["run"] = wanted["not-before"] = wanted["expires"] = "^(0|[1-9][0-9]*)$"; wanted["nonce"] = "^[0-9a-f]+$" }
    reading == "floor" { take_floor(); next }
    reading == "signers" { take_signer(); next }
    {
        bytes += length($0) + 1; line = substr($0, 3)
        at = index(line " ", " "); key = substr(line, 1, at - 1); text = substr(line, at + 1)
    }
    bytes > most { fail("the input is larger than " most " bytes") }
    !asked {
        if (!/^a (do|undo|close|report|history) [1-9][0-9]?[0-9]?[0-9]?$/) fail("the input does not begin with what to do")
        asked = line; number = text; undo = key == "undo" ? "undo-" : ""
        next
    }
    /^d / {
        print line >(work "/d")
        if (!documents++ && line != "keyturn-plan 1") fail("the document is not a plan of version 1")
        if (key in wanted && key in fact) fail("the document says its " key " twice")
        if (key in wanted) fact[key] = text
        if (line ~ /^host [^ ]+ [0-9a-f]+ SHA256:[A-Za-z0-9+\/]+$/ && split(text, host, " ") && host[1] == name) {
            if (++sections_here > 1000) fail("the plan has more than 1000 sections for " name)
            own = own host[2] " " host[3] " "
        }
        next
    }
    /^s / {
        print line >(work "/s")
        if (!sections++ && line != "keyturn-section 1") fail("the section has not version 1")
        if (key == "step") step++
        if (step != number) next
        if (key == (undo ? "undo" : "do")) { print text >(work "/words"); word[++words] = text; if (length(said) < 400) said = said " " text }
        if (key == undo "in") printf "%s%s", (inputs++ ? "\n" : ""), text >(work "/in")
        if (key == undo "deadline") limit = text
        next
    }
    /^g / {
        if (line == "-----BEGIN SSH SIGNATURE-----" && !is_open) { is_open = 1; blob = ""; signatures++ }
        else if (line ~ /^[A-Za-z0-9+\/=]+$/ && is_open) blob = blob line
        else if (line != "-----END SSH SIGNATURE-----" || !is_open) fail("a signature is not as ssh-keygen writes it")
        else {
            is_open = 0; problem = signature_error(blob)
            if (problem) fail("signature " signatures " " problem)
            signed = signed who " "
            if (!(who in counted)) { counted[who] = 1; people = people (people == "" ? "" : " ") who }
        }
        if (signatures > 16 || length(blob) > 9999) fail("there are more than 16 signatures, or one is too long")
        print line >(work "/signature." signatures)
        next
    }
    { fail("line " FNR " of the input is not that of a plan") }
    END {
        if (failed) exit
        problem = floor_error()
        if (problem) fail(floor " " problem)
        if (asked ~ /^history/) { print asked; exit }
        for (key in wanted) if (fact[key] !~ wanted[key]) problem = 1
        if (length(fact["nonce"]) != 32 || length(fact["expires"]) > 10 || length(fact["not-before"]) > 10) problem = 1
        if (problem || !sections || limit !~ /^[0-9]*$/) fail("the document or the section is not complete")
        if (is_open) fail("a signature is not complete")
        if (!words) fail("step " number " has no command to " (undo ? "undo" : "do"))
        if (word[1] ~ /^$|^-|=/) fail("step " number " does not begin with a program")
        if (asked !~ /^report/) problem = judge(people, !inputs)
        if (problem) fail(problem " (" floor ")")
        # Not every awk ends with an error where the disk was full.
        if (close(work "/words") || inputs && close(work "/in")) exit 1
        print asked, fact["nonce"], fact["not-before"], fact["expires"], skew, limit + 0, name
        print own "\n" signed
        print "run " fact["run"] ", " asked ", signed by " (people == "" ? "no one" : people) ":" substr(said, 1, 400)
    }' reading=floor "$floor" reading=signers "$signers" reading=input "$work/input") || refuse_full
[ "${facts#refused }" = "$facts" ] || refuse "${facts#refused }"
# Of each section for this host its hash and the host key, of each signature the person, and what to log.
{ read -r action number nonce begins ends skew limit name && read -r sections; read -r signed; read -r told; } <<END
$facts
END

# Print what people did without Keyturn in the last days: of each step its place in the record,
# when it began, how it ended, and what this program was sent.
if [ "$action" = history ]; then
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
fi

# The plan is for this host, and the section is its own.
hash=$(sha256sum <"$work/s") || refuse_full
hash=${hash%% *}
fingerprint='' before=''
for each in $sections; do
    [ "$before" != "$hash" ] || fingerprint=$each
    before=$each
done
[ -n "$fingerprint" ] || refuse "these steps are not part of the plan for $name"

# Fingerprints that were computed before are kept, with the keys: to compute takes as long as to verify a signature.
keys='' kept='' own=''
set +f
for file in "$root"/etc/ssh/ssh_host_*_key.pub; do
    { read -r key <"$file"; } 2>/dev/null && own="$own$key|"
done
set -f
{ read -r kept && read -r keys; } 2>/dev/null <"$record/keys"
[ "$kept" = "$own" ] || keys=$(printf '%s\n' "$own" | tr '|' '\n' | ssh-keygen -l -f - 2>/dev/null | tr '\n' ' ')
case $keys in *" $fingerprint "*) ;; *) refuse "the plan is for a host with the key $fingerprint, which $name does not have" ;; esac

# A plan from before the record began may have run already, and so may one that it forgot.
now=$(date +%s) since='' forgotten=''
{ read -r since forgotten <"$record/since"; } 2>/dev/null
case $since$forgotten in '' | *[!0-9]*) refuse "the record of what ran is missing: as root, write the output of date +%s to $record/since" ;; esac
[ "$begins" -ge "$since" ] || refuse 'the plan is older than the record of this host: plan it again'
[ "$ends" -gt "${forgotten:-0}" ] || refuse 'the plan is older than what this host remembers: is its clock right?'
plan=$record/$nonce-$hash
[ "$action" != report ] || report

[ "$now" -ge "$((begins - skew))" ] ||
    refuse "the plan holds from $(say_time "$begins") on, and the clock of this host says $(say_time "$now"): set the clock"
[ "$now" -lt "$ends" ] || refuse "the plan expired at $(say_time "$ends"), and the clock of this host says $(say_time "$now")"

n=0
for who in $signed; do
    n=$((n + 1))
    ssh-keygen -Y verify -f "$signers" -I "$who" -n keyturn-plan -s "$work/signature.$n" <"$work/d" >/dev/null 2>&1 ||
        refuse "the signature by $who is not one of this plan, or the key is not valid now"
done

# An undo needs its step, and a step the one before. What has begun is not closed.
read_end "$number-do"
case $action-$end in
close-?*) report ;;
undo- | undo-closed) refuse "step $number did not begin here: there is nothing to undo" ;;
esac
if [ "$action" = "do" ] && [ "$number" -gt 1 ]; then
    read_end "$((number - 1))-do"
    [ "$end" = 0 ] || refuse "step $((number - 1)) has not succeeded here"
fi

# Take the step, which only one caller can. One that is sent again answers what it answered before.
taken=$plan/$number-do
[ "$action" != undo ] || taken=$plan/$number-undo
[ -d "$plan" ] || mkdir -p "$plan" || refuse_full
if ! mkdir "$taken" 2>/dev/null; then
    read_end "${taken##*/}"
    case $end in
    '') refuse_full ;;
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
fi

# Remember that it begins, also if the host loses power; older programs sync everything. Log who signed it.
{
    echo "$ends" >"$plan/ends" && echo "$now" >"$taken/began" && mv "$work/input" "$taken/input" &&
        { [ "$kept" = "$own" ] || { printf '%s\n' "$own" "$keys" >"$work/keys" && mv "$work/keys" "$record/keys"; }; } &&
        printf '%s\n' "$now $nonce $told" >>"$record/log"
} || refuse_full
sync "$taken/began" "$taken/input" "$plan/ends" "$taken" "$plan" "$record/log" "$record" 2>/dev/null || sync || refuse_full
logger -p authpriv.notice -t keyturn-signed -- "$told" 2>/dev/null
if [ "$action" = close ]; then
    { echo closed >"$taken/end"; } 2>/dev/null || refuse_full
    report
fi

# Forget plans that expired a month ago; what is forgotten stays refused, whatever the clock says.
# One plan of sixteen has the host look.
mark=$((now - 2592000))
case $nonce in 0*) old=$(find "$record" -mindepth 2 -maxdepth 2 -name ends -mtime +30 | head -n 50) ;; *) old='' ;; esac
for one in $old; do
    { read -r ended <"$one" && [ "$ended" -lt "$mark" ]; } || continue
    { echo "$since $mark" >"$work/since" && mv "$work/since" "$record/since"; } || break
    rm -rf "${one%/ends}"
done

# Run the words until their deadline, and record how they ended. They do not end with the connection.
run_words() {
    read_life self
    echo "$life" >"$taken/process"
    "$@" <"$work/in" 4>&-
    { echo "$?" >"$taken/end"; } 2>/dev/null || echo "how it ended could not be recorded: is the disk full?" >&2
}

# Pass a stream on, and record the first MiB of it.
keep() {
    trap '' PIPE XFSZ
    ulimit -f 2048
    exec tee "$taken/$1" 2>/dev/null
}

set -- env -i PATH="$PATH" HOME=/root LC_ALL=C
[ "$limit" = 0 ] || set -- timeout -k 3 "$limit" "$@"
while IFS= read -r word; do set -- "$@" "$word"; done <"$work/words"
{ { run_words "$@" 2>&1 >&3 3>&- | keep err >&4 3>&-; } 3>&1 | keep out; } 4>&2
: >"$taken/whole"
read_end "${taken##*/}"
case $end in unknown | running) exit 65 ;; *) exit "$end" ;; esac
