# Restart, reload, start or stop a service, unless it is a way into this host.
# Arguments: what to do, the service, the configurations of HAProxy and nginx, and Apache's control
# program.
#
# The unit's own properties decide, since it may have aliases, and other units may stop or start
# with it. If systemctl cannot read them, nothing is done.

. ./service-tests.sh
verb=$1
shift
state=$(systemctl show --no-pager -p Id -p ActiveState -p RequiredBy -p BoundBy -p ConsistsOf \
    -p Conflicts -- "$1") || exit
words=$(printf "%s\n" "$state" | sed "s/^[^=]*=//" | tr " " "\n")
for name in "$1" $words; do
    ! printf "%s\n" "$name" | grep -qxE "$PROTECTED" || {
        echo "$name is a way into this host: nothing was done" >&2
        exit 1
    }
done
case "$verb $state" in
re*ActiveState=inactive* | re*ActiveState=deactivating*)
    echo "$1 is stopped: nothing was done" >&2
    exit 1
    ;;
esac
id=${state#*Id=}
id=${id%%[!A-Za-z0-9_.:@-]*}
said=$([ "$verb" = stop ] || tests "$id" "$2" "$3" "$4") || {
    printf "%s\n" "configuration test: $said" >&2
    exit 1
}
exec systemctl "$verb" --no-ask-password -- "$1"
