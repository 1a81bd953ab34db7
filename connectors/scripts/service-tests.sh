# Test the configuration of a service. The arguments of the function are the service, the
# configurations of HAProxy and nginx, and Apache's control program.

tests() {
    case $1 in
    haproxy.service) set -- haproxy -c -f "$2" ;;
    nginx.service) set -- nginx -t -q -c "$3" ;;
    apache2.service | httpd.service) set -- "$4" -t ;;
    *) return 0 ;;
    esac
    command -v "$1" >/dev/null || {
        echo "no $1"
        return 0
    }
    said=$("$@" 2>&1 </dev/null) || {
        printf "%s\n" "fails" "$said"
        return 1
    }
    echo passes
}
