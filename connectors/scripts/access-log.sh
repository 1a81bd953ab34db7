# Count the requests of the last hours for each client and agent, in the access logs of web servers.
# Arguments: hours, the most rows to print, the patterns of file names in one word; sudo does not see
# the bounds of words.
#
# Hours are by the host's clock and time zone. Files that are older are not opened; `zcat -f` reads
# plain files as well. The first line has the numbers of counted lines, and of lines with an unknown
# format. Then each row has the requests, those of the busiest hour, those that were refused with
# 503, the client and its agent.

case "$1$2" in
*[!0-9]*) exit 1 ;;
esac
# shellcheck disable=SC2086 # the patterns are words
files=$(find $3 -type f -mmin "-$(($1 * 60 + 60))" 2>/dev/null)
[ -n "$files" ] || {
    echo 'no access log was written to' >&2
    exit 3
}
wanted=$(
    seq 0 $(($1 - 1)) | sed "s/.*/-& hours/" |
        LC_ALL=C date -f - "+%d/%b/%Y:%H %Y-%m-%dT%H" | tr "\n" " "
)
# Fields are parted by double quotes. The first block reads the lines of nginx and Apache, the second
# those of HAProxy.
# shellcheck disable=SC2086
zcat -f $files | LC_ALL=C awk -F'"' -v wanted="$wanted" -v most="$2" '
    function is_address(word) {
        return word ~ /^[0-9]+[.][0-9]+[.][0-9]+[.][0-9]+$/ ||
            word ~ /^[0-9a-fA-F.:]*:[0-9a-fA-F.:]*:[0-9a-fA-F.:]*$/
    }
    BEGIN { split(wanted, list, " "); for (each in list) hours[list[each]] = 1 }
    {
        split($3, tail, " "); who = when = ""; status = tail[1]; agent = $6;
        if (match($1, /\[[0-9][0-9]\/[A-Z][a-z][a-z]\/[0-9:]+ [+-][0-9]+\]/) ||
            match($1, /\[[0-9]+-[0-9]+-[0-9]+T[0-9:]+[+-][0-9:]+\]/)) {
            when = substr($1, RSTART, RLENGTH);
            n = split(substr($1, 1, RSTART - 1), head, " ");
            who = head[1];
            if (n > 3 && !is_address(who) && (is_address(head[2]) || who ~ /:[0-9]+$/))
                who = head[2]
        }
    }
    /^[^"]*haproxy\[[0-9]+\]: / {
        if (!match($1, /\[[0-9][0-9]\/[A-Z][a-z][a-z]\/[0-9:]+\.[0-9]+\] /)) next;
        when = substr($1, RSTART, RLENGTH); split(substr($1, RSTART + RLENGTH), tail, " ");
        who = head[split(substr($1, 1, RSTART - 1), head, " ")]; sub(/:[0-9]+$/, "", who);
        status = NF > 2 ? tail[4] : "";
        agent = match($1, /[{].*[}]/) ? substr($1, RSTART + 1, RLENGTH - 2) : "-"
    }
    {
        if (status !~ /^[0-9][0-9][0-9]$/ || when !~ /^\[/) { odd++; next }
        hour = substr(when, 2, when ~ /^.[0-9]+-/ ? 13 : 14); if (!(hour in hours)) next;
        all++; key = who "\t" agent; count[key]++;
        now = ++hourly[key "\t" hour]; if (now > busiest[key]) busiest[key] = now;
        if (status == 503) refused[key]++
    }
    END {
        print all + 0 "\t" odd + 0; fflush();
        for (key in count)
            print count[key] "\t" busiest[key] "\t" refused[key] + 0 "\t" key |
                ("LC_ALL=C sort -rn | head -n " most)
    }'
