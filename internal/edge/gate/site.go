package gate

import (
	"fmt"

	"vestibule/internal/edge/origin"
)

// A request that enters, on its way to its site and back: the fields that the edge itself adds.

// MustGo panics unless the outcome is of the kind and target can be written to a site. Every function that writes a
// request to a site calls it first, so that no fault elsewhere lets a request pass.
func (o *Outcome) MustGo(kind Kind, target string) {
	if o.Kind != kind || !readsOneWay(target) {
		panic(fmt.Sprintf("gate: a request for %.200q with an outcome of kind %d must not reach the site", target, o.Kind))
	}
}

// AppendForSite appends the fields that the edge adds to the request for the site; the visitor's own of these names are
// taken out before. client is the visitor's address, empty for none; host is the host that the visitor asked for.
func (o *Outcome) AppendForSite(dst []Field, client, host string) []Field {
	if proof := o.Proof(); proof != "" {
		dst = append(dst, Field{Name: ProofHeader, Value: proof})
	}
	if client != "" {
		dst = append(dst, Field{Name: "X-Forwarded-For", Value: client})
	}
	proto := "http"
	if o.Secure {
		proto = "https"
	}
	return append(dst, Field{Name: "X-Forwarded-Host", Value: host}, Field{Name: "X-Forwarded-Proto", Value: proto})
}

// ForVisitor returns the tickets that the visitor gets with the site's answer, and whether that answer is for nobody
// else.
func (o *Outcome) ForVisitor() (tickets []Field, private bool) {
	tickets = o.Tickets()
	return tickets, len(tickets) > 0 || o.Private
}

// FailureHeader returns the header of the visitor's answer in place of the site's.
func (o *Outcome) FailureHeader(f *origin.Failure) []Field {
	header := append(o.Tickets(), Field{Name: "Content-Type", Value: "text/plain; charset=utf-8"}, Field{Name: "Cache-Control", Value: "no-store"})
	if f.RetryAfter != "" {
		header = append(header, Field{Name: "Retry-After", Value: f.RetryAfter})
	}
	return header
}
