package origin

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"

	"vestibule/internal/core/ticket"
)

// A request is decided by its request line, its Host and its connection. Some sites read path, method, host, scheme
// or the visitor's address from headers instead, which proxies in front of them set. With such a header a visitor
// could make the site serve another request than the decided one, so all of them are removed. An operator may
// forward single ones (forward_headers), for sites behind a proxy that sets them.
//
// The tables name headers in their canonical spelling, as in net/http.
var (
	// The path, or a part of it.
	pathHeaders = []string{
		"Base-Url", "Http-Url", "Path-Info", "Request-Uri", "Script-Name", "Uri", "Url",
		"X-Accel-Internal", "X-Accel-Redirect", "X-Context-Path", "X-Http-Destinationurl", "X-Http-Path-Override",
		"X-Http-Url-Override", "X-Invoke-Path", "X-Invoke-Query", "X-Matched-Path", "X-Now-Route-Matches", "X-Override-Url",
		"X-Path", "X-Path-Info", "X-Real-Uri", "X-Real-Url", "X-Replaced-Path", "X-Request-Uri", "X-Request-Url", "X-Rewrite",
		"X-Root-Path", "X-Script-Name", "X-Unencoded-Url", "X-Uri", "X-Url", "X-Waws-Unencoded-Url",
	}

	// The method.
	methodHeaders = []string{"X-Http-Method", "X-Http-Method-Override", "X-Method", "X-Method-Override"}

	// The host, or the destination.
	hostHeaders = []string{
		"Disguised-Host", "Proxy", "X-Backend-Host", "X-Gateway-Host", "X-Host", "X-Host-Name", "X-Host-Override",
		"X-Http-Host", "X-Http-Host-Override", "X-Original", "X-Proxy-Host", "X-Proxy-Url", "X-Real-Host", "X-Server-Name",
		"X-Server-Port", "X-Waws-Original-Host",
	}

	// The scheme.
	schemeHeaders = []string{
		"Cf-Visitor", "Cloudfront-Forwarded-Proto", "Front-End-Https", "Https", "Ssl", "X-Client-Proto", "X-Client-Scheme",
		"X-Front-End-Https", "X-Https", "X-Proto", "X-Protocol", "X-Real-Proto", "X-Request-Scheme", "X-Scheme", "X-Ssl",
		"X-Url-Scheme",
	}

	// The visitor's address.
	addressHeaders = []string{
		"Akamai-Client-Ip", "Ali-Cdn-Real-Ip", "Cdn-Real-Ip", "Cdn-Src-Ip", "Cf-Connecting-Ip", "Cf-Connecting-Ipv6",
		"Cf-Pseudo-Ipv4", "Client-Ip", "Cloudfront-Viewer-Address", "Cluster-Client-Ip", "Do-Connecting-Ip",
		"Fastly-Client-Ip", "Fly-Client-Ip", "Incap-Client-Ip", "Oxylabs-Client-Ip", "Real-Ip", "Source-Ip", "True-Client-Ip",
		"X-Appengine-Remote-Addr", "X-Appengine-User-Ip", "X-Azure-Clientip", "X-Azure-Socketip", "X-Client-Addr",
		"X-Client-Ip", "X-Clientip", "X-Cluster-Client-Ip", "X-Coming-From", "X-Custom-Ip-Authorization",
		"X-Nf-Client-Connection-Ip", "X-Originating-Ip", "X-Proxyuser-Ip", "X-Real-Ip", "X-Source-Ip", "X-Sucuri-Clientip",
		"X-True-Client-Ip", "X-True-Ip",
	}

	// Families of headers with any of these meanings.
	headerFamilies = []string{
		"Forward", "Proxy-", "Remote-", "Ssl-Client-", "Wl-Proxy-", "X-Arr-", "X-Envoy-", "X-Forward", "X-Middleware-",
		"X-Original-", "X-Rewrite-", "X-Client-Cert", "X-Remote-", "X-Sendfile", "X-Ssl-Client-", "X-Vercel-",
	}

	// Headers of a site's answer that make shared caches store it, in spite of Cache-Control, besides all that end in
	// -Cache-Control: CDN-Cache-Control (RFC 9213), X-LiteSpeed-Cache-Control.
	cachingHeaders = []string{"Edge-Control", "Expires", "Surrogate-Control", "X-Accel-Expires"}

	// Headers among nodes of this fleet and to the site.
	ownFamilies = []string{"Vestibule-", "X-Vestibule-"}

	// Headers that the edge sets itself, or that a server needs to parse the request.
	edgeHeaders = []string{
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Host", "Connection", "Content-Length",
		"Transfer-Encoding", "Trailer", "Te", "Http2-Settings", "Upgrade", "Keep-Alive", "Proxy-Connection", "Cookie", "Via",
	}
)

// HeaderRules select the visitor's headers that reach a site. They are immutable.
type HeaderRules struct {
	out     map[string]bool   // removed by name
	forward map[string]bool   // forwarded in spite of all rules
	removed func(name string) // called for each header that is removed for a character in its name
}

// NewHeaderRules returns rules that forward the headers named in forward. removed is called for each header of a
// visitor that is removed only because a site may take a character in its name for a hyphen; nil for no call.
func NewHeaderRules(forward []string, removed func(name string)) *HeaderRules {
	h := &HeaderRules{out: map[string]bool{}, forward: map[string]bool{}, removed: removed}
	for _, table := range [][]string{pathHeaders, methodHeaders, hostHeaders, schemeHeaders, addressHeaders} {
		for _, name := range table {
			h.out[name] = true
		}
	}
	for _, name := range forward {
		h.forward[http.CanonicalHeaderKey(name)] = true
	}
	return h
}

// ToSite returns the forwarded value of a visitor's header line; ok is false if it is removed. name is canonical.
func (h *HeaderRules) ToSite(name, value string) (forward string, ok bool) {
	switch {
	case h.refuses(name):
		return "", false
	case name == "Cookie":
		value = withoutTickets(value)
		return value, value != ""
	case name == "User-Agent":
		return value, value != "" // net/http omits an empty one
	}
	return value, true
}

// Strip removes headers that must not reach the site.
func (h *HeaderRules) Strip(header http.Header) { each(header, h.ToSite) }

// each applies a rule to all lines of a header.
func each(header http.Header, rule func(name, value string) (string, bool)) {
	for name, lines := range header {
		kept := lines[:0]
		for _, l := range lines {
			if l, ok := rule(name, l); ok {
				kept = append(kept, l)
			}
		}
		if len(kept) == 0 {
			delete(header, name)
		} else {
			header[name] = kept
		}
	}
}

func (h *HeaderRules) refuses(name string) bool {
	switch {
	case hasFamily(name, ownFamilies):
		return true
	case h.forward[name]:
		return false
	}
	if h.refusesPlain(name) {
		return true
	}
	if plainName(name) {
		return false
	}
	if h.removed != nil && !h.refusesPlain(hyphened(name)) {
		h.removed(name)
	}
	return true
}

func (h *HeaderRules) refusesPlain(name string) bool {
	return name == "Via" || h.out[name] || hasFamily(name, headerFamilies) || hasFamily(name, ownFamilies)
}

// hyphened returns the name that gateways like CGI take a name for.
func hyphened(name string) string {
	return http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
		if r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name))
}

// RemovedNames counts and logs headers that are removed for a character in their names. A shop's program may send its
// key in one. It is safe for concurrent use.
type RemovedNames struct {
	Metrics *Metrics
	Log     *slog.Logger

	mu     sync.Mutex
	logged map[string]bool
}

// maxLogged bounds the logged names.
const maxLogged = 20

// Add counts a header, and logs its name the first time.
func (r *RemovedNames) Add(name string) {
	r.Metrics.names.Inc()
	name = strings.ToLower(name[:min(len(name), 64)])
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.logged) >= maxLogged || r.logged[name] {
		return
	}
	if r.logged == nil {
		r.logged = map[string]bool{}
	}
	r.logged[name] = true
	text := "header of a visitor does not reach the site, which may take a character of its name for a hyphen: " +
		"forward_headers: [" + name + "] lets it pass"
	r.Log.Info(text, slog.String("header", name)) //nolint:sloglint // the setting, ready to copy
}

// plainName reports whether a name has only letters, digits and hyphens. Gateways like CGI map every other
// character to _, like the hyphen, so that X_Real_IP and X.Real.IP become X-Real-IP.
func plainName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

func hasFamily(name string, families []string) bool {
	for _, f := range families {
		if strings.HasPrefix(name, f) {
			return true
		}
	}
	return false
}

// CheckForward returns the faults of a forward_headers list.
func CheckForward(list []string) []error {
	var errs []error
	for i, name := range list {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			errs = append(errs, fmt.Errorf("forward_headers[%d]: must be the name of a header, got %q", i, name))
		case hasFamily(canonical, ownFamilies):
			errs = append(errs, fmt.Errorf("forward_headers[%d]: %s is for this fleet only", i, canonical))
		case slices.Contains(edgeHeaders, canonical):
			errs = append(errs, fmt.Errorf("forward_headers[%d]: %s is the edge's own to set or to read", i, canonical))
		}
	}
	return errs
}

// withoutTickets returns a Cookie line without our tickets: they are credentials for the edge, not for the origin.
// The result is a substring of the line if it is contiguous.
func withoutTickets(l string) string {
	if !strings.Contains(l, ticket.CookieStem) {
		return l
	}
	const gap = "; "
	from, to := 0, 0 // l[from:to] remains, while apart is empty
	var apart []byte
	for at := 0; at <= len(l); {
		end := len(l)
		if i := strings.IndexByte(l[at:], ';'); i >= 0 {
			end = at + i
		}
		part := strings.TrimSpace(l[at:end])
		begin := at + strings.Index(l[at:end], part)
		at = end + 1
		if name, _, _ := strings.Cut(part, "="); part == "" || ticket.IsCookieName(strings.TrimSpace(name)) {
			continue
		}
		switch {
		case apart != nil:
			apart = append(append(apart, gap...), part...)
		case to == 0:
			from, to = begin, begin+len(part)
		case l[to:begin] == gap:
			to = begin + len(part)
		default:
			apart = append(append(append(make([]byte, 0, len(l)), l[from:to]...), gap...), part...)
		}
	}
	if apart != nil {
		return string(apart)
	}
	return l[from:to]
}

// ToVisitor reports whether a response header line of a site reaches the visitor. Cookies with the names of our
// tickets do not: with control over the site's cookies one could otherwise remove a visitor's place. Headers for
// the fleet do not. For a private response neither do caching headers: [Private] replaces Cache-Control. name is
// canonical. Neither do offers of other addresses for the site, where no edge decides.
func ToVisitor(name, value string, private bool) bool {
	switch name {
	case "Alt-Svc", "Alternate-Protocol":
		return false
	case "Set-Cookie":
		cookie, _, _ := strings.Cut(value, "=")
		return !ticket.IsCookieName(strings.TrimSpace(cookie))
	case "Cache-Control":
		return !private
	}
	return !hasFamily(name, ownFamilies) && (!private || !controlsCaches(name))
}

// InHint reports whether a header line of a site's informational answer reaches the visitor: those that browsers act
// on (RFC 8297). name is canonical.
func InHint(name string) bool {
	return name == "Link" || name == "Content-Security-Policy" || name == "Content-Security-Policy-Report-Only"
}

// StripAnswer removes response headers that must not reach the visitor.
func StripAnswer(h http.Header, private bool) {
	cache := ""
	if private {
		cache = Private(h["Cache-Control"])
	}
	each(h, func(name, value string) (string, bool) { return value, ToVisitor(name, value, private) })
	if private {
		h["Cache-Control"] = []string{cache}
	}
}

// controlsCaches reports whether a header makes shared caches store an answer, in spite of Cache-Control.
func controlsCaches(name string) bool {
	return slices.Contains(cachingHeaders, name) || strings.HasSuffix(name, "-Cache-Control")
}

// Private returns the Cache-Control of a response with a visitor's ticket, or for sessions only: it forbids shared
// caches. The origin's directives for the browser's own cache, in these lines, stay.
func Private(lines []string) string {
	kept := []string{"private"}
	for _, line := range lines {
		for d := range strings.SplitSeq(line, ",") {
			d = strings.TrimSpace(d)
			name, _, _ := strings.Cut(strings.ToLower(d), "=")
			switch name {
			case "", "public", "private", "s-maxage", "proxy-revalidate":
			default:
				kept = append(kept, d)
			}
		}
	}
	return strings.Join(kept, ", ")
}
