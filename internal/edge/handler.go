package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/ticket"
	"vestibule/internal/waiting"
)

// scratch is the working memory of one request.
type scratch struct {
	ticket *ticket.Scratch
	page   []byte
	cookie []byte
}

// methods that are served. Others are refused before anything is decided:
// CONNECT would tunnel past every decision.
var methods = map[string]bool{
	http.MethodGet: true, http.MethodHead: true, http.MethodPost: true, http.MethodPut: true,
	http.MethodPatch: true, http.MethodDelete: true, http.MethodOptions: true,
}

// ServeHTTP decides about one request of a visitor.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := &forward{}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p) // the proxy's way to cut a connection
		}
		s.metrics.panics.Inc()
		s.log.Error("panic in a request", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		if mutant.On(mutant.PanicPasses) {
			s.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), forwardKey{}, f)))
			return
		}
		s.hurryBody(w, r)
		f.setTickets(w.Header()) // a slot may have been charged: the visitor is to have it
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "Something went wrong. Please try again.", http.StatusInternalServerError)
	}()
	if !methods[r.Method] {
		s.refuse(w, r, "refused_method", "This method is not served here.", http.StatusMethodNotAllowed)
		return
	}
	if up := r.Header.Values("Upgrade"); len(up) > 0 && (len(up) > 1 || !strings.EqualFold(up[0], "websocket") || r.Method != http.MethodGet) {
		s.refuse(w, r, "refused_upgrade", "Only websocket upgrades are served here.", http.StatusBadRequest)
		return
	}
	site := s.site.Load()
	if !site.ready {
		w.Header().Set("Retry-After", "2")
		s.refuse(w, r, "not_ready", "Starting up. Please try again in a moment.", http.StatusServiceUnavailable)
		return
	}
	target := rawTarget(r)
	path, query, _ := strings.Cut(target, "?")
	if path == leavePath {
		s.leave(w, r, site, query)
		return
	}
	if path == awayPath {
		s.away(w, r, site, query)
		return
	}
	if path == eventsPath {
		s.events(w, r, site, query)
		return
	}
	m := site.set.Match(r.Host, path)
	switch {
	case !m.Known:
		s.refuse(w, r, "unknown_host", "This host is not served here.", http.StatusMisdirectedRequest)
		return
	case m.Refuse:
		s.refuse(w, r, "refused_path", "This path can be read in more than one way.", http.StatusBadRequest)
		return
	}
	f.origin, f.rawPath = site.origins[m.Target()], target
	f.client, f.secure = s.clients.origin(r)
	f.poll = r.Header.Get(pollHeader) != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
	if f.origin == nil {
		s.refuse(w, r, "unknown_host", "No origin serves this host.", http.StatusMisdirectedRequest)
		return
	}
	var inside []stay
	f.revoke = func() { s.revoke(inside) }
	asked := s.clock.Now()
	f.late = func() {
		if s.clock.Now().Sub(asked) > lateAnswer {
			s.sealLate(f)
		}
	}
	until := fleet.Mono(0)
	rooms := m.Rooms()
	if len(rooms) == 0 {
		s.metrics.requests.WithLabelValues("passed").Inc()
	}
	for _, room := range rooms {
		d := s.admit(w, r, site.rooms[room.Index], f)
		if !d.Enters() {
			return
		}
		inside = append(inside, stay{site.rooms[room.Index].ID, d.Ticket})
		if end := s.sessionEnd(&d); until == 0 || end < until {
			until = end
		}
	}
	if f.poll {
		// The page only wanted to know; it asks for the site itself next.
		f.setTickets(w.Header())
		s.news(w, r, waiting.Entering.String())
		return
	}
	ctx := context.WithValue(r.Context(), forwardKey{}, f)
	if r.Header.Get("Upgrade") != "" {
		s.upgrades.Add(1)
		defer s.upgrades.Done()
		if until != 0 {
			// The connection lives as long as the shortest of the sessions that
			// let it in.
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, until.Sub(s.clock.Now()))
			defer cancel()
		}
	}
	w, r = s.patient(w, r.WithContext(ctx))
	s.proxy.ServeHTTP(w, r)
}

// lateAnswer is after how long an answer of the site may reach a browser that has gone
// on with newer tickets: half of the time for which answers are reckoned to be under way.
const lateAnswer = admission.InFlight * time.Second / 2

// sealLate seals the tickets of an answer anew that took the site long.
func (s *Server) sealLate(f *forward) {
	sc := s.scratch.Get().(*scratch)
	defer s.scratch.Put(sc)
	now, i := s.now(), index(f.secure)
	byHeader := len(f.tickets) > 0
	f.cookies, f.tickets = nil, nil
	for _, h := range f.handed {
		h.ticket.Late()
		sc.cookie = appendCookie(sc.cookie[:0], h.rs, i, now, &h.ticket, sc.ticket)
		f.cookies = append(f.cookies, string(sc.cookie))
		if byHeader {
			f.tickets = append(f.tickets, ticketOf(h.rs, i, f.cookies[len(f.cookies)-1]))
		}
	}
}

// rawTarget returns path and query as they stood in the request line.
func rawTarget(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	// Absolute form, or OPTIONS *.
	t := r.URL.EscapedPath()
	if t == "" || t == "*" {
		t = "/"
	}
	if r.URL.RawQuery != "" {
		t += "?" + r.URL.RawQuery
	}
	return t
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, why, text string, code int) {
	s.hurryBody(w, r)
	s.metrics.requests.WithLabelValues(why).Inc()
	w.Header().Set("Cache-Control", "no-store")
	if code == http.StatusMethodNotAllowed || code == http.StatusBadRequest {
		w.Header().Set("Connection", "close")
	}
	http.Error(w, text, code)
}

// sessionEnd returns the reading of our clock at which the session ends.
func (s *Server) sessionEnd(d *admission.Decision) fleet.Mono {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	left := fleet.Time(int64(d.Ticket.Until) * 1000).Sub(s.eng.Time(now))
	return now.Add(left)
}

// admit decides about the request in one room. Where the visitor may not enter
// it has answered.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, rs *roomSite, f *forward) admission.Decision {
	sc := s.scratch.Get().(*scratch)
	defer s.scratch.Put(sc)
	i := index(f.secure)
	t, byHeader, unread := s.openBest(r.Header, rs, i, sc)
	if unread {
		f.setTickets(w.Header())
		s.showMoment(w, r, rs, sc, "ticket_unread")
		return admission.Decision{}
	}
	if f.poll && t.ID == 0 && s.told.Load() {
		// A page without a ticket would be somebody new with every question, and
		// each might be charged a slot that nobody uses.
		s.news(w, r, newsReload)
		return admission.Decision{}
	}
	d, ft, hurry := s.arrive(rs, t)
	if hurry {
		s.wake()
	}
	if d.Verdict == admission.Hold {
		d = s.hold(r.Context(), rs, f.client, t, d)
		ft = s.now() // it may have been half a minute
	}
	rs.counters.count(&d)
	if d.Reseal {
		sc.cookie = appendCookie(sc.cookie[:0], rs, i, ft, &d.Ticket, sc.ticket)
		if len(sc.cookie) > 0 {
			f.cookies = append(f.cookies, string(sc.cookie))
			f.handed = append(f.handed, handed{rs, d.Ticket})
			if byHeader {
				f.tickets = append(f.tickets, ticketOf(rs, i, f.cookies[len(f.cookies)-1]))
			}
		}
	}
	if d.Verdict == admission.Admit {
		s.streams.over(place{rs.ID, d.Ticket.ID})
	}
	if !d.Enters() {
		f.setTickets(w.Header())
		status := rs.QueueingStatus
		if d.Reason == admission.Closed {
			status = http.StatusServiceUnavailable
		} else if d.Fresh != admission.Kept && !d.Reseal {
			// The engine has no time to stamp a place with: it would not be kept.
			s.showMoment(w, r, rs, sc, "time_unknown")
			return d
		}
		s.show(w, r, rs, sc, status, &waiting.Visitor{Decision: d, Now: ft})
	}
	return d
}

// arrive asks the engine about one request. The lock is given up even where the
// engine panics: one broken request must not hold up all others.
func (s *Server) arrive(rs *roomSite, t ticket.Ticket) (d admission.Decision, now fleet.Time, hurry bool) {
	m := s.lock()
	defer s.mu.Unlock()
	d = s.eng.Arrive(m, rs.ID, t)
	return d, s.eng.Time(m), s.eng.Due() <= m
}

// now returns fleet time as the engine knows it.
func (s *Server) now() fleet.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eng.Time(s.clock.Now())
}

// openBest reads the tickets that a request brings for a room and returns the
// best, the zero Ticket for none. Those of the Vestibule-Ticket header count
// where there is no cookie of the name; byHeader tells that the client goes by
// that header. unread tells that the visitor may have a better one, under a key
// that this node does not know: it must not be replaced.
func (s *Server) openBest(h http.Header, rs *roomSite, i int, sc *scratch) (best ticket.Ticket, byHeader, unread bool) {
	o := opening{s: s, rs: rs, i: i, sc: sc}
	for _, header := range h["Cookie"] {
		for value := range ticket.Values(header, rs.cookie[i]) {
			if !o.try(value) {
				break
			}
		}
	}
	if lines, ok := h[ticketHeader]; ok && o.tried == 0 {
		byHeader = true
		for _, line := range lines {
			for pair := range strings.SplitSeq(line, ",") {
				name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
				if name == rs.Name && !o.try(value) {
					break
				}
			}
		}
	}
	if o.tried == 0 {
		s.metrics.ticketCount[ticketNone].Inc()
	}
	unread = o.newer && s.mayLackKeys(rs.codec[i]) && (o.best.Epoch != rs.Epoch || !o.best.Valid(s.now()))
	return o.best, byHeader, unread
}

// mayLackKeys reports whether there may be tickets under keys that this node has not
// heard of: its ring is old enough, and the store has not just confirmed it.
func (s *Server) mayLackKeys(c *ticket.Codec) bool {
	if mutant.On(mutant.UnknownKeyOverwritten) {
		return false
	}
	return (!s.told.Load() || c.Behind(s.now())) && !s.fleet.KeysAreNewest()
}

// opening looks for the best ticket of one request.
type opening struct {
	s     *Server
	rs    *roomSite
	i     int
	sc    *scratch
	best  ticket.Ticket
	tried int
	newer bool // there is one under a key newer than ours
	now   fleet.Time
}

// try opens one more value. It reports false where enough were tried.
func (o *opening) try(value string) bool {
	if o.tried++; o.tried > ticket.MaxRead {
		return false
	}
	var t ticket.Ticket
	err := o.rs.codec[o.i].Open(&t, value, o.sc.ticket)
	o.s.metrics.ticketCount[ticketKind(err)].Inc()
	if err != nil && mutant.On(mutant.BadCookieAdmits) {
		o.best = ticket.Ticket{ID: 1, Epoch: o.rs.Epoch, Admitted: 1, Until: math.MaxUint32}
		return false
	}
	if err != nil {
		o.newer = o.newer || errors.Is(err, ticket.ErrKey)
		return true
	}
	best := &o.best
	if best.ID != 0 && o.now == 0 {
		o.now = o.s.now()
	}
	// One of an earlier epoch is worth nothing, whatever it holds.
	if current := t.Epoch == o.rs.Epoch; best.ID != 0 && current != (best.Epoch == o.rs.Epoch) {
		if current {
			*best = t
		}
		return true
	}
	if ticket.Better(&t, best, o.now) {
		*best = t
	}
	return true
}

func ticketKind(err error) int {
	switch {
	case err == nil:
		return ticketOK
	case errors.Is(err, ticket.ErrKey):
		return ticketKey
	case errors.Is(err, ticket.ErrOldKey):
		return ticketOldKey
	case errors.Is(err, ticket.ErrSeal):
		return ticketSeal
	}
	return ticketMalformed
}

// waitingAge is how long a browser keeps a waiting ticket; the place itself is
// kept for the grace only.
const waitingAge = 24 * 60 * 60

// appendCookie writes the Set-Cookie header of a ticket; nothing where the
// node has no key to seal with.
func appendCookie(dst []byte, rs *roomSite, i int, now fleet.Time, t *ticket.Ticket, sc *ticket.Scratch) []byte {
	dst = append(dst, rs.cookie[i]...)
	dst = append(dst, '=')
	n := len(dst)
	// A first key that is stamped a little ahead of our clock seals all the same:
	// a visitor whose slot is charged must not go without a ticket.
	if dst = rs.codec[i].Seal(dst, max(now, rs.sealFrom), t, sc); len(dst) == n {
		return dst[:0]
	}
	age := int64(waitingAge)
	if t.IsAdmitted() {
		age = max(1, int64(t.Until)-now.Second())
	}
	dst = append(dst, "; Path=/; Max-Age="...)
	dst = strconv.AppendInt(dst, age, 10)
	dst = append(dst, "; HttpOnly; SameSite=Lax"...)
	if i == 1 {
		dst = append(dst, "; Secure"...)
	}
	return dst
}

// hold keeps the request open until a right comes, the engine's patience ends
// or the visitor leaves.
func (s *Server) hold(ctx context.Context, rs *roomSite, client netip.Addr, brought ticket.Ticket, d admission.Decision) admission.Decision {
	release, ok := s.clients.hold(client)
	if !ok {
		// Retry told how long to hold; a poll is what is asked for now, and not
		// by everybody in the same moment.
		near := s.params.Nearest
		d.Verdict, d.Reason, d.Retry = admission.Queue, admission.Crowded, near+rand.N(near)
		return d
	}
	defer release()
	done := make(chan struct{})
	v := &admission.Visit{Room: rs.ID, Ticket: d.Ticket, Brought: brought, Data: done}
	start := s.park(v)
	s.wake()

	timer := time.NewTimer(d.Retry)
	defer timer.Stop()
	outcome, end := "queued", (*admission.Engine).GiveUp
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
		outcome, end = "left", (*admission.Engine).Abandon
	}
	now, gaveUp := s.endHold(v, end)
	if !gaveUp {
		<-done // Release has taken it; the channel is closed or about to be
		if v.Decision.Enters() {
			outcome = "admitted"
		}
	}
	s.metrics.knocks.WithLabelValues(outcome).Inc()
	s.metrics.holds.Observe(now.Sub(start).Seconds())
	return v.Decision
}

// park hands a visit to the engine, and answers those that may enter by it.
func (s *Server) park(v *admission.Visit) fleet.Mono {
	now := s.lock()
	defer s.mu.Unlock()
	s.eng.Hold(now, v)
	for _, o := range s.eng.Release(now, nil) {
		close(o.Data.(chan struct{}))
	}
	return now
}

// endHold takes a visit back from the engine.
func (s *Server) endHold(v *admission.Visit, end func(*admission.Engine, fleet.Mono, *admission.Visit) bool) (fleet.Mono, bool) {
	now := s.lock()
	defer s.mu.Unlock()
	return now, end(s.eng, now, v)
}

func tlsConfig(c *certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}}
}

var _ http.Handler = (*Server)(nil)
