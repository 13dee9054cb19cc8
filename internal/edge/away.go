package edge

import (
	"net/http"
	"strconv"

	"vestibule/internal/ticket"
)

// awayPath is where a waiting page says that it goes away: POST, with ?room=NAME
// where the host has several rooms, and answer=N as the page was told. The visitor
// keeps the place, and is counted no more until the next question.
const awayPath = "/.well-known/vestibule/away"

func (s *Server) away(w http.ResponseWriter, r *http.Request, site *site, query string) {
	values, ok := s.ownPage(w, r, site, query, http.MethodPost)
	if !ok {
		return
	}
	answer, err := strconv.ParseUint(values.Get("answer"), 10, 8)
	if err != nil && values.Has("answer") {
		s.refuse(w, r, "refused_away", "answer: must be 0 to 255.", http.StatusBadRequest)
		return
	}
	s.hurryBody(w, r)
	_, secure := s.clients.origin(r)
	sc := s.scratch.Get().(*scratch)
	defer s.scratch.Put(sc)
	result := "away_stale"
	for _, rs := range site.rooms {
		i := index(secure)
		if name := values.Get("room"); (name != "" && rs.Name != name) || (!brings(r.Header, rs.cookie[i]) && r.Header[ticketHeader] == nil) {
			continue
		}
		t, _, _ := s.openBest(r.Header, rs, i, sc)
		page := uint8(answer)
		if !values.Has("answer") { // who has one page only need not say which
			page = t.Answer
		}
		if s.goAway(rs, &t, page) {
			// Another page of this visitor is to say that it is still there.
			s.streams.over(place{rs.ID, t.ID})
			result = "away"
		}
	}
	s.metrics.requests.WithLabelValues(result).Inc()
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// goAway tells the engine, and has the regional hear of it soon.
func (s *Server) goAway(rs *roomSite, t *ticket.Ticket, answer uint8) bool {
	now := s.lock()
	gone := s.eng.Away(now, rs.ID, *t, answer)
	hurry := s.eng.Due() <= now
	s.mu.Unlock()
	if gone && hurry {
		s.wake()
	}
	return gone
}
