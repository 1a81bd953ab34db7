# Set the options of fstab's line for /proc, which may differ only in hidepid. `sed -i` replaces the
# file atomically, and keeps its owner, mode and label. Argument: the options.
# BEFORE is the pattern of the line up to its options.

# Print options, one on each line, without hidepid.
bare() { printf "%s\n" "$1" | tr , "\n" | grep -vxE "hidepid=[a-z0-9]+|defaults"; }

case $1 in
*[!A-Za-z0-9=,._-]*) exit 1 ;;
esac
if ! was=$(sed -nE "s|$BEFORE([^[:space:]]+).*|\2|p" /etc/fstab) ||
    [ -z "$was" ] || [ "$(bare "$was")" != "$(bare "$1")" ]; then
    echo "more than hidepid would change in fstab: $was" >&2
    exit 1
fi
exec sed -i --follow-symlinks -E -e "s|${BEFORE}[^[:space:]]+|\1$1|" /etc/fstab
