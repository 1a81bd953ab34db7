# Whose signatures a plan has, as functions of awk. ssh-keygen verifies them afterwards. The formats
# are ALLOWED SIGNERS, and PROTOCOL.sshsig and PROTOCOL.u2f of OpenSSH.
# shellcheck shell=sh disable=SC2016,SC2034

# take_signer() takes a line of signers. signature_error(blob), of a signature in base64, lets who be
# the person whose key made it, and returns why it does not count, or "". That includes what
# ssh-keygen does not check: the flags of the device, of which 1 is a touch and 4 a fingerprint or
# PIN, and the origin of the page that asked it. A key without a device has flag 1.
signature_rules='
    BEGIN {
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        for (i = 0; i < 64; i++) value[substr(letters, i + 1, 1)] = i
        for (i = 0; i < 24; i++) power[i] = i ? power[i - 1] * 2 : 1
    }
    function take_signer(    i) {
        if ($0 !~ /^[ \t]*#/) for (i = 2; i <= NF; i++) if ($i ~ /^AAAA/) { lines[$i]++; person_of[$i] = $1 }
    }
    function decode(text,    i, letter, bits, held) {
        for (size = 0; i < length(text); ) {
            letter = substr(text, ++i, 1)
            if (!(letter in value)) continue
            bits = bits * 64 + value[letter]; held += 6
            if (held >= 8) { held -= 8; byte[size++] = int(bits / power[held]); bits %= power[held] }
        }
    }
    function encode(from, to,    text, bits, i) {
        for (; from < to; from += 3) {
            bits = (byte[from] * 256 + (from + 1 < to) * byte[from + 1]) * 256 + (from + 2 < to) * byte[from + 2]
            for (i = 18; i >= 0; i -= 6) text = text substr(letters, int(bits / power[i]) % 64 + 1, 1)
        }
        return substr(text, 1, length(text) - from + to) substr("==", 1, from - to)
    }
    function skip() {
        at += 4 + ((byte[at] * 256 + byte[at + 1]) * 256 + byte[at + 2]) * 256 + byte[at + 3]
        if (at > size) at = size + 1
    }
    function read_text(    from, text) {
        from = at + 4; skip()
        for (; from < at; from++) text = text (byte[from] > 32 && byte[from] < 127 ? sprintf("%c", byte[from]) : "?")
        return text
    }
    function signature_error(blob,    key, kind, flags, origin) {
        decode(blob)
        at = 10; skip(); key = encode(14, at)       # after SSHSIG and the version
        skip(); skip(); skip()                      # namespace, reserved, hash
        at += 4; kind = read_text(); skip()
        flags = kind ~ /^(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)|rsa-sha2-(256|512))$/
        if (kind ~ /^(webauthn-)?sk-/) { flags = byte[at]; at += 5 }
        if (kind ~ /^webauthn-/) { origin = read_text(); skip(); skip() }
        if (at != size) return "is not complete"
        if (!(key in lines)) return "is by a key that " signers " does not name"
        who = person_of[key]
        if (lines[key] > 1 || who !~ /^[A-Za-z0-9._@][A-Za-z0-9._@-]*$/) return "is by a key that does not belong to one person"
        if (flags % 2 != 1) return "is by a device of " who " that no one touched"
        if (verifies && int(flags / 4) % 2 != 1) return "is by a device of " who " that asked for no fingerprint or PIN"
        if (kind ~ /^webauthn-/ && !(origin in origins)) return "is by " who " on a page at " origin ", which " floor " does not name"
        return ""
    }'
