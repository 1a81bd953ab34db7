# Print the clock, its offset and the time zone, since dpkg writes local time without an offset, and
# then what was installed, upgraded and removed. Rotated files may be missing. A host without dpkg
# has rpm, which knows only when each installed package was installed.

zone=$(readlink -f /etc/localtime | sed -n 's|.*/zoneinfo/||p')
echo "$(date "+%s %z") ${zone:-$(cat /etc/timezone)}"
if command -v rpm >/dev/null && [ ! -e /var/lib/dpkg/status ]; then
    rpm -qa --queryformat '%{INSTALLTIME} %{NAME} %{VERSION}-%{RELEASE}.%{ARCH}\n'
else
    # shellcheck disable=SC2046,SC2012 # their names have no blanks
    zcat -f $(ls -tr /var/log/dpkg.log*) |
        grep -E '^[-0-9]+ [:0-9]+ (install|upgrade|remove|purge) '
fi
true
