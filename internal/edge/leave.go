package edge

import (
	"net/http"
	"net/url"
	"strings"

	"vestibule/internal/room"
	"vestibule/internal/ticket"
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
	h := w.Header()
	switch m := site.set.Match(r.Host, "/"); {
	case !m.Known:
		s.refuse(w, r, "unknown_host", "This host is not served here.", http.StatusMisdirectedRequest)
		return
	case r.Method != http.MethodPost:
		h.Set("Allow", http.MethodPost)
		s.refuse(w, r, "refused_method", "Leaving takes a POST.", http.StatusMethodNotAllowed)
		return
	case !sameOrigin(r):
		s.refuse(w, r, "refused_origin", "Only this site's own pages may say that somebody leaves.", http.StatusForbidden)
		return
	}
	values, err := url.ParseQuery(query)
	if name := values.Get("room"); err != nil || (name != "" && site.set.ByName(name) == nil) {
		s.refuse(w, r, "unknown_room", "room: must name a room.", http.StatusNotFound)
		return
	}
	s.hurryBody(w, r)
	_, secure := s.clients.origin(r)
	sc := s.scratch.Get().(*scratch)
	defer s.scratch.Put(sc)
	for _, rs := range site.rooms {
		if name := values.Get("room"); name != "" && rs.Name != name {
			continue
		}
		i := index(secure)
		for _, header := range r.Header["Cookie"] {
			for range ticket.Values(header, rs.cookie[i]) {
				if t := s.openBest(r.Header["Cookie"], rs, i, sc); t.ID != 0 {
					s.quit(stay{rs.ID, t})
				}
				gone := rs.cookie[i] + "=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
				if secure {
					gone += "; Secure"
				}
				h.Add("Set-Cookie", gone)
				break
			}
		}
	}
	s.metrics.requests.WithLabelValues("left").Inc()
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
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
	if ended, hurry := s.end(st); ended {
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
