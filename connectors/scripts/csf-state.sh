# Print csf's settings, its files, and the rules in force. Each fact is a line that begins with its
# kind, and the last line is `end`. Arguments: csf's directory, its program, cPanel's directory.

set -e
cd -- "$1"
[ -x "$2" ] || {
    echo "csf: not found" >&2
    exit 1
}

# Print the rules that let an address in, and whether csf's rules are loaded.
rules() {
    said=$("$@")
    echo "$said" | awk -v by="$1" '
        /^(-A ALLOWIN|add chain_(6_)?ALLOW) / { print "rule", $0 }
        /^-A INPUT .*-j LOCALINPUT/ { print "loaded", by }'
}

# Whether a setting of csf.conf is on.
on() { grep -Eq "^$1 *= *.1." csf.conf; }

echo "file $1/keyturn.allow"
if [ -e csf.disable ]; then echo disabled; fi
if [ -e keyturn.allow ]; then echo kept; fi
if [ -d "$3" ]; then echo cpanel; fi
common=$3/commondomains
set --
for each in allow=csf.allow deny=csf.deny own=keyturn.allow "common=$common"; do
    if [ -e "${each#*=}" ]; then set -- "$@" "kind=${each%%=*}" "${each#*=}"; fi
done

# Print the entries of a file and of those that it includes, which csf heeds, and never removes.
# Arguments: their kind, the file, a file whose own entries are left out.
below() {
    awk -v kind="$1" -v skipped="$3" -v first="$2" '
        function show(file, line) {
            if (seen[file]++) return;
            while ((getline line <file) > 0) {
                if (file != skipped) print kind, line;
                if (sub(/^Include[ \t]*/, "", line)) show(line)
            }
        }
        BEGIN { show(first) }' </dev/null
}

below included csf.deny csf.deny
below ignore csf.ignore ''
settings='TESTING|IPV6|LF_IPSET|LFDSTART|GLOBAL_ALLOW|DENY_IP_LIMIT'
awk -v of="^($settings) *=" '
    kind != "conf" || $0 ~ of { print kind, $0 }' "$@" kind=conf csf.conf
rules iptables -w 10 -S
if on IPV6; then rules ip6tables -w 10 -S; fi
if on LF_IPSET; then rules ipset save; fi
said=$(ip -o addr show)
echo "$said" | awk '{ print "mine", $4 }'
echo end
