# Add a line to Keyturn's file of agents that nginx blocks, or remove one. Arguments: the file,
# nginx's configuration, add or remove, the line.
#
# If nginx refuses the file or cannot reload it, the old file is restored. The new file replaces the
# old one atomically.

. ./agents-guard.sh
umask 022
file=$1 config=$2
old=$(cat "$file") || exit 1

put() { printf "%s\n" "$1" >"$file.new" && mv "$file.new" "$file"; }

new=$(printf "%s\n" "$old" | grep -vxF -e "$4")
[ "$3" = remove ] || new=$(printf "%s\n%s" "$new" "$4")
put "$new" || exit 1
if nginx -t -q -c "$config" && nginx -s reload -c "$config"; then exit 0; fi
put "$old"
exit 1
