# What the floor of an enrolled host says. The caller sets floor, and defines refuse.
# shellcheck shell=sh disable=SC2154,SC2034

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
        group | signed | unsigned | never | '' | '#'*) ;;
        *) refuse "$floor holds a line that this version does not know: $key" ;;
        esac
    done <"$floor"
    [ "$version" = 1 ] || refuse "$floor has not version 1"
    case $name in '' | *[!A-Za-z0-9._-]*) refuse "$floor does not name this host" ;; esac
    case $skew in '' | *[!0-9]* | ?????*) refuse "the skew in $floor is not a number of seconds" ;; esac
}

# Compare the words of a command, which are lines of a file, with the floor: what is never run, and
# who must have signed. Of the lines that fit, those with the most words hold. For a command that
# changes signers or floor, all lines hold. A command without input runs unsigned where a line has
# exactly its words, and no line `signed` has them. Arguments: the file, and one with what the command reads.
check_floor() {
    alone=''
    [ -s "$2" ] || alone=yes
    problem=$(awk -v people="$people" -v alone="$alone" '
        function fits(from,    i) {
            if (NF - from + 1 > words) return 0
            for (i = from; i <= NF; i++) if ($i != word[i - from + 1]) return 0
            return 1
        }
        NR == FNR { word[++words] = $0; if ($0 ~ /\/etc\/keyturn|\/keyturn\/signed-files-/) all = 1; next }
        $1 == "group" { for (i = 3; i <= NF; i++) member[$2, $i] = 1 }
        $1 == "never" && NF > 1 && fits(2) { banned = 1 }
        $1 == "unsigned" && NF == words + 1 && fits(2) && alone && !all { free = 1 }
        $1 == "signed" && NF > 2 && (all || fits(4)) {
            if (NF > longest && !all) { longest = NF; rules = 0 }
            if (NF == longest || all) { needed[++rules] = $2; of[rules] = $3 }
        }
        END {
            if (banned) { print "it is never run on this host"; exit }
            if (free && longest < words + 3) exit
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
        }' "$1" "$floor") || refuse "$floor cannot be read"
    [ -z "$problem" ] || refuse "$problem ($floor)"
}
