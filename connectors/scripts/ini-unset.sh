# Take the line $3 out of the section [$2] of the file $1, and the section if nothing else is in it
# and $4 is new.
set -eu
new=$(mktemp -- "$1.XXXXXX")
trap 'rm -f -- "$new"' EXIT
section=$2 line=$3 kind=$4 awk '
    { all[NR] = $0; }
    END {
        head = "[" ENVIRON["section"] "]";
        for (start = 1; start <= NR && index(all[start], head) != 1; start++);
        for (end = start + 1; end <= NR && substr(all[end], 1, 1) != "["; end++);
        for (at = start + 1; at < end && at <= NR; at++) {
            if (!gone && all[at] == ENVIRON["line"]) gone = at; else others++;
        }
        drops = ENVIRON["kind"] == "new" && gone && !others;
        if (drops && start == 2 && NR == 3 && all[1] == "") exit;
        for (at = 1; at <= NR; at++) {
            if (at != gone && !(drops && at == start)) print all[at];
        }
    }
' "$1" >"$new"
cat -- "$new" >"$1"
