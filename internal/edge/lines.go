package edge

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/front"
	"vestibule/internal/edge/origin"
)

// clientLine is a connection of a client that net/http serves. Once a site may have bound a login to a connection, the
// line has a transport of its own, with one connection to the site that serves nobody else.
type clientLine struct {
	mu   sync.Mutex
	own  *origin.Transport // nil if no login was bound
	tied net.Conn          // to the site, of the fast front; nil for none

	conn net.Conn // of the client
}

// clientLines are all of them, by connection. It is safe for concurrent use.
type clientLines struct{ all sync.Map }

type lineKey struct{}

func (l *clientLines) begin(ctx context.Context, c net.Conn) context.Context {
	line := &clientLine{conn: c}
	if h, ok := c.(interface{ TakeTied() net.Conn }); ok {
		line.tied = h.TakeTied()
	}
	l.all.Store(c, line)
	return context.WithValue(ctx, lineKey{}, line)
}

// end closes the connection to the site of a client that has left.
func (l *clientLines) end(c net.Conn, s http.ConnState) {
	if s != http.StateClosed && s != http.StateHijacked {
		return
	}
	line, ok := l.all.LoadAndDelete(c)
	if !ok {
		return
	}
	line.(*clientLine).close()
}

func (l *clientLine) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own != nil {
		l.own.CloseIdleConnections()
	}
	if l.tied != nil {
		l.tied.Close() // nothing is in progress on it
		l.tied = nil
	}
}

// upgraded notes that the connection of a request is upgraded.
func upgraded(r *http.Request) {
	line, _ := r.Context().Value(lineKey{}).(*clientLine)
	if line == nil {
		return
	}
	if h, ok := line.conn.(front.Handed); ok {
		h.Upgraded()
	}
}

// bound reports whether the line has a connection of its own.
func (l *clientLine) bound() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own != nil || l.tied != nil
}

// transport returns the transport of the line, which begins with the connection of the fast front, if any.
func (l *clientLine) transport(shared origin.Transport) origin.Transport {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own == nil {
		own := shared.Own(l.tied)
		l.own, l.tied = &own, nil
	}
	return *l.own
}

// way returns the transport for a request and its answer. The error says that a login of the request cannot be bound.
func (p *proxy) way(r *http.Request, alone bool) (http.RoundTripper, error) {
	line, _ := r.Context().Value(lineKey{}).(*clientLine)
	binds := slices.ContainsFunc(r.Header["Authorization"], origin.BindsLogin)
	switch {
	case binds && p.cannotBind(r) != nil:
		return nil, p.cannotBind(r)
	case line != nil && r.ProtoMajor == 1 && (binds || line.bound()):
		return line.transport(p.transport), nil
	case alone:
		return p.alone, nil
	}
	return p.trip, nil
}

// cannotBind returns why a connection to the site cannot be for the client of r alone, nil if it can.
func (p *proxy) cannotBind(r *http.Request) error {
	switch {
	case r.ProtoMajor != 1:
		return origin.ErrMultiplexedLogin
	case p.proxies.Trusts(clientaddr.Peer(r.RemoteAddr)):
		return origin.ErrSharedLogin
	}
	return nil
}

// bindOffered gives the client's connection one to the site, if the answer offers a login that is bound to it.
func (p *proxy) bindOffered(r *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusUnauthorized ||
		!slices.ContainsFunc(answer.Header["Www-Authenticate"], origin.OffersBinding) {
		return nil
	}
	if err := p.cannotBind(r); err != nil {
		return err
	}
	if line, ok := r.Context().Value(lineKey{}).(*clientLine); ok {
		line.transport(p.transport) // of the next requests: so far nobody has logged in
	}
	return nil
}
