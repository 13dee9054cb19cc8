#!/bin/sh
# try.sh DEB: as root, installs a package into a root of Debian's base packages, edits two lines, starts the unit's command
# and asks for a page; upgrades from an older package with an edited configuration, removes and purges. It needs
# debootstrap. `make try-package` calls it.
set -eu
deb=$1
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
root=$(mktemp -d)
chmod 755 "$root"
trap 'umount "$root/proc" 2>/dev/null; rm -rf "$root"' EXIT
debootstrap --variant=minbase "$suite" "$root" >"$root.log" || { tail "$root.log"; exit 1; }
rm "$root.log"
mount --bind /proc "$root/proc"
cp "$deb" "$root/tmp/new.deb"
dpkg-deb -R "$deb" "$root/tmp/older"
sed -i 's/^Version: .*/Version: 0.0.1/' "$root/tmp/older/DEBIAN/control"
echo '# older' >>"$root/tmp/older/etc/vestibule/serve.yaml"
dpkg-deb -b "$root/tmp/older" "$root/tmp/older.deb" >/dev/null

cat >"$root/tmp/steps" <<'STEPS'
set -eu
say() { echo "== $*"; }
lacks() { if [ -e "$1" ]; then echo "try: $1 is there" >&2; exit 1; fi; }
as() { exec setpriv --reuid vestibule --regid vestibule --clear-groups "$@"; } # in the background, so that $! is the program
file=/etc/vestibule/serve.yaml

say 'install: dpkg -i, two lines, the command of the unit'
dpkg -i /tmp/new.deb
sed -i 's|^origin: .*|origin: http://127.0.0.1:3399|; s|^host: .*|host: [tickets.example]|' $file
install -d -o vestibule -g vestibule -m 700 /var/lib/vestibule # as StateDirectory= does
as vestibule origin --listen 127.0.0.1:3399 >/tmp/origin.log 2>&1 & origin=$!
export VESTIBULE_LISTEN=127.0.0.1:3380 VESTIBULE_CONTROL=127.0.0.1:3381 VESTIBULE_METRICS=127.0.0.1:3382
as $(sed -n 's/^ExecStart=//p' /lib/systemd/system/vestibule.service) >/tmp/serve.log 2>&1 & serve=$!
n=0
until vestibule health http://127.0.0.1:3382/readyz 2>/dev/null; do
	n=$((n + 1))
	if [ $n -ge 60 ]; then cat /tmp/serve.log >&2; exit 1; fi
	sleep 1
done
exec 3<>/dev/tcp/127.0.0.1/3380
printf 'GET / HTTP/1.1\r\nHost: tickets.example\r\nConnection: close\r\n\r\n' >&3
page=$(cat <&3)
case $page in 'HTTP/1.1 200 OK'*'Set-Cookie: vestibule-'*) ;; *) echo "try: $page" >&2; exit 1 ;; esac
kill $serve $origin
wait $serve

say 'purge: the configuration goes, the data stays'
dpkg -P vestibule
lacks /etc/vestibule
ls /var/lib/vestibule/serve >/dev/null

say 'upgrade: an edited configuration stays'
dpkg -i /tmp/older.deb >/dev/null
sed -i 's|^host: .*|host: [mine.example]|' $file
dpkg --force-confold -i /tmp/new.deb
grep -q '^host: \[mine.example\]$' $file

say 'remove: the configuration stays'
dpkg -r vestibule
grep -q '^host: \[mine.example\]$' $file
lacks /usr/bin/vestibule
dpkg -P vestibule
lacks /etc/vestibule
say 'all of it went as it should'
STEPS
chroot "$root" bash /tmp/steps
