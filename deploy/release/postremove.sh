#!/bin/sh
# Data stays: it holds the sessions and the places of visitors.
set -eu
data=/var/lib/vestibule
case "${1:-remove}" in
upgrade|failed-upgrade|1) exit 0 ;;
purge) rm -rf /etc/vestibule ;;
esac
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ -d "$data" ]; then echo "vestibule: the data stays in $data: remove it by hand if nobody needs it"; fi
