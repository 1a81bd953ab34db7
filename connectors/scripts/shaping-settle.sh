# Limit the traffic of an interface, or end that. The arguments of both functions are the interface,
# and kbit/s in and out; 0 is no limit.

# A bucket holds the traffic of 10 ms, and at least a jumbo frame.
bucket() {
    burst=$(($2 * 5 / 4))
    [ "$burst" -gt 10240 ] || burst=10240
    tc qdisc replace dev "$1" root handle "$HANDLE" tbf rate "$2kbit" burst "$burst" latency 50ms
}

refuse() {
    echo "$1" >&2
    exit 1
}

# Refuse the loopback interface, and one that has a queue of another program.
fit() {
    in=$(ip -o link show dev "$1")
    case $in in
    *LOOPBACK*) refuse "$1 is the loopback interface" ;;
    esac
    in="kt-in${in%%:*}"
    if [ "$3" != 0 ] && tc qdisc show dev "$1" | grep " root " |
        grep -qvE "^qdisc ([a-z0-9_]+ 0:|tbf $HANDLE) root"; then
        refuse "another program's queue is on $1"
    fi
    if [ "$2" != 0 ] && ! ip link show dev "$in" >/dev/null 2>&1 &&
        tc qdisc show dev "$1" | grep -qE "^qdisc (ingress|clsact) "; then
        refuse "another program's queue is on $1"
    fi
}

settle() {
    in=$(ip -o link show dev "$1")
    in="kt-in${in%%:*}"
    if [ "$3" != 0 ]; then
        bucket "$1" "$3"
    elif tc qdisc show dev "$1" | grep -q "^qdisc tbf $HANDLE root"; then
        tc qdisc del dev "$1" root
    fi
    if [ "$2" != 0 ]; then
        ip link show dev "$in" >/dev/null 2>&1 || ip link add "$in" type ifb
        ip link set dev "$in" up
        bucket "$in" "$2"
        tc qdisc show dev "$1" | grep -q "^qdisc ingress ffff:" ||
            tc qdisc add dev "$1" handle ffff: ingress
        tc filter show dev "$1" parent ffff: | grep -q "Redirect to device $in)" ||
            tc filter add dev "$1" parent ffff: protocol all prio 10 u32 match u32 0 0 \
                action mirred egress redirect dev "$in"
    elif ip link show dev "$in" >/dev/null 2>&1; then
        ! tc qdisc show dev "$1" | grep -q "^qdisc ingress ffff:" ||
            tc qdisc del dev "$1" ingress
        ip link del "$in"
    fi
}
