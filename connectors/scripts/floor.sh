# What the floor of an enrolled host says, as functions of awk. The caller's awk has, besides, the
# words of a command in word[1] to word[words].
# shellcheck shell=sh disable=SC2016,SC2034

# take_floor() takes a line of the floor. floor_error() says what is wrong with it, if anything, once
# all lines are taken. Of a floor without error, name is this host, skew the tolerance of its clock
# in seconds, origins the pages on which people may sign, and verifies whether their devices must ask
# for a fingerprint or a PIN.
#
# judge(people, alone) compares the command with the floor: what is never run, and who must have
# signed. It returns why the command may not run, or "". Of the lines that fit, those with the most
# words hold. For a command that changes signers or floor, all lines hold. A command without input
# (alone) runs unsigned where a line has exactly its words, and no line `signed` has them.
floor_rules='
    BEGIN { skew = 60 }
    function take_floor(    i) {
        if ($1 == "floor") version = $2
        else if ($1 == "host") name = $2
        else if ($1 == "skew") skew = $2
        else if ($1 == "origin") origins[$2] = 1
        else if ($1 == "verify-user") verifies = 1
        else if ($1 == "group") for (i = 3; i <= NF; i++) member[$2, $i] = 1
        else if ($1 == "signed" && NF < 3 || ($1 == "unsigned" || $1 == "never") && NF < 2) odd = $0 ", with a word missing"
        else if ($1 == "signed" || $1 == "unsigned" || $1 == "never") rule[++rules] = $0
        else if (NF && $1 !~ /^#/) odd = $1
    }
    function floor_error() {
        if (odd != "") return "holds a line that this version does not know: " substr(odd, 1, 100)
        if (version "" != "1") return "has not version 1"
        if (name !~ /^[A-Za-z0-9._-]+$/) return "does not name this host"
        if (skew !~ /^(0|[1-9][0-9]?[0-9]?[0-9]?)$/) return "has a skew that is no number of seconds"
        return ""
    }
    function fits(from,    i) {
        if (parts - from + 1 > words) return 0
        for (i = from; i <= parts; i++) if (part[i] "" != word[i - from + 1] "") return 0
        return 1
    }
    function judge(people, alone,    i, n, r, all, free, longest, asked, needed, of, person, found, who) {
        for (i = 1; i <= words; i++) if (word[i] ~ /\/etc\/keyturn|\/keyturn\/signed-files-/) all = 1
        for (r = 1; r <= rules; r++) {
            parts = split(rule[r], part, " ")
            if (part[1] == "never" && parts > 1 && fits(2)) return "it is never run on this host"
            if (part[1] == "unsigned" && parts == words + 1 && fits(2) && alone && !all) free = 1
            if (part[1] != "signed" || parts < 3 || !(all || fits(4))) continue
            if (parts > longest && !all) { longest = parts; asked = 0 }
            if (parts == longest || all) { needed[++asked] = part[2]; of[asked] = part[3] }
        }
        if (free && longest < words + 3) return ""
        if (!asked) return "nothing says who has to sign it"
        n = split(people, person, " ")
        for (r = 1; r <= asked; r++) {
            found = 0
            for (i = 1; i <= n; i++) if (of[r] == "any" || (of[r], person[i]) in member) found++
            if (found >= needed[r] + 0 && needed[r] ~ /^[0-9]$/) continue
            who = of[r] == "any" ? needed[r] " people" : needed[r] " of the group " of[r]
            return "it needs the signatures of " who ", and has those of " (n ? people : "no one")
        }
        return ""
    }'
