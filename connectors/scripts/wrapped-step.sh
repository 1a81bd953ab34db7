# Run the command of a step, at most once, and print the secret word as for other commands.
# Arguments: the command's deadline in seconds, the note for the host's log, the marker's four
# arguments, the bytes of the command's input, the hash of the secret word, and the command.
# kt_end is the exit status, or one word with the reason why nothing was run.
#
# It has no single quotes and backslashes, since it passes through any login shell.
# shellcheck disable=SC2154 # kt_word is read before, kt_after and kt_days are constants

kt_seconds=$1 kt_note=$2 kt_place=$3 kt_run=$4
kt_step=$5 kt_fence=$6 kt_in=$7 kt_print=$8 kt_end=
shift 8
LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export LC_ALL PATH

kt_say() {
    echo "$kt_word $1"
    echo "$kt_word $1" >&2
}

kt_say begins
. ./step-place.sh

# Write what a marker needs, with programs: not every shell prints why it cannot.
kt_try() {
    if [ -d "$kt_place" ]; then
        if [ -L "$kt_place" ]; then
            :
        elif [ -O "$kt_place" ]; then
            echo room | tee "$kt_place/$kt_run@$kt_fence"
        fi
    else
        mkdir -m 700 "$kt_place"
    fi
}

# Print why no marker can be written: the disk is full, or something else.
kt_full() {
    # shellcheck disable=SC2069 # the reason is wanted, and not the output
    case $(kt_try 2>&1 >/dev/null) in
    *"No space left"* | *"uota exceeded"*) echo full ;;
    *) echo unmarked ;;
    esac
}

if command -v timeout >/dev/null && command -v tee >/dev/null; then
    if kt_own; then
        for kt_seen in "$kt_place/$kt_run@"*; do
            if [ "${kt_seen##*@}" -gt "$kt_fence" ]; then kt_end=fenced; fi
        done
        if [ "$kt_end" ]; then
            :
        elif mkdir -m 700 "$kt_dir" 2>/dev/null; then
            :
        elif [ -d "$kt_dir" ]; then
            kt_end=held
        else
            kt_end=$(kt_full)
        fi
    else
        kt_end=$(kt_full)
    fi
else
    kt_end=unwatched
fi

# Print how the step ended, of which this shell stays the parent until then: the status script checks
# whether it runs.
kt_run_step() {
    # It runs while the input arrives, and ends before the command starts.
    if [ "$kt_note" ]; then
        timeout 2 logger -t keyturn "$kt_note" </dev/null >/dev/null 2>&1 &
    fi
    # Store the input in one block: `dd` prints whether it is complete, and collects partial reads
    # only if its input and output block sizes differ.
    if [ "$kt_in" -gt 0 ]; then
        case $(dd ibs=$((kt_in + 1)) obs="$kt_in" of="$kt_dir/in" 2>&1) in
        *"1+0 records out"*) exec <"$kt_dir/in" ;;
        *) kt_end=short ;;
        esac
    fi
    read -r kt_stat </proc/self/stat
    read -r kt_boot </proc/sys/kernel/random/boot_id
    if [ "$kt_end" ]; then
        echo "$kt_end" >"$kt_dir/closed"
    elif { echo "$kt_print $kt_boot $kt_stat" >"$kt_dir/begun"; } 2>/dev/null; then
        wait
        timeout -k "$kt_after" "$kt_seconds" "$@"
        kt_end=$?
        { echo "$kt_end" >"$kt_dir/end"; } 2>/dev/null
    else
        kt_end=$(kt_full)
    fi
    kt_say "$kt_end"
    [ "$kt_in" -eq 0 ] || { true >"$kt_dir/in"; } 2>/dev/null
    # Delete old markers, of the same Keyturn only: the directory may contain other files. The name
    # of a run ends with the second of its request: without four digits it changes every eighteen
    # hours.
    kt_seen=${kt_run##*-}
    kt_seen=$kt_place/${kt_run%%-*}-swept-${kt_seen%????}
    if [ "$kt_step" = 1 ] && [ ! -e "$kt_seen" ] && { true >"$kt_seen"; } 2>/dev/null; then
        find "$kt_place" -mindepth 1 -maxdepth 1 -name "${kt_run%%-*}-*" -mtime "+$kt_days" \
            -exec rm -rf {} + </dev/null >/dev/null 2>&1 &
    fi
}

# Read the output even when the connection is gone, and keep 1 MiB of it.
if [ "$kt_end" ]; then
    kt_say "$kt_end"
else
    {
        kt_run_step "$@" 2>&1 >&3 3>&- 4>&- | {
            trap "" PIPE XFSZ
            ulimit -f 2048
            exec tee "$kt_dir/err" >&4 2>/dev/null 3>&- 4>&-
        }
    } 3>&1 4>&2 | {
        trap "" PIPE XFSZ
        ulimit -f 2048
        exec tee "$kt_dir/out" 2>/dev/null
    }
fi
