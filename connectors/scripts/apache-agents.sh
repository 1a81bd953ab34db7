# Add a line to Keyturn's file of agents that Apache blocks, or remove one. Arguments: the file,
# Apache's control program, add or remove, the line.
#
# If Apache refuses the file or does not run, the old file is restored. A signal to its process
# reloads it, since the control program would start a stopped Apache. The new file replaces the old
# one atomically.

. ./agents-guard.sh
umask 022
file=$1
old=$(cat "$file") || exit 1

put() { printf "%s\n" "$1" >"$file.new" && mv "$file.new" "$file"; }

new=$(printf "%s\n" "$old" | grep "^SetEnvIfNoCase " | grep -vxF -e "$4")
[ "$3" = remove ] || new=$(printf "%s\n%s" "$new" "$4")
[ -z "$new" ] || new=$(
    printf "%s\n" "$new" '<If "-n %{reqenv:keyturn_refused}">' "Require all denied" "</If>"
)
"$2" -t || exit 1
pid_file=$("$2" -t -D DUMP_RUN_CFG 2>/dev/null | sed -n 's/^PidFile: "\(.*\)"$/\1/p')
if ! pid=$(cat "$pid_file" 2>/dev/null) || ! kill -0 "$pid"; then
    echo "Apache is not running" >&2
    exit 1
fi
put "$new" || exit 1
if "$2" -t && kill -USR1 "$pid"; then exit 0; fi
put "$old"
exit 1
