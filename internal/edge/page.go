package edge

import (
	crand "crypto/rand"
	"encoding/base64"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"vestibule/internal/room"
	"vestibule/internal/waiting"
)

const (
	// ticketHeader carries tickets of clients that keep no cookies, in both
	// directions, as name=ticket. A client that sends it without a ticket, with
	// any value, gets one. It never carries what a browser holds in a cookie,
	// which scripts of the site are not to read.
	ticketHeader = "Vestibule-Ticket"

	// pollHeader marks the question of a waiting page for news. It never reaches
	// an origin.
	pollHeader = "Vestibule-Poll"

	// newsReload tells a page to ask for itself: it has no ticket.
	newsReload = "reload"
)

// show answers with the waiting page, or with the same as JSON.
func (s *Server) show(w http.ResponseWriter, r *http.Request, rs *roomSite, sc *scratch, status int, v *waiting.Visitor) {
	v.Room, v.Message = rs.Name, rs.QueueMessage
	page := rs.page
	if !v.Moment {
		v.Grace = rs.Grace
	} else if page.IsCustom() { // it knows no state but that of people with a place
		page = waiting.Builtin()
	}
	v.Lang = s.langs.Pick(r.Header.Get("Accept-Language"), rs.lang)
	v.Back = rejoin(rs.Room, r.Host)
	h := w.Header()
	retry := ""
	if n := v.Retry(); n > 0 {
		retry = strconv.FormatInt(n, 10)
		h.Set("Retry-After", retry)
	}
	if waiting.PrefersJSON(r.Header["Accept"]) {
		h.Set("Content-Type", "application/json")
		sc.page = waiting.AppendJSON(sc.page[:0], v)
	} else {
		if page.IsCustom() {
			v.Nonce = nonce()
			if retry != "" {
				h.Set("Refresh", retry) // the built-in page knows by itself
			}
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Language", v.Lang.Code())
		h.Set("Content-Security-Policy", page.Policy(v.Nonce))
		sc.page = page.Render(sc.page[:0], v)
	}
	s.answer(w, r, status, sc.page)
}

// showMoment asks a visitor to come back in a moment, because this edge cannot tell
// which place the visitor has, or give one that is kept. Nothing is counted, and no
// ticket is given or taken back.
func (s *Server) showMoment(w http.ResponseWriter, r *http.Request, rs *roomSite, sc *scratch, why string) {
	s.metrics.requests.WithLabelValues(why).Inc()
	near := s.params.Nearest
	v := &waiting.Visitor{Moment: true, Now: s.now()}
	v.Decision.Retry = near + rand.N(near) // not everybody at once
	s.show(w, r, rs, sc, http.StatusServiceUnavailable, v)
}

// news answers a waiting page to which there is no more to tell than what to do.
func (s *Server) news(w http.ResponseWriter, r *http.Request, state string) {
	w.Header().Set("Content-Type", "application/json")
	s.answer(w, r, http.StatusOK, waiting.AppendNews(nil, state))
}

// answer writes what the edge itself has to say to a visitor.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	s.hurryBody(w, r)
	h := w.Header()
	h.Set("Cache-Control", "private, no-store")
	h.Set("Vary", "Accept, Accept-Language")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	if _, err := w.Write(body); err != nil {
		s.log.Debug("answer to a visitor not written", slog.Any("error", err))
	}
}

// nonce returns a word that nobody can guess, for one answer.
func nonce() string {
	var b [16]byte
	if _, err := crand.Read(b[:]); err != nil {
		panic(err) // documented never to happen
	}
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// rejoin returns the path under which a room is reached on a host.
func rejoin(r *room.Room, rawHost string) string {
	if host, ok := room.CanonicalHost(rawHost); ok && host != r.Host {
		for _, route := range r.AdditionalRoutes {
			if route.Host == host {
				return route.Path
			}
		}
	}
	return r.Path
}

// ticketOf returns the ticket in a Set-Cookie line as ticketHeader has it.
func ticketOf(rs *roomSite, i int, cookie string) string {
	value, _, _ := strings.Cut(cookie[len(rs.cookie[i])+1:], ";")
	return rs.Name + "=" + value
}
