# Set a leg of a bond up or down, on probation, and wait until the bond notices. The last leg stays.
# The new link may need seconds, and a bond has delays.
# Arguments: root, bond, leg, up or down.

set -eu
name=bond
. ./probation-try.sh
file=${1%/}/proc/net/bonding/$2

refuse() {
    echo "$1" >&2
    exit 1
}

# Print the name and state of each leg.
links() {
    awk '/^Slave Interface:/ {leg = $3}
        /^MII Status:/ && leg {print leg, $3; leg = ""}' "$file"
}

links | grep -q "^$3 " || refuse "$3 is no member of $2"
if [ "$4" = down ]; then
    links | grep -v "^$3 " | grep -q " up$" || refuse "$3 is the last leg of $2"
fi
ip link set dev "$3" "$4"
tries=0
until links | grep -qx "$3 $4"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 200 ]; then
        [ "$4" = up ] || refuse "$2 does not notice that $3 is down"
        echo "$3 is set up, and has no link yet"
        exit 0
    fi
    sleep 0.1
done
echo "$3 of $2 is $4"
