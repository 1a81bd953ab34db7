# Print what a write test of a directory would meet: who may write there, its file system, the load
# of the host, and the result of the last test. Argument: the directory.

cd -P -- "$1" || exit
stat -c 'owner=%u mode=%a' . &&
    df -B1 --output=size,avail,fstype,target . | {
        read -r _
        read -r df
        echo "df=$df"
    } &&
    read -r load </proc/loadavg &&
    echo "now=$(date +%s) cpus=$(getconf _NPROCESSORS_ONLN) load=$load" &&
    { read -r _ avg _ </proc/pressure/io || avg=; } 2>/dev/null && echo "waited=${avg#avg10=}" &&
    if [ -e "$RESULT" ]; then cat "$RESULT"; fi
