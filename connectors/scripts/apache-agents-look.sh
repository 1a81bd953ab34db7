# Print what Apache includes, and Keyturn's file of blocked agents. Arguments: the file, Apache's
# control program.

"$2" -t -D DUMP_INCLUDES || exit
echo "$MARK"
[ ! -e "$1" ] || cat "$1"
