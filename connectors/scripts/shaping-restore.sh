# Save and restore the limits of an interface. Arguments: phase, interface.

. ./shaping-settle.sh

# Print the rate of Keyturn's own queue, in bytes/s.
rate() {
    tc -j qdisc show dev "$1" 2>/dev/null | tr -d ' \n' |
        sed -n 's/.*"kind":"tbf","handle":"'"$HANDLE"'"[^]]*"rate":\([0-9]*\).*/\1/p'
}

case $1 in
save)
    in=$(ip -o link show dev "$2") && in="kt-in${in%%:*}" && down=$(rate "$in") &&
        up=$(rate "$2") && echo "$((${down:-0} * 8 / 1000)) $((${up:-0} * 8 / 1000))" >rates
    ;;
restore)
    set -e
    read -r down up <rates
    settle "$2" "$down" "$up"
    ;;
*) exit 1 ;;
esac
