# Print what is known of one probation, and of the last drill.
# Arguments: root, name, and the seconds of its setting or nothing.

. ./probation.sh
seconds=${3:-0}

read -r now rest </proc/uptime
read -r booted </proc/sys/kernel/random/boot_id
. ./probation-seconds.sh
[ "$#" -lt 3 ] || echo "lasts $seconds"
restored=
if { read -r restored status at <"$mine.restored"; } 2>/dev/null; then
    echo "restored $restored $status $at"
fi
# A restore that was broken off after its work leaves its change armed.
if { read -r change until boot <"$mine.armed"; } 2>/dev/null && [ "$change" != "$restored" ]; then
    [ "$boot" = "$booted" ] || until=0
    echo "armed $change $((until - ${now%.*}))"
fi
if { read -r change status at <"$place/drill.restored"; } 2>/dev/null; then
    echo "drill $status $(($(date +%s) - at))"
fi
