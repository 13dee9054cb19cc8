package front

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"

	"vestibule/internal/edge/http1"
)

// maxBlock is the longest header block, in bytes as sent, and maxTable the table that it may refer to.
const (
	maxBlock = 2 * http1.MaxHead
	maxTable = 4 << 10
)

// head2 is a header block that is being read: of a request, or the trailers of one. Its fields are in the request of
// work, with the names of net/http.
type head2 struct {
	*work
	stream uint32
	ends   bool // the request has no body
	trails bool // trailers

	method, scheme, authority, path string

	seen    pseudo
	regular bool // a field of another kind was read
	odd     bool // a value is not plain
	hosts   []string
	length  int64 // Content-Length; -1 for none
	fault   error
	bytes   int // as sent
	size    int // of the fields, as HTTP/2 counts
}

// pseudo is a set of pseudo-header fields.
type pseudo uint8

const (
	hasMethod pseudo = 1 << iota
	hasScheme
	hasAuthority
	hasPath
)

// errTooLong is the fault of a head that is answered with 431.
var errTooLong = errors.New("the header is too long")

func (h *head2) begin(w *work, stream uint32, ends, trails bool) {
	*h = head2{work: w, stream: stream, ends: ends, trails: trails, length: -1, hosts: h.hosts[:0]}
	h.req.Reset()
}

// fail notes the first fault of the block. The rest is read for the table alone.
func (h *head2) fail(format string, a ...any) {
	if h.fault == nil {
		h.fault = fmt.Errorf(format, a...)
	}
}

// add adds a field. It is the emit function of a decoder.
func (h *head2) add(f hpack.HeaderField) {
	if h.size += int(f.Size()); h.fault != nil {
		return
	}
	if h.size > http1.MaxHead {
		h.fault = errTooLong
		return
	}
	if !http1.PlainValue(f.Value) {
		if h.odd = true; !httpguts.ValidHeaderFieldValue(f.Value) {
			h.fail("a value of %q is not valid", f.Name)
			return
		}
	}
	if strings.HasPrefix(f.Name, ":") {
		h.addPseudo(f.Name, f.Value)
		return
	}
	h.regular = true
	name, ok := commonNames[f.Name]
	if !ok {
		if !httpguts.ValidHeaderFieldName(f.Name) ||
			strings.ContainsFunc(f.Name, func(r rune) bool { return r >= 'A' && r <= 'Z' }) {
			h.fail("the name %q is not valid", f.Name)
			return
		}
		name = textproto.CanonicalMIMEHeaderKey(f.Name)
	}
	value := strings.Trim(f.Value, " \t")
	switch {
	case ofConnection[name], name == "Te" && value != "trailers" && value != "":
		h.fail("%s: %q has no meaning in HTTP/2", name, value)
		return
	case name == "Host":
		h.hosts = append(h.hosts, value)
		return
	case name == "Content-Length":
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || h.length >= 0 && h.length != int64(n) {
			h.fail("Content-Length: %q", value)
		}
		h.length = int64(n)
		return
	case h.trails: // sites are not asked for trailers
		return
	}
	h.req.Fields = append(h.req.Fields, http1.Field{Name: name, Value: value})
}

func (h *head2) addPseudo(name, value string) {
	kind, to := pseudo(0), (*string)(nil)
	switch name {
	case ":method":
		kind, to = hasMethod, &h.method
	case ":scheme":
		kind, to = hasScheme, &h.scheme
	case ":authority":
		kind, to = hasAuthority, &h.authority
	case ":path":
		kind, to = hasPath, &h.path
	}
	if to == nil || h.trails || h.regular || h.seen&kind != 0 {
		h.fail("%s has no place here", name)
		return
	}
	h.seen |= kind
	*to = value
}

// complete ends a block. It reports whether the block is as RFC 9113 requires.
func (h *head2) complete() bool {
	if h.fault != nil || h.trails {
		return h.fault == nil
	}
	connects := h.method == http.MethodConnect
	switch {
	case connects && (h.seen&(hasScheme|hasPath) != 0 || h.authority == ""),
		!connects && (h.method == "" || h.path == "" || h.scheme != "https" && h.scheme != "http"):
		h.fail("pseudo-header fields are missing, or have no place here")
	case strings.Contains(h.authority, "@"):
		h.fail("the authority names a user")
	case h.ends && h.length > 0:
		h.fail("no body of %d bytes", h.length)
	case len(h.hosts) > 1, len(h.hosts) == 1 && h.authority != "" && h.authority != h.hosts[0]:
		h.fail("the request is for two hosts")
	case len(h.hosts) == 1:
		h.authority = h.hosts[0]
	}
	h.joinCookies()
	return h.fault == nil
}

// joinCookies makes one field of all cookies: clients send each in a field, for the table.
func (h *head2) joinCookies() {
	n, at := 0, 0
	for i := range h.req.Fields {
		if h.req.Fields[i].Name == "Cookie" {
			if n++; n == 1 {
				at = i
			}
		}
	}
	if n < 2 {
		return
	}
	all := make([]string, 0, n)
	kept := h.req.Fields[:at]
	for i, f := range h.req.Fields[at:] {
		if f.Name == "Cookie" {
			all = append(all, f.Value)
		}
		if f.Name != "Cookie" || i == 0 {
			kept = append(kept, f)
		}
	}
	h.req.Fields = kept
	h.req.Fields[at].Value = strings.Join(all, "; ")
}

// plain makes the request of work complete, and reports whether it is one that the front decides and forwards by
// itself: without a body, and plain over HTTP/1.1.
func (h *head2) plain() bool {
	if !h.ends || h.odd {
		return false
	}
	// It asks for trailers, which sites are not asked for.
	h.req.Fields = slices.DeleteFunc(h.req.Fields, func(f http1.Field) bool { return f.Name == "Te" })
	return h.req.Adopt(h.method, h.path, h.authority, h.length)
}

// request returns the request as net/http's server reads it, with neither context nor body. expects reports that the
// client waits for 100 Continue.
func (h *head2) request() (r *http.Request, expects bool, err error) {
	r = &http.Request{
		Method: h.method, Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{}, Host: h.authority, RequestURI: h.path,
		Body: http.NoBody,
	}
	for _, f := range h.req.Fields {
		r.Header[f.Name] = append(r.Header[f.Name], f.Value)
	}
	delete(r.Header, "Trailer")
	if expects = httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue"); expects {
		delete(r.Header, "Expect")
	}
	if h.length >= 0 {
		r.Header["Content-Length"] = []string{strconv.FormatInt(h.length, 10)}
	}
	if !h.ends {
		r.ContentLength = h.length
	}
	if h.method == http.MethodConnect {
		r.RequestURI, r.URL = h.authority, &url.URL{Host: h.authority}
		return r, expects, nil
	}
	r.URL, err = url.ParseRequestURI(h.path)
	return r, expects, err
}
