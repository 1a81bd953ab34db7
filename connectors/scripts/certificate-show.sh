# Print the clock, and the certificate that a server presents with the result of the verification of
# its chain, which s_client prints at its end. The first certificate is the server's own. Without
# one, x509 prints an error and exits with 1.
# Arguments: address and port, "-servername" or "-noservername", that name, and -starttls with its
# protocol or nothing.

at=$1 how=$2 name=$3
shift 3
if [ -n "$name" ]; then
    set -- "$how" "$name" "$@"
else
    set -- "$how" "$@"
fi
date +%s
said=$(timeout 15 openssl s_client -connect "$at" -showcerts "$@" </dev/null 2>&1)

# Print the last line that matches a pattern.
last() { printf '%s\n' "$said" | sed -nE "/$1/h; \${g; /./p; }"; }

last 'Verify return code'
last 'errno=|wrong version number|alert' >&2
printf '%s\n' "$said" | openssl x509 -noout -subject -issuer -dates -fingerprint -sha256 \
    ${name:+-checkhost "$name"} -ext subjectAltName
