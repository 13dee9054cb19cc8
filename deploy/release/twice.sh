#!/bin/sh
# twice.sh VERSION writes the release of this commit into dist/ of two clones, and counts the files that differ, as
# "name=value". `make release-twice` calls it with the tools of `make release` in PATH.
set -eu
version=$1
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
for run in first second; do
	git clone --quiet . "$top/$run"
	(cd "$top/$run" && KEY='' deploy/release/build.sh "$version") >&2
done
{ diff -rq "$top/first/dist" "$top/second/dist" || true; } | tee /dev/stderr | echo "release: files of two runs that differ=$(wc -l)"
