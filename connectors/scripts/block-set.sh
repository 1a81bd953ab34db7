# Set the queue of a block device, in the given order, until the kernel refuses a value.
# Arguments: the device, and NAME=VALUE for each file of its queue.

cd "/sys/block/$1/queue" || exit
shift
for pair; do printf "%s\n" "${pair#*=}" >"${pair%%=*}" || exit; done
