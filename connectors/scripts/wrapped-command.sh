# Run a command under `timeout`, and print the secret word before and after it on both streams.
# Arguments: the command's deadline in seconds, the note for the host's log, and the command.
#
# It has no single quotes and backslashes, since it passes through any login shell. Parsers expect English output, and a login's PATH often lacks sbin.
# shellcheck disable=SC2154 # kt_word is read before, kt_after is a constant

kt_seconds=$1 kt_note=$2
shift 2
LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export LC_ALL PATH
echo "$kt_word begins"
echo "$kt_word begins" >&2
if command -v timeout >/dev/null; then
    # If the note cannot be written, the command runs all the same.
    [ -z "$kt_note" ] || timeout 2 logger -t keyturn "$kt_note" </dev/null >/dev/null 2>&1
    timeout -k "$kt_after" "$kt_seconds" "$@"
    kt_end=$?
else
    kt_end=unwatched
fi
echo "$kt_word $kt_end"
echo "$kt_word $kt_end" >&2
