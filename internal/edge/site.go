package edge

import (
	"log/slog"
	"net/url"

	"vestibule/internal/fleet"
	"vestibule/internal/node"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
	"vestibule/internal/waiting"
)

// site is everything that a request is judged by, made anew with every change
// of rooms or keys and swapped in one step. It is immutable.
type site struct {
	set     *room.Set
	ready   bool // there are rooms and keys
	rooms   []*roomSite
	origins map[string]*pulse // by the text in the room set
}

// roomSite is one room of a site.
type roomSite struct {
	*room.Room
	cookie   [2]string // name without and with TLS
	codec    [2]*ticket.Codec
	page     *waiting.Page
	pulse    *pulse       // of its origin
	lang     waiting.Lang // for visitors who name no language that we have
	counters *roomCounters
	sealFrom fleet.Time // from when the ring has a key to seal with
}

// index picks between what is used without and with TLS.
func index(secure bool) int {
	if secure {
		return 1
	}
	return 0
}

// buildSite makes a site of what the fleet was told. Pages that were made for
// the site before are used again.
func buildSite(f *node.Fleet, m *metrics, old *site, log *slog.Logger) *site {
	set, ring := f.Set(), f.Ring()
	s := &site{set: set, ready: set != nil && len(ring.Keys) > 0, origins: map[string]*pulse{}}
	for _, r := range set.Rooms() {
		rs := &roomSite{Room: r, page: waiting.Builtin(), lang: waiting.LangOf(r.DefaultLanguage), counters: m.room(r.Name)}
		if len(ring.Keys) > 0 {
			rs.sealFrom = ring.Keys[0].SealFrom
		}
		for _, secure := range []bool{false, true} {
			i := index(secure)
			rs.cookie[i] = ticket.CookieName(r.Name, secure)
			codec, err := ticket.NewCodec(ring, r.ID, rs.cookie[i])
			if err != nil { // a key that no cipher takes; decoding the ring refuses those
				log.Error("keys cannot be used", slog.String("room", r.Name), slog.Any("error", err))
				s.ready = false
				codec = &ticket.Codec{}
			}
			rs.codec[i] = codec
		}
		if r.WaitingPage != "" {
			rs.page = customPage(f, r, log)
		}
		s.rooms = append(s.rooms, rs)
		rs.pulse = s.addOrigin(r.Origin, old)
	}
	for _, origin := range set.Origins() {
		s.addOrigin(origin, old)
	}
	m.keep(set)
	return s
}

// addOrigin returns the pulse of an origin, the same as in the site before; nil for
// none.
func (s *site) addOrigin(text string, old *site) *pulse {
	u, err := url.Parse(text)
	if err != nil || text == "" { // the room set was validated
		return nil
	}
	p := s.origins[text]
	if p == nil && old != nil {
		p = old.origins[text]
	}
	if p == nil {
		p = &pulse{url: u}
	}
	s.origins[text] = p
	return p
}

// customPage returns the operator's page of a room, or the built-in one where
// it is not here yet or broken.
func customPage(f *node.Fleet, r *room.Room, log *slog.Logger) *waiting.Page {
	text := f.Page(r.WaitingPage)
	if text == nil {
		return waiting.Builtin()
	}
	p, err := waiting.Custom(text)
	if err != nil { // global checked it before it published it
		log.Error("custom page refused, the built-in one is shown", slog.String("room", r.Name), slog.Any("error", err))
		return waiting.Builtin()
	}
	return p
}
