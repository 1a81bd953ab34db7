# Remove messages from Exim's queue. Their ids are on standard input, one on each line.
# Argument: Exim's program.

ids=$(cat)
if printf '%s\n' "$ids" |
    LC_ALL=C grep -qvxE '[A-Za-z0-9]{6}-[A-Za-z0-9]{6,11}-[A-Za-z0-9]{2,4}'; then
    echo these are not ids of messages >&2
    exit 1
fi
# shellcheck disable=SC2086 # each id is a word
"$1" -Mrm $ids
