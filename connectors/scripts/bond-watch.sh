# Print two samples of a bond and of all links, each with the host's uptime.
# Arguments: the file of the bond, the seconds between the samples.

look() { cat "$1" && ip -j -s link show && read -r up _ </proc/uptime && echo "== $up"; }
look "$1" && sleep "$2" && look "$1"
