# Write random data to a directory's file system, print how fast it was, and keep that as the result.
# Arguments: the directory, MiB.
#
# The file is unlinked before it is written, so that it disappears whatever happens. Only root may
# write to the directory: others could replace the file. The data is random, since a file system with
# compression or deduplication would write zeros in no time.

cd -P -- "$1" || exit
case "$2$(stat -c .%u.%A .)" in
*[0-9].0.d????-??-?*) ;;
*)
    echo 'others than root can write to the directory' >&2
    exit 1
    ;;
esac
# shellcheck disable=SC2046 # it prints three words
set -- "$1" "$2" $(df -B1 --output=size,avail,fstype . | tail -n 1)
case " $NO_DISKS " in
*" $5 "*)
    echo "the directory is not on a disk: $5" >&2
    exit 1
    ;;
esac
spare=$(($3 / SPARE_SHARE))
[ "$spare" -gt "$SPARE_BYTES" ] || spare=$SPARE_BYTES
[ $(($4 - $2 * 1048576)) -ge "$spare" ] || {
    echo 'No space left: too little would stay free' >&2
    exit 1
}
umask 077
file=
if ! file=$(mktemp ./.keyturn-XXXXXXXXXX) || ! seed=$(mktemp ./.keyturn-XXXXXXXXXX); then
    rm -f -- "$file"
    exit 1
fi
# shellcheck disable=SC2094 # what is written to 4 is read from 5
exec 3>"$file" 4>"$seed" 5<"$seed"
rm -f -- "$file" "$seed"
head -c 4194304 /dev/urandom >&4 || exit

# Print the random data again and again. Argument: MiB.
repeat() {
    n=0
    while [ $n -lt "$1" ]; do
        cat /proc/self/fd/5
        n=$((n + 4))
    done
}

said=$(repeat "$2" | dd bs=1M count="$2" iflag=fullblock conv=fdatasync 2>&1 >&3) || {
    echo "$said" >&2
    exit 1
}
said=$(echo "$said" | tail -n 1)
umask 022
echo "$2 $(date +%s) $1: $said" >"$RESULT.new" && mv "$RESULT.new" "$RESULT" && echo "$said"
