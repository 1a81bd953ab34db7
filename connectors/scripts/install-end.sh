# Use the new sudoers lines. Scripts of another version are deleted last: until then their rules can
# still be in use. KEPT has the paths of the others, with blanks around each.
# shellcheck disable=SC2154 # install-begin.sh sets rules and check, and has same

visudo -cf "$rules" >&2
if ! same "$rules" /etc/sudoers.d/keyturn 440; then
    echo "changed: /etc/sudoers.d/keyturn"
    if [ -z "$check" ]; then
        chmod 440 "$rules"
        mv -f -- "$rules" /etc/sudoers.d/keyturn
    fi
fi

for file in "$FOLDER"/*; do
    [ -e "$file" ] || continue
    case $KEPT in
    *" $file "*) ;;
    *)
        echo "changed: $file is removed"
        [ -n "$check" ] || rm -f -- "$file"
        ;;
    esac
done
[ -n "$check" ] || echo "scripts and sudoers lines are installed on $HOST"
