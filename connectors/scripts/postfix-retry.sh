# Deliver a message of Postfix's queue now, also one on hold, and print it with the reason if it
# still waits. The queue manager begins the attempt within some seconds. Argument: the id.

postsuper -H "$1" 2>/dev/null
postqueue -i "$1" || exit
tries=0
while sleep 1; do
    tries=$((tries + 1))
    line=$(postqueue -j | grep -F "\"queue_id\": \"$1\"")
    case $line in
    "") exit 0 ;;
    *\"active\"* | *\"incoming\"*) [ "$tries" -lt 60 ] || break ;;
    *) [ "$tries" -lt 4 ] || break ;;
    esac
done
printf "%s\n" "$line"
