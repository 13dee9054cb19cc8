package room

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"reflect"
	"slices"
	"time"
)

// Bounds of what [Settings] may say.
const (
	MaxName      = 64        // bytes of a room's name
	MaxRoutes    = 64        // additional routes of one room
	MaxRate      = 1<<31 - 1 // of TotalActiveUsers and of NewUsersPerMinute
	MaxPageName  = 128       // bytes of a waiting page's name
	MaxPageBytes = 1 << 20   // of a waiting page
	MaxMessage   = 1000      // bytes of a message to those who wait, and of a description
	MaxSuffix    = 32        // bytes of a cookie's suffix
	MaxOrigins   = 32        // in a list of origins
	MinSession   = 5 * time.Second
	MaxSession   = time.Hour
	MinProbation = 10 * time.Second
	MaxProbation = time.Hour
	MinGrace     = 10 * time.Second // a reload over a slow network takes some
	MaxGrace     = time.Hour        // who comes back passes everybody who has waited meanwhile
	MinLost      = time.Minute      // not below the lease of a data centre
	MaxLost      = 24 * time.Hour
)

// What [Settings.PartitionPolicy] may be.
const (
	PolicyServe = "serve" // who is inside stays inside, even if T is exceeded by those who moved
	PolicyCap   = "cap"   // T holds always, even if sessions end early
)

// What [Settings.OnIsolation] may be.
const (
	IsolationHold   = "hold"   // newcomers wait
	IsolationOpen   = "open"   // they are let in without a right, up to a limit
	IsolationClosed = "closed" // they are told to come back later
)

// What [Settings.TicketBinding] may be.
const (
	BindingNone    = "none"    // a session's ticket is good wherever it is shown
	BindingNetwork = "network" // in the neighbourhood of addresses in which the session began
	BindingStrict  = "strict"  // at the address at which it began
)

// What [Settings.Preflights] may be.
const (
	PreflightsSite = "site" // the site is asked for its headers, and for nothing else
	PreflightsEdge = "edge" // the edge answers by itself
)

// What [Settings.Caching] may be.
const (
	CachingPrivate = "private" // no shared cache keeps what somebody inside was answered
	CachingSite    = "site"    // the site says
)

// What [Settings.QueueingMethod] may be.
const (
	MethodFIFO        = "fifo"        // who joined first enters first
	MethodRandom      = "random"      // whoever waits has the same chance to be next
	MethodPassthrough = "passthrough" // everybody enters at once; sessions are counted, and no limit binds
	MethodReject      = "reject"      // nobody new enters or waits
)

// What [Settings.CookieSameSite] and [Settings.CookieSecure] may be.
const (
	CookieAuto   = "auto" // SameSite=Lax; Secure over TLS
	CookieLax    = "lax"
	CookieNone   = "none"
	CookieStrict = "strict"
	CookieAlways = "always"
	CookieNever  = "never"
)

// FramedByNone is what [Settings.FrameAncestors] may be, beside origins.
const FramedByNone = "none"

// CommandRevoke is what [Settings.OriginCommands] may be, beside "".
const CommandRevoke = "revoke"

// What [Settings.WithDefaults] fills in.
const (
	DefaultPath           = "/"
	DefaultSession        = 5 * time.Minute
	DefaultQueueingStatus = 200
	DefaultLanguage       = "en-US"
	DefaultPolicy         = PolicyServe
	DefaultProbation      = time.Minute
	DefaultGrace          = 5 * time.Minute
	DefaultLost           = 15 * time.Minute
	DefaultIsolation      = IsolationHold
	DefaultBinding        = BindingNone
	DefaultPreflights     = PreflightsSite
	DefaultCaching        = CachingPrivate
	DefaultMethod         = MethodFIFO
)

// ID names a room on the wire and in tickets: a hash of its name, or of the one that it
// had, so that it survives the loss of every store.
type ID uint64

// Known returns the name by which tickets and cookies know the room: its name, or the one
// that it had before it was renamed.
func (s *Settings) Known() string {
	if s.Identity != "" {
		return s.Identity
	}
	return s.Name
}

// PublicID returns what the API calls the room known by a name: 32 hexadecimal digits, of
// which the first 16 are its [ID].
func PublicID(known string) string {
	sum := sha256.Sum256([]byte(known))
	return hex.EncodeToString(sum[:16])
}

// IDOf returns the ID of the room known by a name: the first eight bytes of the
// SHA-256 of the name.
func IDOf(name string) ID {
	sum := sha256.Sum256([]byte(name))
	return ID(binary.BigEndian.Uint64(sum[:8]))
}

// Route is one host and path that a room covers. The path "/sale" covers
// "/sale" and everything below it, not "/sales"; "/sale/" says the same.
type Route struct {
	Host string // bare name or IP address, no scheme, no port, no wildcard
	Path string // "" means "/"
}

// WithDefaults returns s with its defaults filled in and its hosts and origin
// in canonical spelling. What is not valid is left as it stands, for
// [Settings.Validate] to name. The result shares no memory with s.
func (s Settings) WithDefaults() Settings {
	for i := range Schema {
		Schema[i].fill(&s)
	}
	if s.Identity == s.Name {
		s.Identity = ""
	}
	s.Host = spellHost(s.Host)
	s.Origin = spellOrigin(s.Origin)
	s.AdditionalRoutes = slices.Clone(s.AdditionalRoutes)
	for i := range s.AdditionalRoutes {
		r := &s.AdditionalRoutes[i]
		if r.Path == "" {
			r.Path = DefaultPath
		}
		r.Host = spellHost(r.Host)
	}
	s.Rules = slices.Clone(s.Rules)
	for i := range s.Rules {
		s.Rules[i].fill(s.Rules[:i])
	}
	s.Events = slices.Clone(s.Events)
	for i := range s.Events {
		s.Events[i].fill(s.Events[:i])
	}
	return s
}

// routes returns every route of the room, its own first.
func (s *Settings) routes() []Route {
	all := make([]Route, 0, 1+len(s.AdditionalRoutes))
	all = append(all, Route{Host: s.Host, Path: s.Path})
	return append(all, s.AdditionalRoutes...)
}

// Equal reports whether s and o say the same once their defaults are filled in.
func (s Settings) Equal(o Settings) bool {
	s, o = s.WithDefaults(), o.WithDefaults()
	if !slices.Equal(s.AdditionalRoutes, o.AdditionalRoutes) {
		return false
	}
	if !slices.EqualFunc(s.Rules, o.Rules, Rule.same) || !slices.EqualFunc(s.Events, o.Events, Event.same) {
		return false
	}
	s.AdditionalRoutes, o.AdditionalRoutes = nil, nil // none and an empty list are the same
	s.Rules, o.Rules, s.Events, o.Events = nil, nil, nil, nil
	return reflect.DeepEqual(s, o)
}
