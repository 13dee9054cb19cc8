#!/bin/sh
# Waits in line as a program without a browser does, and prints the site's answer: wait.sh URL [arguments of curl].
# It needs curl. The ticket stands in a header; a request that the room answers has not reached the site.
set -eu
url=$1; shift
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
ticket=new # any value asks for one

number() { sed -n "s/.*\"vestibule\":.*\"$1\":\(-*[0-9]*\)[,}].*/\1/p" "$dir/body"; }
header() { tr -d '\r' <"$dir/head" | sed -n "s/^$1: //Ip" | tail -n 1; }

while :; do
	curl -sS -D "$dir/head" -o "$dir/body" -H 'Accept: application/json' -H "Vestibule-Ticket: $ticket" "$@" "$url"
	newest=$(header Vestibule-Ticket); ticket=${newest:-$ticket} # always the newest; after admission it holds the session
	[ "$(header Vestibule-Decision)" = wait ] || break
	retry=$(header Retry-After)
	[ -n "$retry" ] || { echo "The waiting room lets nobody in." >&2; exit 1; }
	wait="wait unknown"
	if grep -q '"vestibule":.*"waitTimeKnown":true' "$dir/body"; then wait="about $(number waitTimeSeconds) s"; fi
	ahead=$(number peopleAhead)
	[ "$ahead" -ge 0 ] || ahead="?" # while people are counted
	echo "$ahead ahead, $wait" >&2
	sleep "$retry"
done
cat "$dir/body"
