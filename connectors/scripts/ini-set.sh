# Have the line $4 for the option $3 in the section [$2] of the file $1, in place of those that set
# it or are comments that do; otherwise after the last line of the section. $5: the value.
set -eu
new=$(mktemp -- "$1.XXXXXX")
trap 'rm -f -- "$new"' EXIT
section=$2 option=$3 line=$4 value=$5 awk '
    function sets(text) {
        is_comment = text ~ /^[ \t]*[#;]/;
        sub(/^[ \t]*[#;]?[ \t]*/, "", text);
        if (index(text, ENVIRON["option"]) != 1) return 0;
        text = substr(text, length(ENVIRON["option"]) + 1);
        sub(/^[ \t]+/, "", text);
        found = text;
        sub(/^=[ \t]*/, "", found);
        return substr(text, 1, 1) == "=" || (text == "" && !is_comment);
    }
    { all[NR] = $0; }
    END {
        head = "[" ENVIRON["section"] "]";
        for (start = 1; start <= NR && index(all[start], head) != 1; start++);
        for (end = start + 1; end <= NR && substr(all[end], 1, 1) != "["; end++);
        for (at = start + 1; at < end && at <= NR; at++) {
            if (!sets(all[at])) continue;
            is_option[at] = 1;
            if (!chosen) chosen = at;
            if (!same && found == ENVIRON["value"]) same = at;
        }
        if (same) chosen = same;
        for (last = end - 1; last > start && all[last] ~ /^[ \t]*([#;].*)?$/; last--);
        if (NR == 0) print "";
        for (at = 1; at <= NR; at++) {
            if (at == chosen || !is_option[at]) print at == chosen ? ENVIRON["line"] : all[at];
            if (!chosen && at == last) print ENVIRON["line"];
        }
        if (start > NR) print head "\n" ENVIRON["line"];
    }
' "$1" >"$new"
cat -- "$new" >"$1"
