# End the probation of a change: it stays. Arguments: root, name, change.

set -eu
wanted=$3
. ./probation.sh

none() {
    echo "nothing is on probation as $name" >&2
    exit 1
}

[ -e "$mine.armed" ] || none
exec 9>"$mine.lock"
flock 9
[ -e "$mine.armed" ] || none
if due <"$mine.armed" || [ "$change" != "$wanted" ]; then none; fi
echo "$((${now%.*} - $(cat "$mine/began")))" >"$mine.took"
end
echo "$name is kept"
