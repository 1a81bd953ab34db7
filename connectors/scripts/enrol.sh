# Enrol this host, as root: from now on it runs only what people have signed. SIGNERS and FLOOR hold
# the content of the two files that say whose signatures count, and how many of them.
# shellcheck disable=SC2154 # install-begin.sh sets check and staged, and has same

version=$(ssh -V 2>&1 | sed -n 's/^OpenSSH_\([0-9][0-9.]*\).*/\1/p')
if ! command -v ssh-keygen >/dev/null || ! awk -v found="$version" 'BEGIN {
    split(found, part, ".")
    exit !(part[1] > 8 || part[1] == 8 && part[2] >= 9)
}'; then
    echo "this host has OpenSSH ${version:-of no known version}, and signatures need 8.9 or later:" \
        "nothing was changed" >&2
    exit 1
fi
if [ -z "$check" ]; then
    mkdir -p /etc/keyturn /var/lib/keyturn-signed
    chown 0:0 /etc/keyturn /var/lib/keyturn-signed
    chmod 755 /etc/keyturn
    chmod 700 /var/lib/keyturn-signed
fi

# Write the file of this name, and keep another that was there.
put_file() {
    printf '%s\n' "$2" >"$staged"
    if same "$staged" "/etc/keyturn/$1" 644; then return 0; fi
    echo "changed: /etc/keyturn/$1"
    [ -z "$check" ] || return 0
    printf '%s\n' "$2" >"/etc/keyturn/$1.new"
    chown 0:0 "/etc/keyturn/$1.new"
    chmod 644 "/etc/keyturn/$1.new"
    if [ -e "/etc/keyturn/$1" ] && ! cmp -s "/etc/keyturn/$1" "/etc/keyturn/$1.new"; then
        cp -p "/etc/keyturn/$1" "/etc/keyturn/$1.before"
        echo "/etc/keyturn/$1 is another now: what it was is in /etc/keyturn/$1.before"
    fi
    mv -f "/etc/keyturn/$1.new" "/etc/keyturn/$1"
}

put_file signers "$SIGNERS"
put_file floor "$FLOOR"
# A plan from before this time could have run here already.
if [ ! -s /var/lib/keyturn-signed/since ]; then
    echo "changed: /var/lib/keyturn-signed/since"
    [ -n "$check" ] || date +%s >/var/lib/keyturn-signed/since
fi
