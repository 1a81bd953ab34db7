# Save and restore files on which logins depend, each if it has changed, and have sshd read its own
# again. FILES: their paths. UNITS: the names that the service of sshd may have, or nothing.
# Argument: phase.

case $1 in
save)
    number=0
    for file in $FILES; do
        number=$((number + 1))
        if [ -e "$file" ]; then cp -aL -- "$file" "$number" || exit 1; fi
    done
    ;;
restore)
    number=0 status=0
    for file in $FILES; do
        number=$((number + 1))
        file=$(readlink -f -- "$file") || status=1
        if [ ! -e "$number" ]; then
            rm -f -- "$file" || status=1
        elif cmp -s -- "$number" "$file"; then
            chown --reference="$number" -- "$file" || status=1
            chmod --reference="$number" -- "$file" || status=1
        else
            { cp -a -- "$number" "$file.keyturn" && mv -fT -- "$file.keyturn" "$file"; } || status=1
        fi
    done
    for unit in $UNITS; do
        state=$(systemctl show --property=LoadState "$unit.service") || status=1
        if [ "$state" = LoadState=loaded ]; then
            systemctl reload-or-restart "$unit.service" || status=1
            break
        fi
    done
    sync
    exit "$status"
    ;;
*) exit 1 ;;
esac
