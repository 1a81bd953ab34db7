# Print the clock, Postfix's queue as far as it is not too long, how many messages it has, and the
# headers that name the scripts which sent the first of them.

date +%s
listed=$(postqueue -j) || exit
printf "%s\n" "$listed" | awk -v most="$MOST" -v mark="$MARK" '
    NF { all++; size += length; if (size < most) print }
    END { print mark " " all + 0 }'
names=$(
    printf '%s\n' "$listed" | sed -nE 's/.*"queue_id": "([A-Za-z0-9]+)".*/\1/p' |
        head -n "$OPENED"
)
# shellcheck disable=SC2086 # each id is a word
[ -z "$names" ] || postcat -qh $names 2>/dev/null | grep -aiE '^X-PHP-(Originating-)?Script: '
true
