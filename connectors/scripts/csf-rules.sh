# Save and restore the rules in force, which let Keyturn in before, whatever csf loads now.
# The second argument is csf's directory, the third its program.

# Whether a setting of csf.conf is on.
on() { grep -Eq "^$2 *= *.1." "$1/csf.conf"; }

save_rules() {
    iptables-save >rules && : >rules6 && { ! on "$1" IPV6 || ip6tables-save >rules6; } && sync
}

# With LFDSTART, `-r` leaves the loading to a daemon.
restore_rules() {
    sync "$1"
    option=-r
    if on "$1" LFDSTART; then option=-sf; fi
    "$2" "$option"
    status=0
    iptables-restore <rules || status=1
    [ ! -s rules6 ] || ip6tables-restore <rules6 || status=1
    exit $status
}
