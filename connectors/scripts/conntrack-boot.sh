# Set the limit of tracked connections at boot, or no longer. Argument: the limit, or none.

set -eu
umask 022
file=$BOOT_FILE
if [ -e "$file" ] && ! grep -q "^# Written by Keyturn" "$file"; then
    echo "$file was not written by Keyturn" >&2
    exit 1
fi
case $1 in
none) rm -f -- "$file" ;;
*)
    printf "# Written by Keyturn\n%s = %s\n" "$KEY" "$1" >"$file.new"
    sync "$file.new"
    mv -- "$file.new" "$file"
    ;;
esac
sync "${file%/*}"
