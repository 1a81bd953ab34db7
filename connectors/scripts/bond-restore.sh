# Save and restore whether the leg of a bond is set up. Arguments: phase, leg.
# The lowest bit of a card's flags is whether it is set up.

case $1 in
save)
    flags=$(cat "/sys/class/net/$2/flags") &&
        if [ "$((flags & 1))" = 1 ]; then echo up; else echo down; fi >state
    ;;
restore) ip link set dev "$2" "$(cat state)" ;;
*) exit 1 ;;
esac
