# Change the power of a server, and wait until it has changed: ipmitool returns before.
# Arguments: the verb, the state to wait for, for how many seconds, and the words of ipmitool.

verb=$1 state=$2 seconds=$3
shift 3
"$@" chassis power "$verb" || exit
while sleep 1; do
    case $("$@" chassis power status) in
    *" is $state") exit 0 ;;
    esac
    seconds=$((seconds - 1))
    [ "$seconds" -gt 0 ] || {
        echo "the power is not $state yet" >&2
        exit 1
    }
done
