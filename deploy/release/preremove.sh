#!/bin/sh
# Ends the service when the package goes, and not when another version replaces it.
set -eu
case "${1:-remove}" in remove|0)
	if [ -d /run/systemd/system ]; then systemctl disable --now vestibule.service || true; fi
	if command -v rc-service >/dev/null; then rc-service --ifstarted vestibule stop || true; fi
	;;
esac
