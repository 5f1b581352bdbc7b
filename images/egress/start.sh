#!/bin/sh
# Checks the list of allowed names, writes squid's configuration and becomes squid. A list that cannot be meant so is
# refused; an empty one allows nothing.
#
#   EGRESS_ALLOW   names, separated by space, comma or line; ".example.org" also stands for all names below it
#   EGRESS_PORTS   ports beside 80 and 443, for CONNECT too
#   EGRESS_DNS     resolvers; those of the container without it
set -eu
folder=${EGRESS_FOLDER:-/run/foliobox-egress}
here=$(cd "$(dirname "$0")" && pwd)
refuse() {
    echo "foliobox-egress: $1" >&2
    exit 64
}
words() { printf '%s' "$1" | tr ',\n\t\r' '    '; }

set -f
: > "$folder/allow.txt"
for name in $(words "${EGRESS_ALLOW:-}"); do
    plain=${name#.}
    case $plain in
        '' | *[!A-Za-z0-9.-]* | -* | *- | *.. | *..* | .* | *.) refuse "EGRESS_ALLOW: $name is not a host name" ;;
        *[A-Za-z]*) ;;
        *) refuse "EGRESS_ALLOW: $name is an address; only names can be allowed" ;;
    esac
    case $plain in
        *.*) ;;
        *) refuse "EGRESS_ALLOW: $name has no dot: it would allow a whole top-level domain, or a name of this network" ;;
    esac
    echo "$name" >> "$folder/allow.txt"
done
for number in $(words "${EGRESS_PORTS:-}"); do
    case $number in
        *[!0-9]* | 0* | ??????*) refuse "EGRESS_PORTS: $number is not a port" ;;
    esac
    [ "$number" -le 65535 ] || refuse "EGRESS_PORTS: $number is not a port"
done
dns=
for server in $(words "${EGRESS_DNS:-}"); do
    case $server in
        *[!0-9A-Fa-f.:]*) refuse "EGRESS_DNS: $server is not an address" ;;
    esac
    dns="dns_nameservers${dns#dns_nameservers} $server"
done
# Addresses of this very machine or container, at its start.
own=$(awk '/\/32 host LOCAL/ { print last } { last = $NF }' /proc/net/fib_trie 2>/dev/null | sort -u)
own6=$(sed -n 's/^\(.\{32\}\) .*/\1/p' /proc/net/if_inet6 2>/dev/null | sed -e 's/..../&:/g' -e 's/:$//' | sort -u)
sed -e "s|@OWN@|$(words "${own:-127.0.0.1} $own6")|" \
    -e "s|@LISTEN@|${EGRESS_LISTEN:-3128}|" -e "s|@PORTS@|$(words "${EGRESS_PORTS:-}")|" -e "s|@DNS@|$dns|" \
    -e "s|@LOG@|${EGRESS_LOG:-stdio:/dev/stdout}|" -e "s|@ALLOW@|$folder/allow.txt|" \
    "${EGRESS_TEMPLATE:-$here/squid.conf}" > "$folder/squid.conf"
exec squid -N -f "$folder/squid.conf"
