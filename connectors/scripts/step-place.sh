# Find the place of all markers, and the marker of one step.
# shellcheck disable=SC2034,SC2154 # its includers set and use the other variables

kt_place=${kt_place:-$HOME/.keyturn}
kt_dir=$kt_place/$kt_run-$kt_step
[ -d "$kt_place" ] || mkdir -m 700 "$kt_place" 2>/dev/null

# Whether the login owns the place, and the fencing token can be stored there.
kt_own() {
    [ -O "$kt_place" ] && {
        if [ -L "$kt_place" ]; then
            false
        else
            true >"$kt_place/$kt_run@$kt_fence"
        fi
    } 2>/dev/null
}
