package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
)

var programs = map[string]string{"edge": "an edge", "global": "a global", "vestibule": "a command"}

func testOptions(t *testing.T) *options {
	t.Helper()
	dir := t.TempDir()
	for name, content := range programs {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700))
	}
	testkit.NoError(t, os.Symlink("vestibule", filepath.Join(dir, "regional")))
	return &options{
		files: dir, name: "vestibule:v1", version: "v1", revision: "abc",
		source: "https://git.example/vestibule", created: time.Unix(1795000000, 0).UTC(), archs: []string{"amd64"},
	}
}

// readTar returns the headers and contents of a tar.
func readTar(t *testing.T, r io.Reader) (map[string]*tar.Header, map[string][]byte) {
	t.Helper()
	headers, contents := map[string]*tar.Header{}, map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		testkit.NoError(t, err)
		data := testkit.Must(io.ReadAll(tr))(t)
		headers[h.Name], contents[h.Name] = h, data
	}
}

// blob returns the blob that a descriptor names, whose length and sum must be right.
func blob(t *testing.T, files map[string][]byte, d v1.Descriptor) []byte {
	t.Helper()
	data, ok := files[blobPath(d.Digest)]
	if !ok {
		t.Fatalf("no blob %s", d.Digest)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != d.Digest.Hex || int64(len(data)) != d.Size {
		t.Errorf("blob %s: has sum %x and %d bytes, want %d", d.Digest, sum, len(data), d.Size)
	}
	return data
}

func TestTheImageHoldsTogether(t *testing.T) {
	o := testOptions(t)
	data, digest, err := build(o, &figures.Judge{})
	testkit.NoError(t, err)
	_, files := readTar(t, bytes.NewReader(data))
	var top v1.IndexManifest
	var m v1.Manifest
	var c v1.ConfigFile
	decode := func(data []byte, v any) {
		t.Helper()
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		testkit.NoError(t, d.Decode(v))
	}
	var version map[string]string
	decode(files["oci-layout"], &version)
	if diff := cmp.Diff(map[string]string{"imageLayoutVersion": "1.0.0"}, version); diff != "" {
		t.Error(diff)
	}
	decode(files["index.json"], &top)
	if len(top.Manifests) != 1 || top.Manifests[0].Digest.String() != digest {
		t.Fatalf("index: %+v, want %s", top, digest)
	}
	decode(blob(t, files, top.Manifests[0]), &m)
	decode(blob(t, files, m.Config), &c)

	if c.Config.User != "65532:65532" {
		t.Errorf("user: got %q", c.Config.User)
	}
	if diff := cmp.Diff([]string{"/vestibule"}, c.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
	if c.Architecture != "amd64" || c.OS != "linux" {
		t.Errorf("platform: %s, %s", c.Architecture, c.OS)
	}
	for key, want := range map[string]string{"revision": "abc", "source": "https://git.example/vestibule"} {
		if got := c.Config.Labels["org.opencontainers.image."+key]; got != want {
			t.Errorf("label %s: got %q", key, got)
		}
	}
	if c.Config.WorkingDir != "/data" { // the user may write there alone: a demo keeps its data below
		t.Errorf("starts in %s", c.Config.WorkingDir)
	}
	if len(m.Layers) != len(programs)+2 || len(c.RootFS.DiffIDs) != len(m.Layers) || len(c.History) != len(m.Layers) {
		t.Fatalf("%d layers, %d sums, %d steps", len(m.Layers), len(c.RootFS.DiffIDs), len(c.History))
	}
	seen := map[string]string{}
	for i, l := range m.Layers {
		z := testkit.Must(gzip.NewReader(bytes.NewReader(blob(t, files, l))))(t)
		plain := testkit.Must(io.ReadAll(z))(t)
		if sum := sha256.Sum256(plain); hex.EncodeToString(sum[:]) != c.RootFS.DiffIDs[i].Hex {
			t.Errorf("layer %d: sum %x, want %s", i, sum, c.RootFS.DiffIDs[i])
		}
		headers, contents := readTar(t, bytes.NewReader(plain))
		for name, h := range headers {
			seen[name] = string(contents[name])
			if name == "data/" {
				if h.Uid != user || h.Gid != user || h.Mode != 0o700 {
					t.Errorf("%s: %d:%d %o", name, h.Uid, h.Gid, h.Mode)
				}
				continue
			}
			if h.Typeflag == tar.TypeSymlink {
				seen[name] = "link to " + h.Linkname
				continue
			}
			if h.Uid != 0 || h.Gid != 0 || h.Mode != 0o555 || !h.ModTime.Equal(o.created) {
				t.Errorf("%s: %d:%d %o %v", name, h.Uid, h.Gid, h.Mode, h.ModTime)
			}
		}
	}
	want := map[string]string{"data/": "", "regional": "link to vestibule"}
	maps.Copy(want, programs)
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}

	var docker tarball.Manifest
	decode(files["manifest.json"], &docker)
	if len(docker) != 1 || docker[0].Config != blobPath(m.Config.Digest) || len(docker[0].Layers) != len(m.Layers) {
		t.Errorf("manifest.json: %+v", docker)
	}
}

func TestTheSameFilesMakeTheSameImage(t *testing.T) {
	one, first, err := build(testOptions(t), &figures.Judge{})
	testkit.NoError(t, err)
	o := testOptions(t) // different files with the same content, in another folder
	later := time.Now().Add(time.Hour)
	testkit.NoError(t, os.Chtimes(filepath.Join(o.files, "edge"), later, later))
	two, second, err := build(o, &figures.Judge{})
	testkit.NoError(t, err)
	if first != second || !bytes.Equal(one, two) {
		t.Errorf("built twice: %s and %s", first, second)
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(o.files, "edge"), []byte("another edge"), 0o600))
	if _, third, err := build(o, &figures.Judge{}); err != nil || third == first {
		t.Errorf("other files make %s too (%v)", third, err)
	}
}

func TestOnlyFilesAndLinksBetweenThem(t *testing.T) {
	o := testOptions(t)
	link := filepath.Join(o.files, "link")
	testkit.NoError(t, os.Symlink("/etc/passwd", link))
	if _, _, err := build(o, &figures.Judge{}); err == nil || !strings.Contains(err.Error(), "link must lead to a file beside it") {
		t.Errorf("got %v", err)
	}
	testkit.NoError(t, os.Remove(link))
	testkit.NoError(t, os.Mkdir(link, 0o700))
	if _, _, err := build(o, &figures.Judge{}); err == nil || !strings.Contains(err.Error(), "link must be a plain file or a link") {
		t.Errorf("got %v", err)
	}
}

// An engine finds the image of its architecture in the index.
func TestAnIndexOfTwoArchitectures(t *testing.T) {
	o := testOptions(t)
	one := o.files
	o.files, o.archs = t.TempDir(), []string{"amd64", "arm64"}
	for _, arch := range o.archs {
		testkit.NoError(t, os.CopyFS(filepath.Join(o.files, arch), os.DirFS(one)))
	}
	data, digest, err := build(o, &figures.Judge{})
	testkit.NoError(t, err)
	_, files := readTar(t, bytes.NewReader(data))
	var top, index v1.IndexManifest
	testkit.NoError(t, json.Unmarshal(files["index.json"], &top))
	if len(top.Manifests) != 1 || top.Manifests[0].Digest.String() != digest ||
		top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "vestibule:v1" {
		t.Fatalf("index.json: %+v, want %s", top, digest)
	}
	testkit.NoError(t, json.Unmarshal(blob(t, files, top.Manifests[0]), &index))
	var got []string
	for _, m := range index.Manifests {
		blob(t, files, m)
		got = append(got, m.Platform.OS+"/"+m.Platform.Architecture)
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, got); diff != "" {
		t.Error(diff)
	}
}

// The Dockerfile makes the same image: each of its relevant lines is represented here.
func TestTheDockerfileSaysTheSame(t *testing.T) {
	text := testkit.Must(os.ReadFile("../../../Dockerfile"))(t)
	var got []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			got = append(got, line)
		}
	}
	want := []string{
		"FROM scratch",
		"ARG VERSION=", "ARG REVISION=", "ARG SOURCE=",
		fmt.Sprintf("LABEL %stitle=%q", annotation, title),
		fmt.Sprintf("LABEL %sdescription=%q", annotation, description),
		fmt.Sprintf("LABEL %slicenses=%q", annotation, licenses),
		"LABEL " + annotation + "version=$VERSION", "LABEL " + annotation + "revision=$REVISION",
		"LABEL " + annotation + "source=$SOURCE",
		"COPY bin/image/ /",
		fmt.Sprintf("COPY --chown=%d:%d bin/%s/ /%s/", user, user, dataDir, dataDir),
		fmt.Sprintf("USER %d:%d", user, user), "WORKDIR /" + dataDir,
		fmt.Sprintf("ENTRYPOINT [%q]", entrypoint),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
