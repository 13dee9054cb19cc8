package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed static
var static embed.FS

// file is a static file, compressed.
type file struct {
	kind       string // media type
	data, gzip []byte
	version    string // changes with the content
}

var files = loadFiles()

func loadFiles() map[string]*file {
	all := map[string]*file{}
	list, err := static.ReadDir("static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	for _, e := range list {
		data, err := static.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(data)
		f := &file{
			kind: mime.TypeByExtension(path.Ext(e.Name())), data: data,
			version: base64.RawURLEncoding.EncodeToString(sum[:9]),
		}
		var packed bytes.Buffer
		if err := pack(&packed, data, gzip.BestCompression); err != nil {
			panic(err) // into memory
		}
		f.gzip = packed.Bytes()
		all[e.Name()] = f
	}
	return all
}

// pack writes data, compressed.
func pack(to io.Writer, data []byte, level int) error {
	w, err := gzip.NewWriterLevel(to, level)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	return err
}

// asset returns the address of a static file. It changes with the content, so browsers may keep the file.
func asset(name string) string { return "/static/" + name + "?v=" + files[name].version }

// newFiles returns the handler of static files.
func newFiles() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := files[strings.TrimPrefix(r.URL.Path, "/static/")]
		if f == nil {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Vary", "Accept-Encoding")
		if r.URL.Query().Get("v") == f.version {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		data := f.data
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			data = f.gzip
		}
		h.Set("Content-Length", strconv.Itoa(len(data)))
		if _, err := w.Write(data); err != nil {
			return // the client disconnected
		}
	})
}
