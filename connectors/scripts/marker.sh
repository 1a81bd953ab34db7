# Print the status of a step. A step that has not started by now never will: a slow connection that
# brings it later finds that its directory exists. Arguments: those of its marker.

kt_place=$1 kt_run=$2 kt_step=$3 kt_fence=$4
. ./step-place.sh
read -r kt_booted </proc/sys/kernel/random/boot_id
read -r kt_up _ </proc/uptime
kt_print=
kt_boot=
kt_stat=
kt_status=

kt_known() { [ -s "$kt_dir/begun" ] && read -r kt_print kt_boot kt_stat <"$kt_dir/begun"; }

kt_ended() {
    if [ -e "$kt_dir/end" ] && read -r kt_status <"$kt_dir/end"; then
        :
    else
        kt_status=
        false
    fi
}

# Print when a process began, which distinguishes it from another with the same number.
kt_began() {
    case $1 in
    Z | X) ;;
    *) echo "${20}" ;;
    esac
}

# Set kt_is to whether the shell of the step is running or gone.
kt_find() {
    kt_pid=${kt_stat%% *}
    kt_now=
    { read -r kt_now <"/proc/$kt_pid/stat"; } 2>/dev/null
    kt_stat=${kt_stat##*") "}
    kt_now=${kt_now##*") "}
    # shellcheck disable=SC2086 # the fields of the process are words
    if [ "$(kt_began $kt_now)" ] && [ "$(kt_began $kt_stat)" = "$(kt_began $kt_now)" ]; then
        kt_is=running
    else
        kt_is=gone
    fi
}

if kt_own; then
    if mkdir -m 700 "$kt_dir" 2>/dev/null && echo asked >"$kt_dir/closed"; then
        kt_is=closed
    elif kt_known; then
        # It may end while this script checks.
        if kt_ended; then
            kt_is=ended
        elif [ "$kt_boot" != "$kt_booted" ]; then
            kt_is=rebooted
        else
            kt_find
            if [ $kt_is = gone ] && kt_ended; then kt_is=ended; fi
        fi
    elif [ -e "$kt_dir/closed" ]; then
        kt_is=closed
    elif [ -d "$kt_dir" ]; then
        kt_is=starting
    else
        kt_is=unmarked
    fi
else
    kt_is=unmarked
fi

kt_size() {
    if [ -e "$1" ]; then
        echo $(($(wc -c <"$1")))
    else
        echo 0
    fi
}

kt_at() { date -r "$1" +%s 2>/dev/null || echo -; }

echo "$kt_is ${kt_status:--} $kt_up ${kt_print:--} ${kt_boot:--} ${kt_booted:--}" \
    "$(kt_at "$kt_dir/begun") $(kt_at "$kt_dir/end")" \
    "$(kt_size "$kt_dir/out") $(kt_size "$kt_dir/err")"
if [ "$kt_print" ] && [ "$kt_is" != running ]; then
    for kt_seen in out err; do
        [ -e "$kt_dir/$kt_seen" ] && cat "$kt_dir/$kt_seen"
        echo "$kt_print next"
    done
fi
