# Print the clock and the status files of OpenVPN, each after a line with its age and path.
# Argument: a status file, or a directory with some.

date "+now %s"
if [ -d "$1" ]; then set -- "$1"/*status*; fi
for each; do
    if [ -f "$each" ]; then
        echo "file $(stat -c %Y -- "$each") $each"
        cat -- "$each"
    fi
done
echo end
