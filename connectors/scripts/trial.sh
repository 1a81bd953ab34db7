# Try what the file in $1 is to be: $tried is a copy to change, which no other program reads, and
# place_tried puts it there if TRIAL accepts it, words to which it is the last argument. The file is
# the one to which $1 points, if that is a link. It is never there in part.
set -eu
path=$(readlink -f -- "$1")
folder=$(mktemp -d)
new=$folder/new
trap 'rm -rf -- "$folder" "$new"' EXIT
tried=$folder/$(basename -- "$path")

place_tried() {
    # shellcheck disable=SC2086 # its words have neither blanks nor signs
    $TRIAL "$tried"
    new=$(mktemp -- "$path.XXXXXX")
    cat -- "$tried" >"$new"
    if [ -e "$path" ]; then
        chown --reference="$path" -- "$new"
        chmod --reference="$path" -- "$new"
    else
        chmod 644 -- "$new"
    fi
    mv -fT -- "$new" "$path"
}
