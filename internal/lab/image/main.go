// Command image writes a container image without a container engine: an OCI layout in one tar, for engines and
// registries. Equal files, version and date give equal bytes.
//
// The image is FROM scratch: the files of a folder, one layer each, and a folder /data owned by the user of the
// image. The Dockerfile describes the same image for other builders; a test compares the two.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Labels and configuration of the image, besides version, revision and date.
const (
	user        = 65532 // and group: nobody
	entrypoint  = "/vestibule"
	title       = "vestibule"
	description = "A waiting room that holds a hard limit across regions: edge, regional, global, the vestibule command and nats-server."
	licenses    = "Apache-2.0"
	dataDir     = "data"

	annotation = "org.opencontainers.image."
)

// options are the content of the image and its labels.
type options struct {
	files    string // folder of the files for /
	name     string // with its tag
	version  string
	revision string
	source   string // address of the repository, "" for unknown
	created  time.Time
	arch     string
}

func main() {
	var o options
	out := flag.String("out", "bin/vestibule-image.tar", "file to write")
	flag.StringVar(&o.files, "files", "bin/image", "folder whose files the image holds")
	flag.StringVar(&o.name, "name", "vestibule:latest", "name and tag")
	flag.StringVar(&o.version, "version", "", "version that the labels tell")
	flag.StringVar(&o.revision, "revision", "", "commit that the labels tell")
	flag.StringVar(&o.source, "source", "", "address of the repository that the labels tell, empty for none")
	flag.StringVar(&o.arch, "arch", runtime.GOARCH, "architecture that the files are built for")
	created := flag.Int64("created", 0, "date of everything, in seconds since 1970: that of the commit")
	flag.Parse()
	o.created = time.Unix(*created, 0).UTC()
	data, digest, err := build(&o)
	if err == nil {
		err = os.WriteFile(*out, data, 0o644) //nolint:gosec // an image holds no secret
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s %s %s (%d bytes)\n", *out, o.name, digest, len(data))
}

// build returns the image as a tar, and the digest of its manifest.
func build(o *options) ([]byte, string, error) {
	entries, err := os.ReadDir(o.files) // sorted by name
	if err != nil {
		return nil, "", fmt.Errorf("files: %w", err)
	}
	created := v1.Time{Time: o.created}
	labels := map[string]string{
		annotation + "title":       title,
		annotation + "description": description,
		annotation + "licenses":    licenses,
		annotation + "version":     o.version,
		annotation + "revision":    o.revision,
		annotation + "created":     o.created.Format(time.RFC3339),
	}
	if o.source != "" {
		labels[annotation+"source"] = o.source
	}
	image, err := mutate.ConfigFile(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON),
		types.OCIManifestSchema1), &v1.ConfigFile{
		Architecture: o.arch, OS: "linux", Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{entrypoint}, WorkingDir: "/" + dataDir,
			Labels: labels,
		},
	})
	if err != nil {
		return nil, "", err
	}
	add := func(h *tar.Header, content []byte) error {
		packed, err := pack(o.created, h, content)
		if err != nil {
			return err
		}
		image, err = mutate.Append(image,
			mutate.Addendum{Layer: packed, History: v1.History{Created: created, CreatedBy: "/" + h.Name}})
		return err
	}
	if err := add(&tar.Header{Typeflag: tar.TypeDir, Name: dataDir + "/", Mode: 0o700, Uid: user, Gid: user},
		nil); err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			return nil, "", fmt.Errorf("files: %s must be a plain file", filepath.Join(o.files, e.Name()))
		}
		content, err := os.ReadFile(filepath.Join(o.files, e.Name()))
		if err != nil {
			return nil, "", fmt.Errorf("files: %w", err)
		}
		if err := add(&tar.Header{Typeflag: tar.TypeReg, Name: e.Name(), Mode: 0o555}, content); err != nil {
			return nil, "", err
		}
	}
	image = mutate.Annotations(image, labels).(v1.Image)
	digest, err := image.Digest()
	if err != nil {
		return nil, "", err
	}
	data, err := write(o, image)
	return data, digest.String(), err
}

// pack returns a layer of one file.
func pack(created time.Time, h *tar.Header, content []byte) (v1.Layer, error) {
	var b bytes.Buffer
	h.Size, h.ModTime, h.Format = int64(len(content)), created, tar.FormatUSTAR
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(h); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
}

// write returns the tar of an OCI layout, with the list of layers for older engines.
func write(o *options, image v1.Image) ([]byte, error) {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	top, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	if err := top.AppendImage(image, layout.WithPlatform(v1.Platform{Architecture: o.arch, OS: "linux"}),
		layout.WithAnnotations(map[string]string{
			"io.containerd.image.name": o.name,
			annotation + "ref.name":    o.name,
		})); err != nil {
		return nil, err
	}
	m, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	docker := tarball.Descriptor{Config: blobPath(m.Config.Digest), RepoTags: []string{o.name}}
	for _, l := range m.Layers {
		docker.Layers = append(docker.Layers, blobPath(l.Digest))
	}
	list, err := json.Marshal(tarball.Manifest{docker})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), list, 0o600); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: 0o444, Size: int64(len(data)), ModTime: o.created, Format: tar.FormatUSTAR,
		}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// blobPath returns the path of a blob in a layout.
func blobPath(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }
