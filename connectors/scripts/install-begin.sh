# Begin to install the scripts and the sudoers lines of Keyturn, as root. What follows puts each
# script, and writes the lines into the file $rules.

set -eu
umask 022
[ "$(id -u)" = 0 ] || {
    echo "run this as root: nothing was changed" >&2
    exit 1
}
# The rules are checked by the visudo of the sudo that will read them.
reader=$(sudo -V | sed -n '1s/^[A-Za-z]* version //p')
checker=$(visudo -V | sed -n '1s/^[A-Za-z]* version //p')
case $(sudo -V | head -n 1) in
sudo-rs*)
    echo "sudo is sudo-rs: $ADVICE. Nothing was changed" >&2
    exit 1
    ;;
esac
[ "$reader" = "$checker" ] || {
    echo "visudo $checker is not that of sudo $reader: choose one with" \
        "update-alternatives --config visudo. Nothing was changed" >&2
    exit 1
}
# With KEYTURN_CHECK nothing is changed, and what would be is printed.
check=${KEYTURN_CHECK:-}
if [ -z "$check" ]; then
    mkdir -p "$FOLDER"
    chown 0:0 "$FOLDER"
    chmod 755 "$FOLDER"
fi
staged=$(mktemp)
# sudo ignores files with a period in their names, so the new file is checked before it is used.
rules=$(if [ -n "$check" ]; then mktemp; else mktemp /etc/sudoers.d/.keyturn.XXXXXX; fi)
trap 'rm -f -- "$staged" "$rules"' EXIT

# same FILE PATH MODE: whether PATH is a file of root with this mode and the content of FILE.
same() {
    [ -n "$(find "$2" -prune -type f -user 0 -group 0 -perm "$3" 2>/dev/null)" ] &&
        cmp -s "$1" "$2"
}

put() {
    cat >"$staged"
    if same "$staged" "$1" 755; then return 0; fi
    echo "changed: $1"
    [ -z "$check" ] || return 0
    cat "$staged" >"$1.new"
    chown 0:0 "$1.new"
    chmod 755 "$1.new"
    mv -f -- "$1.new" "$1"
}
