#!/bin/sh
# Builds the programs of a Kubernetes node from the Go module proxy into a folder, once: twelve minutes of one core.
# Usage: kubernetes.sh folder 1.35.4
set -eu
folder=$1 version=$2
programs="kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl"
export CGO_ENABLED=0 GOFLAGS=
mkdir -p "$folder/source" "$folder/bin"
cd "$folder/source"
if ! grep -q kubectl tools.go 2>/dev/null || ! test -e go.sum; then
	# Kubernetes' own go.mod replaces its staging modules by folders: take the published ones.
	file=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
	{
		printf 'module vestibule/kubernetes\n\n%s\n\nrequire k8s.io/kubernetes v%s\n\n' "$(grep '^go ' "$file")" "$version"
		sed -n "s,^[[:space:]]*\(k8s\.io/[^ ]*\) => \./staging/.*,replace \1 => \1 v0.${version#1.},p" "$file"
	} >go.mod
	{
		printf '//go:build tools\n\npackage tools\n\n'
		printf 'import _ "k8s.io/kubernetes/cmd/%s"\n' $programs
	} >tools.go
	go mod tidy -e
fi
for program in $programs; do
	test -e "$folder/bin/$program" && continue
	echo "building $program $version into $folder/bin"
	go build -trimpath -ldflags '-s -w' -o "$folder/bin/$program.new" "k8s.io/kubernetes/cmd/$program"
	mv "$folder/bin/$program.new" "$folder/bin/$program"
done
