package gate

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"vestibule/internal/page"
)

const (
	// ClientPath serves the module with which pages and apps wait for their requests: GET.
	ClientPath = "/.well-known/vestibule/client.js"

	// WordsPath serves the module's texts in the language of ?lang=CODE: GET.
	WordsPath = "/.well-known/vestibule/words.json"
)

const statusNotModified = 304

// client answers with the client module.
func (p *ownPages) client(r *Request, o *Outcome, _ *snapshot, _ string) {
	p.file(r, o, "text/javascript; charset=utf-8", page.Client)
}

// words answers with the module's texts in one language, or the page's for an unknown one.
func (p *ownPages) words(r *Request, o *Outcome, _ *snapshot, query string) {
	values, err := url.ParseQuery(query)
	if err != nil {
		values = nil
	}
	p.file(r, o, "application/json", page.LangOf(values.Get("lang")).Words())
}

// script answers with the script of the waiting page. Browsers keep the content that the address names.
func (p *ownPages) script(r *Request, o *Outcome, _ *snapshot, _ string) {
	if !r.reads(o) {
		return
	}
	path, _, _ := strings.Cut(r.Target, "?")
	s, exact := page.ScriptAt(path)
	if s == nil {
		o.Refuse("client", "This edge has no script for such a page.", statusNotFound)
		return
	}
	p.engine.metrics.count("client")
	caching, vary := scriptCaching, "Accept-Encoding"
	if !exact {
		caching, vary = "no-store, no-transform", "*" // also in the way of a service worker's cache
	}
	o.says(statusOK, "text/javascript; charset=utf-8", caching)
	o.set("Vary", vary)
	if page.TakesGzip(r.Encodings) {
		o.set("Content-Encoding", "gzip")
		o.Body = append(o.Body[:0], s.Gzip()...)
		return
	}
	o.Body = append(o.Body[:0], s.Text...)
}

// scriptCaching has caches keep a script, and servers in front leave it as it is.
const scriptCaching = "public, max-age=31536000, immutable, no-transform"

// file answers with a static text that pages of all origins may use and that changes at most with the edge's
// version.
func (p *ownPages) file(r *Request, o *Outcome, contentType, text string) {
	if !r.reads(o) {
		return
	}
	p.engine.metrics.count("client")
	sum := sha256.Sum256([]byte(text))
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	o.set("ETag", tag)
	o.set("Access-Control-Allow-Origin", "*")
	o.set("Cross-Origin-Resource-Policy", "cross-origin")
	if slices.ContainsFunc(valuesOf(r.Lines, "If-None-Match"), func(v string) bool { return strings.Contains(v, tag) }) {
		o.Kind, o.Status, o.Body = Answered, statusNotModified, o.Body[:0]
		o.set("Cache-Control", fileCaching)
		return
	}
	o.says(statusOK, contentType, fileCaching)
	o.Body = append(o.Body[:0], text...)
}

// fileCaching lets browsers cache a file for an hour without revalidation.
const fileCaching = "public, max-age=3600"

// valuesOf returns the lines of a header field. It reads all lines, so it is not for the hot path.
func valuesOf(lines HeaderLines, name string) (values []string) {
	if lines == nil {
		return nil
	}
	for _, h := range lines.AppendTo(nil) {
		if strings.EqualFold(h.Name, name) {
			values = append(values, h.Value)
		}
	}
	return values
}
