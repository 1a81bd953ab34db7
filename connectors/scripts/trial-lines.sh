# Change a copy of the file $1 by sed, with the arguments after it; put it in place of the file if
# TRIAL accepts it.

. ./trial.sh
shift
cat -- "$path" >"$tried"
sed "$@" "$tried"
place_tried
