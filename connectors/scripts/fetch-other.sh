# Fetch $1 in place of the file $2, which keeps its owner and its mode.

. ./fetch.sh
chown --reference="$2" -- "$new"
chmod --reference="$2" -- "$new"
mv -fT -- "$new" "$2"
