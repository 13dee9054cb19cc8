package gate

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"vestibule/internal/core/rules"
	"vestibule/internal/page"
)

const (
	// ClientPath is the module by which pages and apps wait in line for their requests: GET.
	ClientPath = "/.well-known/vestibule/client.js"

	// WordsPath is what that module says, in the language of ?lang=CODE: GET.
	WordsPath = "/.well-known/vestibule/words.json"
)

const statusNotModified = 304

// client answers with the module by which pages and apps wait in line for their requests.
func (p *ownPages) client(r *Request, o *Outcome, _ *snapshot, _ string) {
	p.file(r, o, "text/javascript; charset=utf-8", page.Client)
}

// words answers with what the module says in one language, that of the page for an unknown one.
func (p *ownPages) words(r *Request, o *Outcome, _ *snapshot, query string) {
	values, err := url.ParseQuery(query)
	if err != nil {
		values = nil
	}
	p.file(r, o, "application/json", page.LangOf(values.Get("lang")).Words())
}

// file answers with something that is the same for everybody, that pages of all origins may use, and that
// changes with the release of the edge at most.
func (p *ownPages) file(r *Request, o *Outcome, contentType, text string) {
	if !r.reads(o) {
		return
	}
	p.metrics.count("client")
	sum := sha256.Sum256([]byte(text))
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	o.set("ETag", tag)
	o.set("Access-Control-Allow-Origin", "*")
	o.set("Cross-Origin-Resource-Policy", "cross-origin")
	if r.has("If-None-Match", tag) {
		o.Kind, o.Status, o.Body = Answered, statusNotModified, o.Body[:0]
		o.set("Cache-Control", fileCaching)
		return
	}
	o.says(statusOK, contentType, fileCaching)
	o.Body = append(o.Body[:0], text...)
}

// fileCaching is for how long a browser uses a file without asking whether there is a newer one.
const fileCaching = "public, max-age=3600"

// has reports whether a line of the header contains a word. It reads all lines: requests that are decided
// about do without.
func (r *Request) has(name, word string) bool {
	if r.Lines == nil {
		return false
	}
	return slices.ContainsFunc(r.Lines.AppendTo(nil), func(h rules.Header) bool { return strings.EqualFold(h.Name, name) && strings.Contains(h.Value, word) })
}
