# Let $seconds be how long a probation lasts, at least as long as its setting says: three times as
# long as the last change that was kept took, and never less than 90 s on a real host.
# shellcheck disable=SC2154 # its includer sets root, mine and seconds

took=$(cat "$mine.took" 2>/dev/null) || took=0
[ "$((took * 3))" -le "$seconds" ] || seconds=$((took * 3))
[ "$root" ] || [ "$seconds" -ge 90 ] || seconds=90
