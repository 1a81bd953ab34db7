# Replace a udev rule of Keyturn by the one on standard input, or remove it if that is empty.
# Argument: the file.
#
# A udev rule can run any program, so only lines that Keyturn can write are accepted, and a file
# without Keyturn's header stays. udev reads only files whose names end with .rules, so it never
# reads a part of one.
# HEADER and RULE are the patterns of both kinds of lines.

set -e
umask 022
mkdir -p "${1%/*}"
new=$(mktemp "${1%/*}/.keyturn.XXXXXX")
trap 'rm -f -- "$new"' EXIT
cat >"$new"
other=0
LC_ALL=C grep -qvxE -e "$HEADER" -e "$RULE" "$new" || other=$?
[ "$other" = 1 ] || {
    echo this is not a rule of Keyturn >&2
    exit 1
}
[ ! -s "$1" ] || head -n 1 -- "$1" | grep -qx -e "$HEADER" || {
    echo "$1 was not written by Keyturn" >&2
    exit 1
}
[ -s "$new" ] || {
    rm -f -- "$1"
    exit
}
chmod 644 "$new"
mv -f -- "$new" "$1"
