# Save and restore the limit of tracked connections, and the file that sets it at boot.
# Argument: phase.

case $1 in
save)
    cat "$MAXIMUM" >maximum &&
        if [ -e "$BOOT_FILE" ]; then cp "$BOOT_FILE" kept; fi
    ;;
restore)
    if [ -e kept ]; then cp kept "$BOOT_FILE"; else rm -f "$BOOT_FILE"; fi
    sysctl -w "$KEY=$(cat maximum)"
    ;;
*) exit 1 ;;
esac
