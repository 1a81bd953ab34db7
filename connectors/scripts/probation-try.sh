# End a script unless a change is on probation, and keep the host from restoring it meanwhile.
# $name is the name of the probation, and the first argument the directory that all paths are in.
# shellcheck disable=SC2154

mine=${1%/}/var/lib/keyturn-probation/$name

none() {
    echo nothing is on probation >&2
    exit 1
}

[ -e "$mine.armed" ] || none
exec 9>"$mine.lock"
flock 9
[ -e "$mine.armed" ] || none
