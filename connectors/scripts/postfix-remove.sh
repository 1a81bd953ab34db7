# Remove messages from Postfix's queue. Their ids are on standard input, one on each line. postsuper
# would take ALL for every message.

ids=$(cat)
if printf '%s\n' "$ids" | LC_ALL=C grep -qvxE '[A-Za-z0-9]{6,20}'; then
    echo these are not ids of messages >&2
    exit 1
fi
printf '%s\n' "$ids" | postsuper -d -
