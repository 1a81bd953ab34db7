# Begin the check of sudo rules. Each function prints a problem. A rule for a missing program never
# matches, so the program is tested first.

echo "sudo $(sudo -V 2>/dev/null | head -n 1)"

# Check a rule. Arguments: its number, its program, the words of the command.
rule() {
    number=$1 program=$2
    shift 2
    command -v -- "$program" >/dev/null || {
        echo "program $number"
        return
    }
    sudo -n -l -- "$@" >/dev/null 2>&1 </dev/null || echo "rule $number"
}

# Check an installed script. Arguments: its path, its SHA-256.
script() {
    [ -e "$1" ] || {
        echo "absent $1"
        return
    }
    { [ -x "$1" ] && echo "$2  $1" | sha256sum -c - >/dev/null 2>&1; } || echo "altered $1"
}
