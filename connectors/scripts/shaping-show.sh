# Print the links and the queues of all interfaces, each as one line of JSON. Then print the
# interfaces whose incoming packets are redirected to an ifb device of Keyturn. The name of such a
# device has the number of its interface, since the interface can be renamed.

ip -j link show && tc -s -j qdisc show &&
    for in in $(tc qdisc show | sed -n 's/.* dev \(kt-in[0-9]*\) root .*/\1/p'); do
        card=$(ip -o link show | sed -n "s/^${in#kt-in}: \([^:@]*\).*/\1/p")
        [ -z "$card" ] || tc filter show dev "$card" parent ffff: |
            sed -n "s/.*Redirect to device \($in\)).*/led $card/p"
    done
