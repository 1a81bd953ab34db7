# Save and restore the lines of one address in csf.allow and csf.deny, and the rules in force. Other
# lines stay as they are, since lfd and people write there too.
# Arguments: phase, csf's directory, its program, the address.

umask 077
. ./csf-rules.sh
case $1 in
save)
    for each in allow deny; do
        awk -v a="$4" '$1 == a ""' "$2/csf.$each" >"$each" || exit
    done
    save_rules "$2"
    ;;
restore)
    for each in allow deny; do
        file=$2/csf.$each
        { awk -v a="$4" '$1 != a ""' "$file" && cat "$each"; } >"$file.back" &&
            sync "$file.back" && mv "$file.back" "$file"
    done
    restore_rules "$2" "$3"
    ;;
*) exit 1 ;;
esac
