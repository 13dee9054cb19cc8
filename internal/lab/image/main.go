// Command image writes a container image without a container engine: an OCI
// layout in one tar, which engines load and registries take. The same files,
// version and date make the same bytes.
//
// The image is FROM scratch: the files of a folder, one layer each, and a folder
// /data that the user of the image owns. The Dockerfile says the same for
// builders that want one; a test holds the two together.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// What the image says of itself, beside version, revision and date.
const (
	user        = 65532 // and group: nobody's
	entrypoint  = "/vestibule"
	title       = "vestibule"
	description = "A waiting room that holds a hard limit across regions: edge, regional, global, the vestibule command and nats-server."
	dataDir     = "data"
)

// Media types and annotations of the OCI image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"

	annotation = "org.opencontainers.image."
)

// descriptor names a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations"`
}

type config struct {
	platform
	Created time.Time `json:"created"`
	Config  struct {
		User       string
		Entrypoint []string
		WorkingDir string
		Labels     map[string]string
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// dockerManifest is what engines older than the OCI layout look for.
type dockerManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// options say what the image is made of.
type options struct {
	files    string // folder, of which every file goes to /
	name     string // with its tag
	version  string
	revision string
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

// blobs collects what goes into the layout.
type blobs struct {
	names []string
	data  map[string][]byte
}

func (b *blobs) add(mediaType string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	name := hex.EncodeToString(sum[:])
	if _, known := b.data[name]; !known {
		b.names = append(b.names, name)
		b.data[name] = data
	}
	return descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: len(data)}
}

func (b *blobs) addJSON(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return b.add(mediaType, data), nil
}

// build returns the image as a tar, and the digest of its manifest.
func build(o *options) ([]byte, string, error) {
	entries, err := os.ReadDir(o.files) // in the order of their names
	if err != nil {
		return nil, "", fmt.Errorf("files: %w", err)
	}
	b := blobs{data: map[string][]byte{}}
	c := config{platform: platform{o.arch, "linux"}, Created: o.created}
	c.Config.User = fmt.Sprintf("%d:%d", user, user)
	c.Config.Entrypoint = []string{entrypoint}
	c.Config.WorkingDir = "/"
	c.Config.Labels = labels(o)
	c.RootFS.Type = "layers"
	m := manifest{SchemaVersion: 2, MediaType: typeManifest, Annotations: c.Config.Labels}
	layer := func(h *tar.Header, content []byte) error {
		plain, packed, err := pack(o.created, h, content)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(plain)
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, "sha256:"+hex.EncodeToString(sum[:]))
		c.History = append(c.History, history{o.created, "/" + h.Name})
		m.Layers = append(m.Layers, b.add(typeLayer, packed))
		return nil
	}
	if err := layer(&tar.Header{Typeflag: tar.TypeDir, Name: dataDir + "/", Mode: 0o700, Uid: user, Gid: user}, nil); err != nil {
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
		if err := layer(&tar.Header{Typeflag: tar.TypeReg, Name: e.Name(), Mode: 0o555}, content); err != nil {
			return nil, "", err
		}
	}
	if m.Config, err = b.addJSON(typeConfig, c); err != nil {
		return nil, "", err
	}
	top, err := b.addJSON(typeManifest, m)
	if err != nil {
		return nil, "", err
	}
	top.Platform = &c.platform
	top.Annotations = map[string]string{"io.containerd.image.name": o.name, annotation + "ref.name": o.name}
	data, err := layout(&b, o, index{2, typeIndex, []descriptor{top}}, &m)
	return data, top.Digest, err
}

// labels are what the image tells of itself.
func labels(o *options) map[string]string {
	return map[string]string{
		annotation + "title":       title,
		annotation + "description": description,
		annotation + "version":     o.version,
		annotation + "revision":    o.revision,
		annotation + "created":     o.created.Format(time.RFC3339),
	}
}

// pack returns a layer of one file, plain and compressed.
func pack(created time.Time, h *tar.Header, content []byte) (plain, packed []byte, err error) {
	var b, z bytes.Buffer
	h.Size, h.ModTime, h.Format = int64(len(content)), created, tar.FormatUSTAR
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(h); err != nil {
		return nil, nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, nil, err
	}
	if err := w.Close(); err != nil {
		return nil, nil, err
	}
	g := gzip.NewWriter(&z) // without a name and a date
	if _, err := g.Write(b.Bytes()); err != nil {
		return nil, nil, err
	}
	if err := g.Close(); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), z.Bytes(), nil
}

// layout returns the tar of an OCI layout, with the list of layers that older
// engines want beside it.
func layout(b *blobs, o *options, top index, m *manifest) ([]byte, error) {
	docker := dockerManifest{Config: blobPath(m.Config.Digest), RepoTags: []string{o.name}}
	for _, l := range m.Layers {
		docker.Layers = append(docker.Layers, blobPath(l.Digest))
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	put := func(name string, data []byte) error {
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: 0o444, Size: int64(len(data)), ModTime: o.created, Format: tar.FormatUSTAR,
		}); err != nil {
			return err
		}
		_, err := io.Copy(w, bytes.NewReader(data))
		return err
	}
	for _, f := range []struct {
		name string
		v    any
	}{
		{"oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}},
		{"index.json", top},
		{"manifest.json", []dockerManifest{docker}},
	} {
		data, err := json.Marshal(f.v)
		if err == nil {
			err = put(f.name, data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	for _, name := range b.names {
		if err := put("blobs/sha256/"+name, b.data[name]); err != nil {
			return nil, fmt.Errorf("blob %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// blobPath is where a blob lies in a layout.
func blobPath(digest string) string { return "blobs/sha256/" + digest[len("sha256:"):] }
