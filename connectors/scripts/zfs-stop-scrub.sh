# Stop a scrub of zfs-fuse, where `scrub -s` also stops a resilver, with status 0. OpenZFS refuses
# that. Argument: the pool.

if zpool status "$1" | grep -q "^ scrub: scrub in progress"; then
    exec zpool scrub -s "$1"
else
    echo "no scrub of $1 is running" >&2
    exit 1
fi
