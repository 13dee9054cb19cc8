package gate

import (
	"encoding/json"
	"log/slog"
	"net/url"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/proof"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/origin"
)

// ProofHeader carries a proof to a site, and from a site to [VerifyPath]. It is removed from requests of visitors
// and from responses of sites.
const ProofHeader = "Vestibule-Proof"

const (
	// KeysPath returns the public keys of proofs to sites: GET.
	KeysPath = "/.well-known/vestibule/jwks.json"

	// VerifyPath checks a proof for a site: GET, with the proof in [ProofHeader], and optionally ?room=NAME and
	// ?audience=ORIGIN.
	VerifyPath = "/.well-known/vestibule/verify"
)

// keysFor is how long sites may cache the keys: less than the time from a key's publication to its first use
// ([ticket.MinRotation]).
const keysFor = "public, max-age=300"

// proofs makes the proofs of one ring and caches recent ones: signing takes longer than deciding. It is safe for
// concurrent use.
type proofs struct {
	keys *proof.Keys

	mu   sync.Mutex
	made *simplelru.LRU[proofOf, madeProof]
}

// proofOf is the cache key of a proof. A renewed session gets a new one.
type proofOf struct {
	origin *origin.Origin
	room   room.ID // 0 outside of all rooms
	ticket uint64
	until  uint32
	epoch  uint32
}

type madeProof struct {
	text string
	till fleettime.Time // reused until then
}

// takeProofs sets the snapshot's proof keys. It keeps those of the old snapshot if the ring is the same.
func (s *snapshot) takeProofs(old *snapshot, remembered int, log *slog.Logger) {
	if remembered == 0 || !s.keys {
		return
	}
	if old.proofs != nil && slices.Equal(old.ring.Keys, s.ring.Keys) {
		s.proofs = old.proofs
		return
	}
	var err error
	if s.proofs, err = newProofs(s.ring, remembered); err != nil {
		log.Error("keys cannot be used", slog.Any("error", err))
		s.ready = false
	}
}

func newProofs(ring ticket.Keyring, remembered int) (*proofs, error) {
	keys, err := proof.NewKeys(ring)
	if err != nil {
		return nil, err
	}
	made, err := simplelru.NewLRU[proofOf, madeProof](remembered, nil)
	if err != nil {
		return nil, err
	}
	return &proofs{keys: keys, made: made}, nil
}

// Proof returns the proof for the site that this entering request passed an edge, or "" if proofs are disabled.
func (o *Outcome) Proof() string {
	rooms := o.gate.rooms.Load()
	p := rooms.proofs
	if p == nil || o.Kind != Enters {
		return ""
	}
	of, now := proofOf{origin: o.Origin}, o.decided
	var t *ticket.Ticket
	if len(o.inside) > 0 {
		st := &o.inside[0]
		t = &st.Ticket
		of.room, of.ticket, of.until, of.epoch = st.Room, t.ID, t.Until, t.Epoch
	} else {
		now = o.gate.Engine.now()
	}
	p.mu.Lock()
	m, ok := p.made.Get(of)
	p.mu.Unlock()
	if ok && now < m.till {
		return m.text
	}
	text, err := rooms.makeProof(of, t, now)
	if err != nil {
		o.gate.log.Error("no proof for the site", slog.Any("error", err))
	}
	return text
}

// makeProof makes a proof and caches it.
func (s *snapshot) makeProof(of proofOf, t *ticket.Ticket, now fleettime.Time) (string, error) {
	now = max(now, s.ring.Keys[0].SealFrom) // the first key may begin slightly in the future
	audience := of.origin.URL.String()
	var text string
	var c proof.Claims
	var err error
	if t == nil {
		text, c, err = s.proofs.keys.Outside(now, audience)
	} else {
		rm := s.set.ByID(of.room)
		if rm == nil { // removed since the decision
			return "", nil
		}
		text, c, err = s.proofs.keys.Inside(now, audience, rm, t)
	}
	if err != nil {
		return "", err
	}
	m := madeProof{text, fleettime.Time(c.Expires * 1000)}
	if t == nil || c.Expires < int64(t.Until) {
		m.till = m.till.Add(-proof.Life / 5) // leave the site some time to use it
	}
	s.proofs.mu.Lock()
	s.proofs.made.Add(of, m)
	s.proofs.mu.Unlock()
	return text, nil
}

// asksForProof rejects requests that are no site's question about proofs.
func (p *ownPages) asksForProof(r *Request, o *Outcome, rooms *snapshot) bool {
	if rooms.proofs == nil {
		o.Refuse("no_proofs", "This edge makes no proofs: proof.enabled.", statusNotFound)
		return false
	}
	return r.reads(o)
}

// publishKeys answers with the public keys of proofs.
func (p *ownPages) publishKeys(r *Request, o *Outcome, rooms *snapshot, _ string) {
	if !p.asksForProof(r, o, rooms) {
		return
	}
	p.engine.metrics.count("proof_keys")
	o.says(statusOK, "application/jwk-set+json", keysFor)
	o.Body = append(o.Body[:0], rooms.proofs.keys.Set()...)
}

// verdict is the answer to a site about a proof.
type verdict struct {
	Passed   bool   `json:"passed"` // the request passed an edge, as the site expects
	Inside   bool   `json:"inside"` // in a session that is still valid
	Reason   string `json:"reason,omitempty"`
	Audience string `json:"audience,omitempty"`
	Room     string `json:"room,omitempty"`
	Ticket   string `json:"ticket,omitempty"`
	Admitted int64  `json:"admitted,omitempty"`
	Expires  int64  `json:"expires,omitempty"`
}

// verify answers a site whether the session of a proof is valid: 200, or 403.
func (p *ownPages) verify(r *Request, o *Outcome, rooms *snapshot, query string) {
	if !p.asksForProof(r, o, rooms) {
		return
	}
	v := p.judge(r, rooms, query)
	why, status := "verified", statusOK
	if !v.Passed {
		why, status = "unverified", statusForbidden
	}
	p.engine.metrics.count(why)
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and Booleans only
	}
	o.Body = append(o.Body[:0], data...)
	o.says(status, "application/json", "no-store")
}

func (p *ownPages) judge(r *Request, rooms *snapshot, query string) verdict {
	values, err := url.ParseQuery(query)
	if err != nil || len(values["room"]) > 1 || len(values["audience"]) > 1 {
		return verdict{Reason: "room, audience: must be given once at most"}
	}
	if len(r.Proofs) != 1 {
		return verdict{Reason: "one " + ProofHeader + " must be given"}
	}
	c, t, err := rooms.proofs.keys.Check(p.engine.now(), r.Proofs[0])
	switch {
	case err != nil:
		return verdict{Reason: err.Error()}
	case values.Has("audience") && c.Audience != values.Get("audience"):
		return verdict{Reason: "for another audience"}
	case values.Has("room") && c.Room != values.Get("room"):
		return verdict{Reason: "of another room"}
	}
	v := verdict{
		Passed: true, Audience: c.Audience, Room: c.Room, Ticket: c.Subject, Admitted: c.Admitted, Expires: c.Expires,
	}
	if c.Room == "" {
		return v
	}
	rm, ended := rooms.set.ByName(c.Room), true
	if rm != nil && rm.Epoch == c.Epoch {
		p.engine.With(func(_ fleettime.Mono, eng *admission.Engine) { ended = eng.Rooms.Ended(rm.ID, t) == wire.Left })
	}
	if ended {
		return verdict{Reason: "the session has ended"}
	}
	v.Inside = true
	return v
}
