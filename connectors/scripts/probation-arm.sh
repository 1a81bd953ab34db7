# Save what a change will replace, install a boot hook, start a timer, prove that it runs, and arm.
#
# Arguments: root, name, seconds, change, the scripts that expire and restore, and the arguments of
# the latter. A script is its text, or its path. Words that come wrongly parted fail at the restore
# script, which counts them.
#
# Nothing is armed before the last command that can fail. Whatever ends this script earlier leaves
# nothing that restores, and the next arming replaces what it has written.

set -eu
umask 022
[ "$#" -ge 6 ] && [ "$3" -gt 0 ] || exit 1
. ./probation.sh
mkdir -p "$place"
[ -d "$root/run/systemd/system" ] || [ -d "$root/etc/cron.d" ] || refuse "needs systemd or cron"

# A lost timer is made up for.
if [ -e "$mine.armed" ] && due <"$mine.armed"; then
    sh "$mine/expire" "${root:-/}" "$name" || :
fi
exec 9>"$mine.lock"
flock 9
[ ! -e "$mine.armed" ] || refuse "is on probation already"
end

seconds=$3 change=$4 expire=$5 restore=$6
shift 6
. ./probation-seconds.sh
rm -rf "$mine" "$mine.restored"
mkdir -m 700 "$mine"
cd "$mine"
# Installed scripts are copied: an upgrade may remove them before the time is over.
store() {
    case $2 in
    /*) cat -- "$2" ;;
    *) printf "%s\n" "$2" ;;
    esac >"$1"
}
store expire "$expire"
store restore "$restore"
: >words
for word; do printf "%s\n" "$word" >>words; done
sh -c "$(cat restore)" keyturn save "$@" </dev/null 9>&-

trap end EXIT
if [ -d "$root/run/systemd/system" ]; then
    units=$root/etc/systemd/system
    mkdir -p "$units/multi-user.target.wants"
    printf "%s\n" "[Unit]" "After=network.target csf.service" "[Service]" "Type=oneshot" \
        "ExecStart=/bin/sh $mine/expire ${root:-/} $name" >"$units/$unit-boot.service"
    ln -sf "../$unit-boot.service" "$units/multi-user.target.wants/"
else
    echo "@reboot root /bin/sh $mine/expire ${root:-/} $name" >"$root/etc/cron.d/$unit"
fi
read -r now rest </proc/uptime
read -r booted </proc/sys/kernel/random/boot_id
echo "${now%.*}" >began
echo "$change $((${now%.*} + seconds)) $booted" >"$mine.new"

# The timer waits for the lock, so it finds the change armed, or ends.
if [ -d "$root/run/systemd/system" ]; then
    timer=$unit.timer
    systemd-run --quiet --collect --unit="$unit" --on-active="$seconds" \
        --timer-property=AccuracySec=1s /bin/sh "$mine/expire" "${root:-/}" "$name" 9>&-
    systemctl --quiet is-active "$timer" ||
        refuse "could not be armed: its timer does not run"
else
    setsid sh "$mine/expire" "${root:-/}" "$name" </dev/null >/dev/null 2>&1 9>&- &
    tries=0
    # The directory is new and belongs to root, so only the timer can have written this.
    until timer=$(cat timer 2>/dev/null) && [ "$timer" ] && kill -0 "$timer" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -le 100 ] || refuse "could not be armed: its timer does not run"
        sleep 0.1
    done
    timer="process $timer"
fi
sync
mv "$mine.new" "$mine.armed"
sync
trap - EXIT
echo "$name is armed: the host restores it in $seconds s, by $timer"
