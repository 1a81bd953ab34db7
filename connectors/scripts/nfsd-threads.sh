# Set the number of threads of the NFS server. Argument: the number.

echo "$1" >/proc/fs/nfsd/threads
