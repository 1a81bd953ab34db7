# Try standard input as the content of the file $1, and put it there if TRIAL accepts it.

. ./trial.sh
cat >"$tried"
place_tried
