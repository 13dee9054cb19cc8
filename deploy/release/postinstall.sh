#!/bin/sh
# Makes the user and starts nothing.
set -eu
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers vestibule.conf
elif ! id vestibule >/dev/null 2>&1; then
	if command -v useradd >/dev/null; then
		useradd --system --user-group --home-dir /var/lib/vestibule --no-create-home --shell /usr/sbin/nologin vestibule
	else
		addgroup -S vestibule
		adduser -S -D -H -h /var/lib/vestibule -s /sbin/nologin -G vestibule vestibule
	fi
fi
# The configuration may hold secrets.
chgrp vestibule /etc/vestibule /etc/vestibule/serve.yaml
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
