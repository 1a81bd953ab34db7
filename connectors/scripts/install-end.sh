# Use the new sudoers lines. Scripts of another version are deleted last: until then their rules can
# still be in use. KEPT has the paths of the others, with blanks around each.
# shellcheck disable=SC2154 # install-begin.sh sets rules

visudo -cf "$rules" >&2
chmod 440 "$rules"
mv -f -- "$rules" /etc/sudoers.d/keyturn

for file in "$FOLDER"/*; do
    case $KEPT in
    *" $file "*) ;;
    *) rm -f -- "$file" ;;
    esac
done
echo "scripts and sudoers lines are installed on $HOST"
