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
mkdir -p "$FOLDER"
chown 0:0 "$FOLDER"
chmod 755 "$FOLDER"
# sudo ignores files with a period in their names, so the new file is checked before it is used.
rules=$(mktemp /etc/sudoers.d/.keyturn.XXXXXX)
trap 'rm -f -- "$rules"' EXIT

put() {
    cat >"$1.new"
    chown 0:0 "$1.new"
    chmod 755 "$1.new"
    mv -f -- "$1.new" "$1"
}
