# Save and restore Keyturn's list of addresses, and the rules in force.
# Arguments: phase, csf's directory, its program.

. ./csf-rules.sh
case $1 in
save) cp -- "$2/keyturn.allow" list && save_rules "$2" ;;
restore)
    cp list "$2/keyturn.back" && sync "$2/keyturn.back" &&
        mv "$2/keyturn.back" "$2/keyturn.allow"
    restore_rules "$2" "$3"
    ;;
*) exit 1 ;;
esac
