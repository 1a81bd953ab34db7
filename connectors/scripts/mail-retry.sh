# Deliver a message of Exim's queue now, also a frozen one, and print the end of its log. Exim waits
# for the end of the attempt and does not tell how it ended, which the message's own log does.
# Arguments: Exim's program, the id.

"$1" -M "$2" </dev/null >/dev/null 2>&1
log=$("$1" -Mvl "$2" 2>/dev/null | tail -n 5)
case $log in
"" | Failed*) echo "$2 is not in the queue any more" ;;
*) printf "%s\n" "$log" ;;
esac
