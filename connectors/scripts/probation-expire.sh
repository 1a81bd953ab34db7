# Restore what was saved, unless the change is kept before its time is over. The timer and the boot
# hook run this. Arguments: root, name.

. ./probation.sh

# Whether something is armed, and no later process is its timer.
same() { [ -e "$mine.armed" ] && [ "$(cat "$mine/timer" 2>/dev/null)" = $$ ]; }

cd -- "$mine" || exit
echo $$ >timer
# The script that arms holds the lock until it has armed or ended.
exec 9>"$mine.lock"
flock 9
if [ ! -e "$mine.armed" ]; then
    end
    exit
fi
exec 9>&-
same || exit 0
until due <"$mine.armed"; do
    sleep 1
    same || exit 0
done

exec 9>"$mine.lock"
flock 9
same && cd -- "$mine" || exit 0
# An earlier try may have ended after it restored.
if read -r restored rest <"$mine.restored" && [ "$restored" = "$change" ]; then
    end
    exit
fi 2>/dev/null
set --
while IFS= read -r word; do set -- "$@" "$word"; done <words
status=0
sh -c "$(cat restore)" keyturn restore "$@" </dev/null >output 2>&1 9>&- || status=$?
echo "$change $status $(date +%s)" >"$mine.new"
sync
mv "$mine.new" "$mine.restored"
end
logger -t keyturn "the change of $name was not confirmed: restored what was ($status)" || :
