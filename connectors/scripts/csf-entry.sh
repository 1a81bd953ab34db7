# Allow, deny or block one address, or end that, on probation.
# Arguments: root, csf's program, the change, the address.

set -eu
name=csf
. ./probation-try.sh
program=$2
case $3 in
allow) set -- -a "$4" Keyturn ;;
disallow) set -- -ar "$4" ;;
deny) set -- -d "$4" Keyturn ;;
undeny) set -- -dr "$4" ;;
block) set -- -td "$4" "$BLOCK_SECONDS" Keyturn ;;
unblock) set -- -trd "$4" ;;
*) exit 1 ;;
esac
"$program" "$@" 9>&-
