package edge

import (
	"net/http"
	"net/url"
	"strings"

	"vestibule/internal/room"
	"vestibule/internal/ticket"
	"vestibule/internal/waiting"
)

// leavePath is where a visitor gives up a session or a place in the line: POST,
// with ?room=NAME where the host has several rooms.
const leavePath = "/.well-known/vestibule/leave"

// stay is one visitor inside of one room.
type stay struct {
	room   room.ID
	ticket ticket.Ticket
}

// leave ends what the visitor's tickets hold and takes them back. Saying it
// again changes nothing. Another site cannot make a visitor say it.
func (s *Server) leave(w http.ResponseWriter, r *http.Request, site *site, query string) {
	values, ok := s.ownPage(w, r, site, query, http.MethodPost)
	if !ok {
		return
	}
	h := w.Header()
	s.hurryBody(w, r)
	_, secure := s.clients.origin(r)
	sc := s.scratch.Get().(*scratch)
	defer s.scratch.Put(sc)
	var left, unread *roomSite // of the rooms that were left or named, and that could not be, the first
	for _, rs := range site.rooms {
		if name := values.Get("room"); name != "" && rs.Name != name {
			continue
		}
		i := index(secure)
		cookie := brings(r.Header, rs.cookie[i])
		if left == nil && (cookie || values.Get("room") != "") {
			left = rs
		}
		if !cookie && r.Header[ticketHeader] == nil {
			continue
		}
		t, _, keep := s.openBest(r.Header, rs, i, sc)
		if keep {
			if unread == nil {
				unread = rs
			}
			continue
		}
		if t.ID != 0 {
			s.quit(stay{rs.ID, t})
		}
		if cookie {
			gone := rs.cookie[i] + "=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
			if secure {
				gone += "; Secure"
			}
			h.Add("Set-Cookie", gone)
		}
	}
	if unread != nil {
		s.showMoment(w, r, unread, sc, "ticket_unread")
		return
	}
	s.metrics.requests.WithLabelValues("left").Inc()
	if left != nil && wantsWords(r.Header["Accept"]) {
		s.show(w, r, left, sc, http.StatusOK, &waiting.Visitor{Left: true, Now: s.now()})
		return
	}
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// brings reports whether a request has a cookie of this name.
func brings(h http.Header, name string) bool {
	for _, header := range h["Cookie"] {
		for range ticket.Values(header, name) {
			return true
		}
	}
	return false
}

// wantsWords reports whether somebody reads what becomes of a request: a person
// who sent the page's form, or an app that asks for JSON. A beacon does not.
func wantsWords(accept []string) bool {
	for _, a := range accept {
		if strings.Contains(a, "text/html") || strings.Contains(a, "application/json") {
			return true
		}
	}
	return false
}

// ownPage refuses what is not a word of this site's own page to the edge itself, by
// the given method, and returns what it says. A room that it names is there.
func (s *Server) ownPage(w http.ResponseWriter, r *http.Request, site *site, query, method string) (values url.Values, ok bool) {
	takes, says := "Leaving takes a POST.", "say that somebody leaves"
	if method == http.MethodGet {
		takes, says = "Events take a GET without a body.", "listen"
	}
	switch m := site.set.Match(r.Host, "/"); {
	case !m.Known:
		s.refuse(w, r, "unknown_host", "This host is not served here.", http.StatusMisdirectedRequest)
		return nil, false
	case r.Method != method || (method == http.MethodGet && hasBody(r)):
		w.Header().Set("Allow", method)
		s.refuse(w, r, "refused_method", takes, http.StatusMethodNotAllowed)
		return nil, false
	case !sameOrigin(r):
		s.refuse(w, r, "refused_origin", "Only this site's own pages may "+says+".", http.StatusForbidden)
		return nil, false
	}
	values, err := url.ParseQuery(query)
	name := values.Get("room")
	if err != nil || ((name != "" || method == http.MethodGet) && site.set.ByName(name) == nil) {
		s.refuse(w, r, "unknown_room", "room: must name a room.", http.StatusNotFound)
		return nil, false
	}
	return values, true
}

// sameOrigin reports whether a request comes from a page of the host that it asks
// (browsers say so), or from no page at all.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// quit ends one stay.
func (s *Server) quit(st stay) {
	ended, hurry := s.end(st)
	s.streams.over(place{st.room, st.ticket.ID})
	if ended {
		s.metrics.quits.Inc()
		if hurry {
			s.wake()
		}
	}
}

func (s *Server) end(st stay) (ended, hurry bool) {
	now := s.lock()
	defer s.mu.Unlock()
	return s.eng.Quit(now, st.room, st.ticket), s.eng.Due() <= now
}

// revoke ends stays because the origin asks for it.
func (s *Server) revoke(stays []stay) {
	for _, st := range stays {
		s.quit(st)
	}
}
