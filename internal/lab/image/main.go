// Command image writes a container image without a container engine: an OCI layout in one tar, for engines and
// registries. Equal files, version and date give equal bytes.
//
// The image is FROM scratch: the files of a folder and links between them, one layer each, and a folder /data owned by
// the user of the image. The Dockerfile describes the same image for other builders; a test compares the two. For
// several architectures it writes an index of one image each.
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
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"vestibule/internal/lab/figures"
)

// Labels and configuration of the image, besides version, revision and date.
const (
	user        = 65532 // and group: nobody
	entrypoint  = "/vestibule"
	title       = "vestibule"
	description = "A waiting room that holds a hard limit across regions: the vestibule command, with links to run edge, regional, global and nats-server."
	licenses    = "Apache-2.0"
	dataDir     = "data"

	annotation = "org.opencontainers.image."
)

// options are the content of the image and its labels.
type options struct {
	files    string // folder of the files for /, with one folder for each architecture if there are several
	name     string // with its tag
	version  string
	revision string
	source   string // address of the repository, "" for unknown
	created  time.Time
	archs    []string
}

func main() {
	var o options
	out := flag.String("out", "bin/vestibule-image.tar", "file to write")
	flag.StringVar(&o.files, "files", "bin/image", "folder whose files the image holds")
	flag.StringVar(&o.name, "name", "vestibule:latest", "name and tag")
	flag.StringVar(&o.version, "version", "", "version that the labels tell")
	flag.StringVar(&o.revision, "revision", "", "commit that the labels tell")
	flag.StringVar(&o.source, "source", "", "address of the repository that the labels tell, empty for none")
	archs := flag.String("arch", runtime.GOARCH,
		"architecture that the files are built for; several, separated by commas, have folders of their names below -files")
	created := flag.Int64("created", 0, "date of everything, in seconds since 1970: that of the commit")
	flag.Parse()
	o.created, o.archs = time.Unix(*created, 0).UTC(), strings.Split(*archs, ",")
	judge := &figures.Judge{Out: os.Stdout}
	data, digest, err := build(&o, judge)
	if err == nil {
		err = judge.Err()
	}
	if err == nil {
		err = os.WriteFile(*out, data, 0o644) //nolint:gosec // an image holds no secret
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s %s %s (%d bytes)\n", *out, o.name, digest, len(data))
}

// build returns the image, or the index of several, as a tar, and the digest of its manifest. It judges the size of each.
func build(o *options, judge *figures.Judge) ([]byte, string, error) {
	var all []v1.Image
	for _, arch := range o.archs {
		files := o.files
		if len(o.archs) > 1 {
			files = filepath.Join(files, arch)
		}
		image, err := buildOne(o, arch, files)
		if err != nil {
			return nil, "", err
		}
		size, err := compressed(image)
		if err != nil {
			return nil, "", err
		}
		if _, err := judge.Figure("image: compressed, for a processor", "", float64(size)/1e6); err != nil {
			return nil, "", err
		}
		all = append(all, image)
	}
	return write(o, all)
}

// compressed returns the size of an image as it is transferred, in bytes.
func compressed(image v1.Image) (int64, error) {
	m, err := image.Manifest()
	if err != nil {
		return 0, err
	}
	size := m.Config.Size
	for _, l := range m.Layers {
		size += l.Size
	}
	return size, nil
}

// buildOne returns the image of one architecture.
func buildOne(o *options, arch, files string) (v1.Image, error) {
	entries, err := os.ReadDir(files) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("files: %w", err)
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
		Architecture: arch, OS: "linux", Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{entrypoint}, WorkingDir: "/" + dataDir,
			Labels: labels,
		},
	})
	if err != nil {
		return nil, err
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
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(files, e.Name())
		if e.Type() == fs.ModeSymlink {
			to, err := os.Readlink(path)
			if err != nil {
				return nil, fmt.Errorf("files: %w", err)
			}
			if to != filepath.Base(to) {
				return nil, fmt.Errorf("files: %s must lead to a file beside it, got %s", path, to)
			}
			if err := add(&tar.Header{Typeflag: tar.TypeSymlink, Name: e.Name(), Linkname: to, Mode: 0o777}, nil); err != nil {
				return nil, err
			}
			continue
		}
		if !e.Type().IsRegular() {
			return nil, fmt.Errorf("files: %s must be a plain file or a link", path)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("files: %w", err)
		}
		if err := add(&tar.Header{Typeflag: tar.TypeReg, Name: e.Name(), Mode: 0o555}, content); err != nil {
			return nil, err
		}
	}
	return mutate.Annotations(image, labels).(v1.Image), nil
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

// write returns the tar of an OCI layout and the digest of its manifest. One image comes with the list of layers for
// older engines.
func write(o *options, all []v1.Image) ([]byte, string, error) {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	top, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, "", err
	}
	named := layout.WithAnnotations(map[string]string{"io.containerd.image.name": o.name, annotation + "ref.name": o.name})
	var digest v1.Hash
	if len(all) == 1 {
		if digest, err = all[0].Digest(); err == nil {
			err = top.AppendImage(all[0], layout.WithPlatform(platform(o.archs[0])), named)
		}
		if err == nil {
			err = writeList(dir, o.name, all[0])
		}
	} else {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for i, image := range all {
			to := platform(o.archs[i])
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &to}})
		}
		if digest, err = index.Digest(); err == nil {
			err = top.AppendIndex(index, named)
		}
	}
	if err != nil {
		return nil, "", err
	}
	data, err := archive(dir, o.created)
	return data, digest.String(), err
}

func platform(arch string) v1.Platform { return v1.Platform{Architecture: arch, OS: "linux"} }

// writeList writes the list of layers for older engines.
func writeList(dir, name string, image v1.Image) error {
	m, err := image.Manifest()
	if err != nil {
		return err
	}
	docker := tarball.Descriptor{Config: blobPath(m.Config.Digest), RepoTags: []string{name}}
	for _, l := range m.Layers {
		docker.Layers = append(docker.Layers, blobPath(l.Digest))
	}
	list, err := json.Marshal(tarball.Manifest{docker})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "manifest.json"), list, 0o600)
}

// archive returns the files of a folder as a tar, in the order of their names.
func archive(dir string, created time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: 0o444, Size: int64(len(data)), ModTime: created, Format: tar.FormatUSTAR,
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
