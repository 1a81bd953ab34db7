# Replace the files of an enrolled host that say whose signatures count, and how many of them. Root
# runs it as a step that people signed. Standard input: the lines of signers after "s ", and those
# of floor after "f ".
#
# Nothing is replaced unless both files are understood, and the people whom they name could sign
# what they ask for. While both are replaced, signers holds the people of before and after: so a
# host that loses power meanwhile locks no one out.

set -uf
umask 022
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
signers=/etc/keyturn/signers floor=/etc/keyturn/floor

refuse() {
    echo "nothing was changed: $1" >&2
    exit 1
}

. ./floor.sh

work=$(mktemp -d "${signers%/*}/new.XXXXXX") || refuse "${signers%/*} cannot be written"
trap 'rm -rf "$work"' EXIT
complete=''
awk -v work="$work" '
    /^s / { print substr($0, 3) >(work "/signers"); next }
    /^f / { print substr($0, 3) >(work "/floor"); next }
    { exit 1 }' && [ -s "$work/signers" ] && [ -s "$work/floor" ] && complete=yes
[ "$complete" ] || refuse "the new files are not complete"
people=$(awk '
    !/^[A-Za-z0-9._@][A-Za-z0-9._@-]* namespaces="keyturn-plan" [a-z0-9@.-]+ AAAA[A-Za-z0-9+\/=]+$/ || seen[$4]++ { exit 1 }
    !known[$1]++ { printf "%s ", $1 }' "$work/signers") || refuse "the new signers hold a line that is no key of one person"
problem=$(awk -v people="$people" "$floor_rules"'
    reading == "old" { if ($1 == "host") was = $2; next }
    { take_floor() }
    END {
        problem = floor_error()
        if (!problem && name != was) problem = "is for the host " name
        word[++words] = "/etc/keyturn"
        print problem ? "the new floor " problem : judge(people, 0)
    }' reading=old "$floor" reading=new "$work/floor") || refuse "$floor cannot be read"
[ -z "$problem" ] || refuse "$problem"
awk '!seen[$0]++' "$signers" "$work/signers" >"$work/both" || refuse "${signers%/*} cannot be written"
chmod 644 "$work/both" "$work/signers" "$work/floor"
sync
mv "$work/both" "$signers" && mv "$work/floor" "$floor" && mv "$work/signers" "$signers" && sync
