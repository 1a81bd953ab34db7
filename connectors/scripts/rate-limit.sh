# Count the requests that nginx limited, by zone, in the error logs that were written in the last 24
# hours. Each line ends as "  7 limiting requests by zone one". Argument: the patterns of file names
# in one word.

# shellcheck disable=SC2086 # the patterns are words
files=$(find $1 -type f -mmin -1440)
[ -n "$files" ] || {
    echo none
    exit 0
}
echo some
# shellcheck disable=SC2086
zcat -f $files | grep -oE \
    '(limiting requests|delaying request)(, dry run)?, excess: [0-9.]+,? by zone "[^"]*"' |
    sed -E 's/(, dry run)?, excess: [0-9.]+,?//; s/"//g' | sort | uniq -c
true
