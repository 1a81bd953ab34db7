# Fetch $1 beside the file $2. $3: the SHA-256 that it has to have, if it is given. A file is never
# there in part.
set -eu
new=$(mktemp -- "$2.XXXXXX")
trap 'rm -f -- "$new"' EXIT
curl -fsSL -o "$new" -- "$1"
if [ "$#" = 3 ]; then
    echo "$3  $new" | sha256sum -c --quiet -
fi
