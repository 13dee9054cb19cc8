package gate

import (
	"fmt"
	"strconv"
	"strings"

	"vestibule/internal/core/room"
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
	return o.AppendForward(dst, host)
}

// AppendForward appends those of the fields that say nothing about the visitor.
func (o *Outcome) AppendForward(dst []Field, host string) []Field {
	proto := "http"
	if o.Secure {
		proto = "https"
	}
	dst = append(dst, Field{Name: "Via", Value: o.via}, Field{Name: HopsHeader, Value: strconv.Itoa(o.hops)})
	return append(dst, Field{Name: "X-Forwarded-Host", Value: host}, Field{Name: "X-Forwarded-Proto", Value: proto})
}

// ForVisitor returns the tickets that the visitor gets with the site's answer, and whether that answer is for nobody
// else.
func (o *Outcome) ForVisitor() (tickets []Field, private bool) {
	tickets = o.Tickets()
	return tickets, len(tickets) > 0 || o.Private
}

// HSTSHeader makes browsers use TLS for a host (RFC 6797). They take the first of an answer.
const HSTSHeader = "Strict-Transport-Security"

// FailureHeader returns the header of the answer to a request of method in place of the site's.
// The session of a newcomer whose connection the site refused ends: it has not been used.
func (o *Outcome) FailureHeader(method string, f *origin.Failure) []Field {
	var header []Field
	if f.Refused && len(o.newcomer) > 0 && len(o.newcomer) == len(o.inside) {
		for i := range o.newcomer {
			o.gate.Engine.quit(&o.newcomer[i])
		}
	} else {
		header = o.Tickets()
	}
	if f.Down && method == "GET" {
		header = append(header, Field{Name: "Refresh", Value: f.RetryAfter})
	}
	if o.HSTS != "" {
		header = append(header, Field{HSTSHeader, o.HSTS})
	}
	header = append(header, Field{Name: "Content-Type", Value: "text/plain; charset=utf-8"}, Field{
		Name: "Cache-Control", Value: "no-store",
	})
	if f.RetryAfter != "" {
		header = append(header, Field{Name: "Retry-After", Value: f.RetryAfter})
	}
	return header
}

// Headers with which a site's response ends a visitor's session. The first two have the value [CommandRevoke]; the
// second is that of the hosted product, and applies in rooms that enable it in enabled_origin_commands. The third ends
// the session if it removes the cookies: the visitor's ticket is gone.
const (
	CommandHeader       = "Vestibule-Command"
	HostedCommandHeader = "Cf-Waiting-Room-Command"
	ClearHeader         = "Clear-Site-Data"
	CommandRevoke       = room.CommandRevoke
)

// SiteCommands are the commands to the edge in a site's answer. The zero value is none.
type SiteCommands struct {
	revokes bool // by HostedCommandHeader
	own     bool // by CommandHeader
	clears  bool // by ClearHeader
}

// Read reads one header line of the site's answer. name is canonical.
func (c *SiteCommands) Read(name, value string) {
	switch name {
	case CommandHeader:
		c.own = c.own || value == CommandRevoke
	case HostedCommandHeader:
		c.revokes = c.revokes || value == CommandRevoke
	case ClearHeader:
		for what := range strings.SplitSeq(value, ",") {
			what = strings.TrimSpace(what)
			c.clears = c.clears || what == `"cookies"` || what == `"*"`
		}
	}
}

// KeepsTickets reports whether the visitor may get tickets with the answer. A browser that removes its cookies would
// keep a renewed one, or not, depending on its order of work.
func (c *SiteCommands) KeepsTickets() bool { return !c.clears }

// Obey ends the sessions that admitted the request, if the site's answer says so.
func (o *Outcome) Obey(c *SiteCommands) {
	if !c.own && !c.revokes && !c.clears {
		return
	}
	for i := range o.inside {
		if r := o.gate.Rooms().ByID(o.inside[i].Room); c.own || c.clears ||
			r != nil && r.OriginCommands == room.CommandRevoke {
			o.gate.Engine.quit(&o.inside[i])
		}
	}
}
