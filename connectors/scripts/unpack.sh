# Unpack the archive $1, which is fetched first if it is an address, into the directory $2.
# $3: whose its files are, as chown takes it, and $4: their mode; - leaves what the archive says.
# Any others: arguments of tar. Nothing of an archive that cannot be read is ever there.
set -eu
archive=$1 place=$2 owner=$3 mode=$4
shift 4
work=$(mktemp -d -- "$place/.unpack.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
case $archive in
*://*)
    curl -fsSL -o "$work/archive" -- "$archive"
    archive=$work/archive
    ;;
esac
mkdir -- "$work/new"
if tar --force-local -tf "$archive" >/dev/null 2>&1; then
    tar --force-local -xf "$archive" -C "$work/new" "$@"
else
    [ "$#" = 0 ]
    unzip -qo "$archive" -d "$work/new"
fi
[ "$owner" = - ] || chown -hR -- "$owner" "$work/new"
[ "$mode" = - ] || chmod -R -- "$mode" "$work/new"
find "$work/new" -mindepth 1 -maxdepth 1 -exec cp -a --remove-destination -t "$place" -- {} +
