# Print the files that each process of a name has mapped, its memory, and its settings of malloc. The
# rest of the environment may be secret. A process that ends meanwhile is skipped.
# Argument: a pattern of names.

for pid in $(pgrep -x -- "$1"); do
    memory=$(awk '
        NR == FNR { if (/^VmRSS:/) print; next }
        (at = index($0, " /")) && !seen[path = substr($0, at + 1)]++ { print "map " path }
        ' "/proc/$pid/status" "/proc/$pid/maps") || continue
    printf "pid %s\n%s\n" "$pid" "$memory"
    tr '\0' '\n' <"/proc/$pid/environ" | grep -E '^(LD_PRELOAD|MALLOC_[A-Z_]*)='
done
true
