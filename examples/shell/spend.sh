#!/bin/sh
# Spends units of an account through the sidecar until something stops it, and says what to do then.
#
#   WEIR_URL=http://127.0.0.1:8787 examples/shell/spend.sh acme events 1
#
# Exits 0 when the quota is used, 1 when the call can't be made.
set -eu

account=$1 feature=$2 units=${3:-1}
url=${WEIR_URL:-http://127.0.0.1:8787}
answer=$(mktemp) headers=$(mktemp)
trap 'rm -f "$answer" "$headers"' EXIT

# The token goes by a configuration on standard input: arguments can be read by every user of the machine.
ask() {
    printf 'header = "Authorization: Bearer %s"\n' "${WEIR_API_TOKEN:-}" |
        curl --silent --show-error --config - --output "$answer" --dump-header "$headers" --write-out '%{http_code}' \
            --data "{\"account\":\"$account\",\"feature\":\"$feature\",\"units\":$units}" "$url/v1/consume"
}

header() { sed -n "s/^$1: *//Ip" "$headers" | tr -d '\r'; }

spent=0
while :; do
    status=$(ask)
    case $status in
    200) spent=$((spent + units)) ;;
    429 | 503) # come back shortly
        sleep "$(header Retry-After)" ;;
    402 | 403) # money is the fix
        echo "spent $spent $feature of $account; $(header Quota-Remaining) of $(header Quota-Limit) are left for $(header Quota-Reset) seconds"
        exit 0 ;;
    *)
        echo "answered $status: $(cat "$answer")" >&2
        exit 1 ;;
    esac
done
