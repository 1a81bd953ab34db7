# Fetch $1 as the file $2, which is not there yet.

. ./fetch.sh
chmod 644 -- "$new"
mv -nT -- "$new" "$2"
