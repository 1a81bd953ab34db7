# Who signed a plan. The caller sets signers, floor, origins, verifies, work and count, and defines
# refuse and refuse_full.
# shellcheck shell=sh disable=SC2154,SC2034

# Print a line for each signature: whose key made it, which ssh-keygen verifies afterwards; and what
# it says of its device, which ssh-keygen does not check: its flags, of which 1 is a touch and 4 a
# fingerprint or PIN; whether a page asked it; and the origin of the page. A key without a device
# has flag 1. The formats are ALLOWED SIGNERS, and PROTOCOL.sshsig and PROTOCOL.u2f of OpenSSH.
read_signatures() {
    awk '
        function number(from, bytes,    i, sum) {
            for (i = from; i < from + bytes; i++) sum = sum * 256 + byte[i]
            return sum
        }
        function skip() { at += 4 + number(at, 4) }
        function take(    from, text) {
            from = at + 4; skip()
            for (; from < at; from++) text = text (byte[from] > 32 && byte[from] < 127 ? sprintf("%c", byte[from]) : "?")
            return text
        }
        function letter(value) { return substr(letters, value + 1, 1) }
        function encode(from, to,    text, three) {
            for (; from < to; from += 3) {
                three = byte[from] * 65536 + (from + 1 < to ? byte[from + 1] * 256 : 0) + (from + 2 < to ? byte[from + 2] : 0)
                text = text letter(int(three / 262144)) letter(int(three / 4096) % 64)
                text = text (from + 1 < to ? letter(int(three / 64) % 64) : "=") (from + 2 < to ? letter(three % 64) : "=")
            }
            return text
        }
        BEGIN { letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" }
        NR == FNR { if ($0 !~ /^[ \t]*#/) for (i = 2; i <= NF; i++) if ($i ~ /^AAAA/) { lines[$i]++; person[$i] = $1 }; next }
        /^-----BEGIN/ { n = bits = held = 0 }
        !/^-/ {
            for (i = 1; i <= length($0); i++) {
                value = index(letters, substr($0, i, 1)) - 1
                if (value < 0) continue
                bits = bits * 64 + value; held += 6
                if (held < 8) continue
                held -= 8; byte[n++] = int(bits / 2 ^ held); bits %= 2 ^ held
            }
        }
        /^-----END/ {
            at = 10                                 # after SSHSIG and the version
            skip(); key = encode(14, at < n ? at : n)
            skip(); skip(); skip()                  # namespace, reserved, hash
            at += 4; kind = take(); skip()
            page = origin = ""
            flags = kind ~ /^(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)|rsa-sha2-(256|512))$/
            if (kind ~ /^(webauthn-)?sk-/) { flags = byte[at]; at += 5 }
            if (kind ~ /^webauthn-/) { page = "page"; origin = take(); skip(); skip() }
            print (lines[key] == 1 ? person[key] : lines[key] + 0 ? "*" : "-"), (at == n ? flags : 0), (page ? page : "key"), origin
        }' "$@"
}

# Let $people be who signed this plan, each once.
check_signatures() {
    people='' n=0
    [ "$count" != 0 ] || return 0
    set --
    while [ "$n" -lt "$count" ]; do
        n=$((n + 1))
        set -- "$@" "$work/sig.$n"
    done
    read_signatures "$signers" "$@" >"$work/signed" || refuse_full
    n=0
    while [ "$n" -lt "$count" ] && read -r who flags asked origin; do
        n=$((n + 1))
        case $who in
        -) refuse "signature $n is by a key that $signers does not name" ;;
        -* | *[!A-Za-z0-9._@-]*) refuse "the key of signature $n does not belong to one person" ;;
        esac
        ssh-keygen -Y verify -f "$signers" -I "$who" -n keyturn-plan -s "$work/sig.$n" <"$work/d" >/dev/null 2>&1 ||
            refuse "the signature by $who is not one of this plan, or the key is not valid now"
        [ "$((flags & 1))" = 1 ] || refuse "no one touched the device that signed as $who"
        [ -z "$verifies" ] || [ "$((flags & 4))" = 4 ] || refuse "the device that signed as $who asked for no fingerprint or PIN"
        case $asked$origins in key* | page*" $origin "*) ;; *) refuse "$who signed on a page at $origin, which $floor does not name" ;; esac
        case " $people " in *" $who "*) ;; *) people="${people:+$people }$who" ;; esac
    done <"$work/signed"
    [ "$n" = "$count" ] || refuse "a signature is not complete"
}
