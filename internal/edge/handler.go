package edge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/front"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/origin"
)

// ServeHTTP decides a visitor's request and carries out the outcome.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.metrics.byNetHTTP.Inc()
	progress := progressOf(r)
	progress.Begin()
	defer progress.End()
	o := s.gate.Begin()
	defer o.End()
	defer s.recovered(w, r, o)
	// Over HTTP/1.1 net/http refuses most of these itself.
	if slices.ContainsFunc(r.Header["Expect"], func(e string) bool { return !strings.EqualFold(e, "100-continue") }) {
		o.Client, o.Secure = clientaddr.Peer(r.RemoteAddr), r.TLS != nil
		o.Refuse("refused_expect", "Only the expectation 100-continue is met here.", http.StatusExpectationFailed)
		s.answer(w, r, o)
		return
	}
	dropOffers(r)
	s.gate.Decide(r.Context(), s.request(r, clientaddr.Conn(r.RemoteAddr), o), o)
	progress.Identify(o.Client, o.Session())
	switch o.Kind {
	case gate.Enters:
		s.enter(w, r, o)
		return
	case gate.Preflights:
		s.preflights.answer(r, o)
	case gate.Listens:
		progress.Begin()
		begun := s.streams.open(w, r, o)
		if !begun || r.ProtoMajor > 1 { // over HTTP/1.1 the stream has the connection, and waits for nobody
			progress.End()
		}
		if begun {
			return
		}
	case gate.Answered:
	}
	s.answer(w, r, o)
}

type progressKey struct{}

// withProgress implements [http.Server.ConnContext].
func withProgress(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, progressKey{}, front.ProgressOf(c))
}

// progressOf returns the progress of a request's connection.
func progressOf(r *http.Request) front.Progress {
	if p, ok := r.Context().Value(progressKey{}).(front.Progress); ok {
		return p
	}
	return front.ProgressOf(nil) // of a request that no server has read
}

// request returns the gate's view of a request from peer.
func (s *Server) request(r *http.Request, peer netip.AddrPort, o *gate.Outcome) *gate.Request {
	q := o.Request()
	*q = gate.Request{
		Host: r.Host, Target: rawTarget(r), Method: r.Method, Body: hasBody(r), Version: r.Proto, Lines: ruleLines(r.Header),
	}
	q.ReadHeader(s.proxies, peer, r.TLS, func(name string) []string { return r.Header[name] })
	return q
}

// recovered answers a request that ended in a panic.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request, o *gate.Outcome) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // the proxy cuts a connection this way
	}
	front.Panicked(s.log, s.metrics.panics, "request", p)
	s.patience.hurryBody(w, r)
	addFields(w.Header(), o.Tickets()) // a session permit may have been charged: the visitor must get its ticket
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, "Something went wrong. Please try again.", http.StatusInternalServerError)
}

// answer writes the edge's own answer to a visitor.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, o *gate.Outcome) {
	s.patience.hurryBody(w, r)
	h := w.Header()
	addFields(h, o.Header)
	if o.Close || s.draining.Load() {
		h.Set("Connection", "close")
	}
	if o.Status != http.StatusNoContent && o.Status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(o.Body)))
	}
	w.WriteHeader(o.Status)
	if r.Method == http.MethodHead || len(o.Body) == 0 {
		return
	}
	progress, since := progressOf(r), time.Now()
	progress.Await(false, since)
	defer progress.Resume(false, since)
	if _, err := w.Write(o.Body); err != nil {
		s.log.Debug("answer to a visitor not written", slog.Any("error", err))
	}
}

// enter forwards a request to its site.
func (s *Server) enter(w http.ResponseWriter, r *http.Request, o *gate.Outcome) {
	if r.Header.Get("Upgrade") != "" {
		s.upgrades.Add(1)
		defer s.upgrades.Done()
		if c := o.Connection(); c != nil {
			ctx, cancel := s.whileInside(r.Context(), c)
			defer cancel()
			r = r.WithContext(ctx)
			w = activeWriter{w, c}
		}
	}
	ctx := origin.ForClient(r.Context(), o.Client)
	if o.Session() != 0 {
		ctx = origin.WithSession(ctx)
	}
	w, r = s.patience.patient(w, r.WithContext(ctx))
	s.proxy.serve(w, r, o)
	s.patience.hurryRest(r)
}

var _ http.Handler = (*Server)(nil)
