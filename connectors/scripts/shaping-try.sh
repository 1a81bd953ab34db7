# Set both limits of an interface, on probation. Arguments: root, interface, kbit/s in, kbit/s out.

set -eu
name=shaping
. ./probation-try.sh
. ./shaping-settle.sh
fit "$2" "$3" "$4"
settle "$2" "$3" "$4"
