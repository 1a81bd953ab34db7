#!/bin/sh
# Run one step of a plan that people signed, once. The host's own program: it belongs to root, asks
# Keyturn nothing, and trusts only /etc/keyturn/signers and /etc/keyturn/floor.
#
# Standard input, a letter and a blank before each line:
#   a  do, undo or report, and the number of the step; or history and a number of days, alone
#   d  the document; s the section of this host; g the signatures of ssh-keygen -Y sign
#
# Exit status: that of the step, or 64 for a refusal, whose reason is on standard error.
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

# Let $name be this host, $skew the tolerance of its clock in seconds, $origins the pages on which
# people may sign, and $verifies whether their devices must ask for a fingerprint or a PIN.
read_floor() {
    name='' skew=60 origins=' ' verifies='' version=''
    while read -r key value rest; do
        case $key in
        floor) version=$value ;;
        host) name=$value ;;
        skew) skew=$value ;;
        origin) origins="$origins$value " ;;
        verify-user) verifies=yes ;;
        group | signed | never | '' | '#'*) ;;
        *) refuse "$floor holds a line that this version does not know: $key" ;;
        esac
    done <"$floor"
    [ "$version" = 1 ] || refuse "$floor has not version 1"
    case $name in '' | *[!A-Za-z0-9._-]*) refuse "$floor does not name this host" ;; esac
    case $skew in '' | *[!0-9]* | ?????*) refuse "the skew in $floor is not a number of seconds" ;; esac
}

# Write the parts of standard input, and the words and the input of the step, into files of their
# own. Let $action, $number, $run, $nonce, $begins, $ends and $count (of signatures) say the rest.
receive() {
    head -c "$((MOST_BYTES + 1))" >"$work/all" 2>/dev/null || refuse_full
    facts=$(awk -v work="$work" -v most="$MOST_BYTES" '
        function fail(why) { failed = 1; print "- " why; exit }
        function keep(key, pattern) {
            if (key in fact) fail("the document says its " key " twice")
            fact[key] = substr(line, length(key) + 2)
            if (fact[key] !~ pattern) fail("the document has no valid line for " key)
        }
        { size += length($0) + 1; part = substr($0, 1, 2); line = substr($0, 3) }
        size > most { fail("the input is larger than " most " bytes") }
        part == "a " && line ~ /^(do|undo|report|history) [1-9][0-9]?[0-9]?[0-9]?$/ && !asked { asked = line; split(line, ask, " "); next }
        !asked { fail("the input does not begin with what to do") }
        part == "d " {
            print line >(work "/d")
            if (++documents == 1 && line != "keyturn-plan 1") fail("the document is not a plan of version 1")
            if (line ~ /^run /) keep("run", "^[0-9]+$")
            if (line ~ /^nonce /) keep("nonce", "^[0-9a-f]+$")
            if (line ~ /^not-before /) keep("not-before", "^[0-9]+$")
            if (line ~ /^expires /) keep("expires", "^[0-9]+$")
            next
        }
        part == "s " {
            print line >(work "/s")
            if (++sections == 1 && line != "keyturn-section 1") fail("the section has not version 1")
            if (line ~ /^step( |$)/) step++
            if (step != ask[2]) next
            at = index(line, " "); key = at ? substr(line, 1, at - 1) : line
            undo = ask[1] == "undo" ? "undo" : ""
            if (key == (undo ? "undo" : "do")) print substr(line, length(key) + 2) >(work "/words")
            if (key == (undo ? "undo-in" : "in")) printf "%s%s", (inputs++ ? "\n" : ""), substr(line, length(key) + 2) >(work "/in")
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
            if (known != 4 || !sections || length(fact["nonce"]) != 32 || length(fact["expires"]) > 10 || length(fact["not-before"]) > 10)
                print "- the document or the section is not complete"
            else print asked, fact["run"], fact["nonce"], fact["not-before"], fact["expires"], signatures + 0
        }' "$work/all") || refuse_full
    [ "${facts#- }" = "$facts" ] || refuse "${facts#- }"
    read -r action number run nonce begins ends count <<END
$facts
END
    [ "$action" != history ] || return 0
    [ -s "$work/words" ] || refuse "step $number has no command to $action"
    read -r first <"$work/words"
    case $first in '' | -* | *=*) refuse "step $number does not begin with a program" ;; esac
    [ -e "$work/in" ] || : >"$work/in"
}

# The plan is for this host, and the section is its own.
check_host() {
    hash=$(sha256sum <"$work/s") || refuse_full
    hash=${hash%% *}
    fingerprint=$(sed -n "s/^host $name $hash \(SHA256:[A-Za-z0-9+/]*\)\$/\1/p" "$work/d")
    fingerprint=${fingerprint%%"
"*}
    [ -n "$fingerprint" ] || refuse "these steps are not part of the plan for $name"
    set +f
    keys=$(cat "$root"/etc/ssh/ssh_host_*_key.pub 2>/dev/null | ssh-keygen -l -f - 2>/dev/null)
    set -f
    case $keys in *" $fingerprint "*) ;; *) refuse "the plan is for a host with the key $fingerprint, which $name does not have" ;; esac
}

check_time() {
    now=$(date +%s)
    [ "$now" -ge "$((begins - skew))" ] || refuse "the plan holds from $(say_time "$begins") on, and the clock of this host says $(say_time "$now"): set the clock"
    [ "$now" -lt "$ends" ] || refuse "the plan expired at $(say_time "$ends"), and the clock of this host says $(say_time "$now")"
}

# Print what a signature says of its device: its flags, of which 1 is a touch and 4 a fingerprint or
# PIN; whether a page asked it; and the origin of the page. ssh-keygen checks none of it. A key
# without a device has flag 1.
# The formats are PROTOCOL.sshsig and PROTOCOL.u2f of OpenSSH.
read_signature() {
    awk '
        function number(from, bytes,    i, sum) {
            for (i = from; i < from + bytes; i++) sum = sum * 256 + byte[i]
            return sum
        }
        function skip() { at += 4 + number(at, 4) }
        function take(    from, text) {
            from = at + 4; skip()
            for (; from < at; from++) text = text (byte[from] > 32 && byte[from] < 127 ? sprintf("%c", byte[from]) : "?")
            return text
        }
        BEGIN { letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" }
        /^-----END/ { exit }
        !/^-/ {
            for (i = 1; i <= length($0); i++) {
                value = index(letters, substr($0, i, 1)) - 1
                if (value < 0) continue
                bits = bits * 64 + value; held += 6
                if (held < 8) continue
                held -= 8; byte[n++] = int(bits / 2 ^ held); bits %= 2 ^ held
            }
        }
        END {
            at = 10                          # after SSHSIG and the version
            skip(); skip(); skip(); skip()   # key, namespace, reserved, hash
            at += 4; kind = take(); skip()
            flags = kind ~ /^(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)|rsa-sha2-(256|512))$/
            if (kind ~ /^(webauthn-)?sk-/) { flags = byte[at]; at += 5 }
            if (kind ~ /^webauthn-/) { page = "page"; origin = take(); skip(); skip() }
            print (at == n ? flags : 0), (page ? page : "key"), origin
        }' "$1"
}

# Let $people be who signed this plan, each once.
check_signatures() {
    people='' n=0
    while [ "$n" -lt "$count" ]; do
        n=$((n + 1))
        file=$work/sig.$n
        who=$(ssh-keygen -Y find-principals -s "$file" -f "$signers" 2>/dev/null) ||
            refuse "signature $n is by a key that $signers does not name, or not now"
        case $who in '' | -* | *[!A-Za-z0-9._@-]*) refuse "the key of signature $n does not belong to one person" ;; esac
        ssh-keygen -Y verify -f "$signers" -I "$who" -n keyturn-plan -s "$file" <"$work/d" >/dev/null 2>&1 ||
            refuse "the signature by $who is not one of this plan, or the key is not valid now"
        read -r flags asked origin <<END
$(read_signature "$file")
END
        [ "$((flags & 1))" = 1 ] || refuse "no one touched the device that signed as $who"
        [ -z "$verifies" ] || [ "$((flags & 4))" = 4 ] || refuse "the device that signed as $who asked for no fingerprint or PIN"
        case $asked$origins in key* | page*" $origin "*) ;; *) refuse "$who signed on a page at $origin, which $floor does not name" ;; esac
        case " $people " in *" $who "*) ;; *) people="${people:+$people }$who" ;; esac
    done
}

# Compare the words of the command with the floor: what is never run, and who must have signed. Of
# the lines that fit, those with the most words hold.
check_floor() {
    problem=$(awk -v people="$people" '
        function fits(from,    i) {
            if (NF - from + 1 > words) return 0
            for (i = from; i <= NF; i++) if ($i != word[i - from + 1]) return 0
            return 1
        }
        NR == FNR { word[++words] = $0; next }
        $1 == "group" { for (i = 3; i <= NF; i++) member[$2, $i] = 1 }
        $1 == "never" && NF > 1 && fits(2) { banned = 1 }
        $1 == "signed" && NF > 2 && fits(4) {
            if (NF > longest) { longest = NF; rules = 0 }
            if (NF == longest) { needed[++rules] = $2; of[rules] = $3 }
        }
        END {
            if (banned) { print "it is never run on this host"; exit }
            if (!rules) { print "nothing says who has to sign it"; exit }
            n = split(people, person, " ")
            for (r = 1; r <= rules; r++) {
                found = 0
                for (i = 1; i <= n; i++) if (of[r] == "any" || (of[r], person[i]) in member) found++
                if (found >= needed[r] + 0 && needed[r] ~ /^[0-9]$/) continue
                who = of[r] == "any" ? needed[r] " people" : needed[r] " of the group " of[r]
                print "it needs the signatures of " who ", and has those of " (n ? people : "no one")
                exit
            }
        }' "$work/words" "$floor") || refuse "$floor cannot be read"
    [ -z "$problem" ] || refuse "$problem ($floor)"
}

# Let $plan be the record of this plan on this host. A plan from before the record began may have
# run already, and so may one that it forgot.
open_record() {
    since='' forgotten=0
    { read -r since <"$record/since"; } 2>/dev/null
    case $since in '' | *[!0-9]*) refuse "the record of what ran is missing: as root, write the output of date +%s to $record/since" ;; esac
    [ "$begins" -ge "$since" ] || refuse 'the plan is older than the record of this host: plan it again'
    [ ! -e "$record/forgotten" ] || read -r forgotten <"$record/forgotten" || refuse "$record/forgotten is empty"
    [ "$ends" -gt "$forgotten" ] || refuse 'the plan is older than what this host remembers: is its clock right?'
    plan=$record/$nonce-$hash
    { mkdir -p "$plan" && echo "$ends" >"$plan/ends"; } || refuse_full
}

# Let $end be how an action of a step ended: its exit status, "unknown" once it began, or "".
read_end() {
    end=
    [ ! -d "$plan/$1" ] || end=unknown
    [ ! -e "$plan/$1/end" ] || read -r end <"$plan/$1/end"
}

report() {
    read_end "$number-do"
    echo "do ${end:-never}"
    read_end "$number-undo"
    echo "undo ${end:-never}"
    exit 0
}

# Print what people did without Keyturn in the last days: of each step its place in the record,
# when it began, how it ended, and what this program was sent.
history() {
    for sent in $(find "$record" -mindepth 3 -maxdepth 3 -name input -mtime "-$number" | head -n 1000); do
        grep -qx 'd run 0' "$sent" || continue
        step=${sent%/input} plan=${sent%/*/input}
        read_end "${step##*/}"
        read -r began <"$step/began" || continue
        echo "p ${step#"$record/"} $began $end"
        cat "$sent"
    done
    exit 0
}

check_order() {
    if [ "$action" = undo ]; then
        [ -d "$plan/$number-do" ] || refuse "step $number did not begin here: there is nothing to undo"
    elif [ "$number" -gt 1 ]; then
        read_end "$((number - 1))-do"
        [ "$end" = 0 ] || refuse "step $((number - 1)) has not succeeded here"
    fi
}

# Remember that the step begins, in a way that only one caller can; then log who signed it.
begin() {
    if ! mkdir "$plan/$number-$action" 2>/dev/null; then
        [ ! -d "$plan/$number-$action" ] || refuse "$action of step $number began already: it runs once"
        refuse_full
    fi
    line="run $run, $action $number, signed by $people: $(tr '\n' ' ' <"$work/words" | cut -c 1-400)"
    {
        echo "$now" >"$plan/$number-$action/began" &&
            cp "$work/all" "$plan/$number-$action/input" &&
            echo "$now $nonce $line" >>"$record/log" && sync
    } || refuse_full
    ! command -v logger >/dev/null || logger -p authpriv.notice -t keyturn-signed -- "$line" || :
}

run() {
    set --
    while IFS= read -r word; do set -- "$@" "$word"; done <"$work/words"
    env -i PATH="$PATH" HOME=/root LC_ALL=C "$@" <"$work/in"
    status=$?
    { echo "$status" >"$work/end" && mv "$work/end" "$plan/$number-$action/end"; } ||
        echo "how it ended could not be recorded: is the disk full?" >&2
    exit "$status"
}

# Forget plans that expired a month ago; what is forgotten stays refused, whatever the clock says.
forget() {
    mark=$((now - 2592000))
    [ "$number" = 1 ] || return 0
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
receive
[ "$action" != history ] || history
check_host
check_time
check_signatures
check_floor
open_record
[ "$action" != report ] || report
check_order
begin
forget
run
