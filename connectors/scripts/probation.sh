# What the scripts of a probation share. Their first two arguments are the directory that all paths
# are in, and the name of the probation. connectors/probation.py describes the files.
# shellcheck disable=SC2034 # scripts that include this use the variables

root=${1%/} name=$2
place=$root/var/lib/keyturn-probation
mine=$place/$name
unit=keyturn-probation-$name

refuse() {
    echo "$name $1" >&2
    exit 1
}

# Whether the time is over, of the armed change on standard input.
due() {
    read -r change until boot || return
    read -r now rest </proc/uptime
    read -r booted </proc/sys/kernel/random/boot_id
    [ "$boot" != "$booted" ] || [ "${now%.*}" -ge "$until" ]
}

# End the probation: first that anything is armed, then what would restore it.
end() {
    rm -f "$mine.armed"
    rm -f "$root/etc/cron.d/$unit" "$root/etc/systemd/system/$unit-boot.service" \
        "$root/etc/systemd/system/multi-user.target.wants/$unit-boot.service"
    sync
    [ ! -d "$root/run/systemd/system" ] || systemctl --quiet stop "$unit.timer" 2>/dev/null || :
}
