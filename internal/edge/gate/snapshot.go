package gate

import (
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/origin"
	"vestibule/internal/node"
	"vestibule/internal/page"
)

// snapshot is all input of decisions, rebuilt with every change of rooms or keys and swapped atomically. It is
// immutable.
type snapshot struct {
	set     *room.Set
	ring    ticket.Keyring
	keys    bool // there are keys
	ready   bool // there are rooms and keys
	rooms   []*roomState
	origins map[string]*origin.Origin // by the text in the room set
	proofs  *proofs                   // nil if disabled

	compiled  map[string]*compiledRule // by expression
	deadRules int                      // rules that cannot be evaluated here

	notifies      *notifies   // nil without a secret
	keysAreNewest func() bool // the store has just confirmed the ring
}

type roomState struct {
	*room.Room
	cookie   [2]cookieNames // without and with TLS
	codec    [2]*ticket.Codec
	own      cookies // with cookie_domain: the per-host cookies from before it was set; read if the other is missing
	page     *page.Page
	origin   *origin.Origin
	lang     page.Lang // if the visitor's languages are not available
	counters *roomCounters
	traffic  *traffic
	readers  readers
	sealFrom fleettime.Time // start of the ring's first sealing key

	attributes [2]string // of the cookies by the settings; by index

	bypasses    []bypass
	needsPlaces bool // a rule uses the country

	notifies *notifies // nil if the room does not
}

// cookies are the names and codecs of a room's cookies, without and with TLS.
type cookies struct {
	cookie [2]cookieNames
	codec  [2]*ticket.Codec
}

// cookieNames are the names of a room's cookies by kind of ticket. The seals of both are bound to the name of the
// session's: a place that an earlier release stored there opens, and [TicketHeader] needs no other seal.
type cookieNames [kinds]string

func namesOf(session string) cookieNames {
	return cookieNames{
		kindSession: session, kindPlace: ticket.PlaceCookieName(session), kindPush: ticket.PushCookieName(session),
	}
}

// sameSite are the cookie attributes without and with Secure. Browsers reject None without Secure. A ticket authorizes
// nothing at the site, whose own cookies keep their attributes, so the default lets a return from a bank pass.
var sameSite = map[string][2]string{
	room.CookieAuto:   {"Lax", sameSiteNone},
	room.CookieLax:    {"Lax", "Lax"},
	room.CookieNone:   {"Lax", sameSiteNone},
	room.CookieStrict: {"Strict", "Strict"},
}

// sameSiteNone is the SameSite of cookies that browsers send with every request.
const sameSiteNone = "None"

// cookieAttributes returns the attributes of a room's cookies, without and with Secure.
func cookieAttributes(r *room.Room) [2]string {
	same := sameSite[r.CookieSameSite]
	secure := "; HttpOnly; SameSite=" + same[1] + "; Secure"
	if r.CookiePartitioned {
		secure += "; Partitioned"
	}
	return [2]string{"; HttpOnly; SameSite=" + same[0], secure}
}

// cookieOf returns the base of a room's cookie names.
func cookieOf(r *room.Room) string {
	if r.CookieSuffix != "" {
		return r.TicketName() + "." + r.CookieSuffix
	}
	return r.TicketName()
}

// newSnapshot builds a snapshot from the fleet's documents. It keeps the health of the old origins and, while the
// keys are the same, the codecs of the old rooms: deriving them takes longer than the rest.
func newSnapshot(f *node.Fleet, m *metrics, old *snapshot, log *slog.Logger) *snapshot {
	set, ring := f.Set(), f.Ring()
	keys := len(ring.Keys) > 0
	s := &snapshot{
		set: set, ring: ring, keys: keys, ready: set != nil && keys, origins: map[string]*origin.Origin{},
		keysAreNewest: f.KeysAreNewest,
	}
	s.notifies = old.notifies.of(ring.Push, log)
	known := map[string]*roomState{}
	if old.ready && slices.Equal(old.ring.Keys, ring.Keys) {
		for _, rs := range old.rooms {
			known[rs.Name] = rs
		}
	}
	for _, r := range set.Rooms() {
		rs := &roomState{
			Room: r, page: page.Builtin(), lang: page.LangOf(r.DefaultLanguage), counters: m.room(r.Name),
			traffic: m.traffics.of(r.ID), readers: newReaders(r.CORSOrigins), attributes: cookieAttributes(r),
		}
		if keys {
			rs.sealFrom = ring.Keys[0].SealFrom
		}
		if had := known[r.Name]; had != nil && (had.CookieDomain == "") == (r.CookieDomain == "") &&
			cookieOf(had.Room) == cookieOf(r) {
			rs.cookie, rs.codec, rs.own = had.cookie, had.codec, had.own
		} else if err := rs.deriveCodecs(ring); err != nil { // an invalid cipher key; decoding the ring rejects those
			log.Error("keys cannot be used", slog.String("room", r.Name), slog.Any("error", err))
			s.ready = false
		}
		if r.Notifies() {
			rs.notifies = s.notifies
		}
		if r.WaitingPage != "" {
			rs.page = customPage(f, r, log)
		}
		s.rooms = append(s.rooms, rs)
		rs.origin = s.addOrigin(r.Origin, old)
	}
	for _, text := range set.Origins() {
		s.addOrigin(text, old)
	}
	m.keep(set)
	m.traffics.keep(set)
	return s
}

// deriveCodecs makes the cookie names and codecs of the room. On an error they open nothing and cannot seal.
func (rm *roomState) deriveCodecs(ring ticket.Keyring) error {
	var errs []error
	for _, secure := range []bool{false, true} {
		i := index(secure)
		codec := func(cookie string) *ticket.Codec {
			c, err := ticket.NewCodec(ring, rm.ID, cookie)
			if err != nil {
				errs = append(errs, err)
				c = &ticket.Codec{}
			}
			return c
		}
		session := ticket.CookieName(cookieOf(rm.Room), secure)
		if rm.CookieDomain != "" {
			rm.own.cookie[i], rm.own.codec[i] = namesOf(session), codec(session)
			session = ticket.SharedCookieName(cookieOf(rm.Room), secure)
		}
		rm.cookie[i], rm.codec[i] = namesOf(session), codec(session)
	}
	return errors.Join(errs...)
}

// addOrigin returns an origin, reused from the old snapshot; nil for none.
func (s *snapshot) addOrigin(text string, old *snapshot) *origin.Origin {
	u, err := url.Parse(text)
	if err != nil || text == "" { // the room set was validated
		return nil
	}
	o := s.origins[text]
	if o == nil {
		o = old.origins[text]
	}
	if o == nil {
		o = origin.New(u)
	}
	s.origins[text] = o
	return o
}

// Origins returns all sites behind the gate.
func (g *Gate) Origins() []*origin.Origin {
	return slices.Collect(maps.Values(g.rooms.Load().origins))
}

// named returns the room of this name, nil for none.
func (s *snapshot) named(name string) *roomState {
	r := s.set.ByName(name)
	if r == nil {
		return nil
	}
	return s.rooms[r.Index]
}

// customPage returns the operator's page of a room, or the built-in one if it is missing or broken.
func customPage(f *node.Fleet, r *room.Room, log *slog.Logger) *page.Page {
	text := f.Page(r.WaitingPage)
	if text == nil {
		return page.Builtin()
	}
	p, err := page.Custom(text)
	if err != nil { // global checked it before publication
		log.Error("custom page refused, the built-in one is shown", slog.String("room", r.Name), slog.Any("error", err))
		return page.Builtin()
	}
	return p
}
