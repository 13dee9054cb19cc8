#!/bin/sh
# What Lighthouse thinks of the built-in waiting page: accessibility and best
# practices, of 100 each. Needs chromium; $LIGHTHOUSE is the program, which make installs.
set -eu
dir=$(mktemp -d)
: >"$dir/out"
bin/vestibule preview --listen 127.0.0.1:0 >"$dir/out" &
preview=$!
trap 'kill $preview; rm -rf "$dir"' EXIT
until url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$dir/out") && [ -n "$url" ]; do
	kill -0 $preview
done
CHROME_PATH=$(command -v chromium) "$LIGHTHOUSE" "${url}queued-message" --quiet \
	--only-categories=accessibility,best-practices --chrome-flags="--headless --no-sandbox" \
	--output json --output-path "$dir/report.json"
node -e '
const report = JSON.parse(require("fs").readFileSync(process.argv[1]));
for (const a of Object.values(report.audits)) if (a.score !== null && a.score < 1) console.error("  " + a.title);
for (const c of Object.values(report.categories)) console.log("lighthouse: " + c.title.toLowerCase() + "=" + Math.round(c.score * 100));
' "$dir/report.json" >"$dir/scores"
go run ./internal/lab/figures/check <"$dir/scores"
