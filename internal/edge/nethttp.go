package edge

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"vestibule/internal/core/rules"
	"vestibule/internal/edge/gate"
)

// Conversions from net/http requests and to net/http answers.

// ruleLines gives rules the lines of a header.
type ruleLines http.Header

func (h ruleLines) AppendTo(out []rules.Header) []rules.Header {
	for name, lines := range h {
		if name == "Connection" || name == "Content-Length" { // the fast front keeps them apart
			continue
		}
		for _, line := range lines {
			out = append(out, rules.Header{Name: name, Value: line})
		}
	}
	return out
}

// rawTarget returns path and query as in the request line.
func rawTarget(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	if r.RequestURI == "*" { // net/http answers OPTIONS * itself; no other method has a meaning with it
		return "*"
	}
	// Absolute form.
	t := r.URL.EscapedPath()
	if t == "" {
		t = "/"
	}
	if r.URL.RawQuery != "" {
		t += "?" + r.URL.RawQuery
	}
	return t
}

func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

func addFields(h http.Header, fields []gate.Field) {
	for _, f := range fields {
		if f.Name == gate.DecisionHeader { // fronts have it already
			h.Del(f.Name)
		}
		h.Add(f.Name, f.Value)
	}
}

// dropOffers removes what a client offers and the edge does not take up (RFC 9110, 7.8): upgrades other than to
// websocket. The request is then decided like one without the offer.
func dropOffers(r *http.Request) {
	offers := r.Header["Upgrade"]
	if offers == nil {
		return
	}
	delete(r.Header, "Upgrade")
	if r.Method == http.MethodGet && r.ProtoMajor == 1 && r.ProtoMinor == 1 &&
		httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") &&
		httpguts.HeaderValuesContainsToken(offers, "websocket") {
		r.Header["Upgrade"] = []string{"websocket"}
	}
}
