#!/bin/sh
# build.sh VERSION writes a release into dist/: `make release` calls it with its tools in PATH. Two runs of one commit
# write the same bytes. It uploads nothing. KEY names an ASCII-armored OpenPGP secret key for SHA256SUMS.asc, in a file.
set -eu
version=$1
case $version in v[0-9]*.[0-9]*.[0-9]*) ;; *) echo "release: VERSION must be such as v0.2.0, got \"$version\"" >&2; exit 2 ;; esac
if [ -n "$(git status --porcelain)" ]; then echo 'release: the tree has changes that no commit holds: commit them first' >&2; exit 1; fi
commit=$(git rev-parse HEAD)
seconds=$(git log -1 --format=%ct)
date=$(date -u -d "@$seconds" +%Y-%m-%dT%H:%M:%SZ)
plain=${version#v}
export CGO_ENABLED=0 SOURCE_DATE_EPOCH="$seconds" LC_ALL=C TZ=UTC
umask 022
rm -rf dist
mkdir -p dist
awk -v v="$plain" '/^## /{on = index($2, v) == 1} on' CHANGELOG.md >dist/NOTES.md
if [ ! -s dist/NOTES.md ]; then echo "release: CHANGELOG.md has no section $plain: write it first" >&2; exit 1; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pack NAME FOLDER: an archive of a folder beside others in $work, without owners and with one time.
pack() {
	tar -C "$work" --sort=name --mtime="@$seconds" --owner=0 --group=0 --numeric-owner --format=ustar -cf - "$2" | gzip -9n >"dist/$1"
}

# stamp FILE...: what they hold gets the time of the commit, also folders: packages keep it.
stamp() { find "$@" -exec touch -h -d "@$seconds" {} +; }

# program OS ARCH FILE
program() {
	GOFLAGS= GOOS=$1 GOARCH=$2 go build -trimpath -buildvcs=false -o "$3" -ldflags \
		"-s -w -buildid= -X vestibule/internal/node.imageVersion=$version -X vestibule/internal/node.imageCommit=$commit" ./cmd/vestibule
}

# Pages, completions and documents are equal for all platforms: the program of this one writes them.
GOFLAGS= go build -trimpath -buildvcs=false -o "$work/here" ./cmd/vestibule
common=$work/common
mkdir -p "$common/man" "$common/completions" "$common/doc"
"$work/here" man "$common/man"
gzip -9n "$common"/man/*
for shell in bash zsh fish; do "$work/here" completion $shell >"$common/completions/vestibule.$shell"; done
cp -r deploy/fronts deploy/examples deploy/prometheus "$common/doc/"
cp -r deploy/release "$work/scripts"
cp cmd/edge/edge.example.yaml cmd/regional/regional.example.yaml cmd/global/global.example.yaml cmd/global/rooms.example.yaml "$common/doc/examples/"

for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do
	os=${platform%/*} arch=${platform#*/} name=vestibule-$plain-$os-$arch
	files=$work/$name
	mkdir -p "$files"
	program "$os" "$arch" "$files/vestibule"
	cyclonedx-gomod bin -json -noserial -output "$work/sbom.json" "$files/vestibule" 2>"$work/sbom.log" || { cat "$work/sbom.log" >&2; exit 1; }
	sed "s/\"timestamp\": \"[^\"]*\"/\"timestamp\": \"$date\"/" "$work/sbom.json" >"dist/$name.cdx.json"
	cp -r "$common/." "$files/"
	if [ "$os" = linux ]; then
		stamp "$files" "$work/scripts"
		sed "s|\${FILES}|$files|g; s|\${SCRIPTS}|$work/scripts|; s|\${ARCH}|$arch|; s|\${VERSION}|$plain|" deploy/release/nfpm.yaml >"$work/nfpm.yaml"
		for packager in deb rpm apk; do nfpm package --config "$work/nfpm.yaml" --packager $packager --target dist/ >/dev/null; done
		mkdir -p "$work/image/$arch"
		cp "$files/vestibule" "$work/image/$arch/"
		for link in edge regional global nats-server; do ln -s vestibule "$work/image/$arch/$link"; done
		mkdir "$files/systemd"
		cp deploy/systemd/* deploy/release/serve.yaml "$files/systemd/"
		cp deploy/release/vestibule.sysusers "$files/systemd/vestibule.sysusers"
	fi
	for link in edge regional global nats-server; do ln -s vestibule "$files/$link"; done
	cp LICENSE CHANGELOG.md README.md "$files/"
	pack "$name.tar.gz" "$name"
	rm -rf "$files"
done

GOFLAGS= go run ./internal/lab/image -files "$work/image" -arch amd64,arm64 -name "vestibule:$version" -version "$version" \
	-revision "$commit" -created "$seconds" -out "dist/vestibule-$plain-image.tar"

# The source, with its modules: it builds without a network.
source=vestibule-$plain-source
git archive --prefix="$source/" HEAD | tar -C "$work" -xf -
(cd "$work/$source" && GOFLAGS= go mod vendor)
pack "$source.tar.gz" "$source"

(cd dist && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
if [ -n "${KEY:-}" ]; then
	home=$work/gnupg
	mkdir -m 700 "$home"
	gpg --homedir "$home" --batch --quiet --import "$KEY"
	gpg --homedir "$home" --batch --quiet --armor --detach-sign --output dist/SHA256SUMS.asc dist/SHA256SUMS
fi
ls -l dist
