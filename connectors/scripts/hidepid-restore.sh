# Save and restore hidepid, as it is in force and in fstab. fstab is restored only if nothing but
# its line for /proc has changed. Argument: phase.

# Print a file without the line for /proc.
rest() { sed -E '/^[[:space:]]*[^#[:space:]]+[[:space:]]+[/]proc[[:space:]]/d' "$1"; }

case $1 in
save)
    cp -a -- "$(readlink -f /etc/fstab)" fstab &&
        options=$(grep ' /proc proc ' /proc/mounts | tail -n 1) &&
        options=$(echo ",$options" | sed -n 's/.*[ ,]hidepid=\([a-z0-9]*\).*/\1/p') &&
        echo "${options:-0}" >value
    ;;
restore)
    status=0
    mount -o "remount,hidepid=$(cat value)" /proc || status=1
    file=$(readlink -f /etc/fstab)
    if [ "$(rest fstab)" = "$(rest "$file")" ]; then
        { cp -a fstab "$file.keyturn" && mv "$file.keyturn" "$file"; } || status=1
        sync
    fi
    exit $status
    ;;
*) exit 1 ;;
esac
