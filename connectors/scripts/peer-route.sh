# Print the card of the route to a peer, and its speed in Mbit/s. Virtual cards have no speed, and
# for some the file cannot be read. Argument: the peer.

said=$(ip -o route get "$1") || exit 1
case $said in
*" dev "*) card=${said##* dev } ;;
*) card= ;;
esac
card=${card%% *}
{ read -r speed <"/sys/class/net/$card/speed"; } 2>/dev/null || speed=-1
echo "$card"
echo "$speed"
