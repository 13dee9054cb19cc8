package room

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
	"time"
)

// Bounds of [Settings].
const (
	MaxName      = 64        // bytes of a room's name
	MaxRoutes    = 64        // additional routes of one room
	MaxRate      = 1<<31 - 1 // of TotalActiveUsers and of NewUsersPerMinute
	MaxPageName  = 128       // bytes of a waiting page's name
	MaxPageBytes = 1 << 20   // of a waiting page
	MaxMessage   = 1000      // bytes of a message to waiting visitors, and of a description
	MaxSuffix    = 32        // bytes of a cookie's suffix
	MaxOrigins   = 32        // in a list of origins
	MinSession   = 5 * time.Second
	MaxSession   = time.Hour
	MinProbation = 10 * time.Second
	MaxProbation = time.Hour
	MinClaim     = time.Minute
	MaxClaim     = time.Hour
	MinGrace     = 10 * time.Second // a reload over a slow network takes seconds
	MaxGrace     = time.Hour        // a returning visitor passes all visitors that waited meanwhile
	MinLost      = time.Minute      // not below the lease of a data centre
	MaxLost      = 24 * time.Hour
)

// The values of [Settings.PartitionPolicy].
const (
	PolicyServe = "serve" // sessions continue, even if migrating sessions make them exceed T
	PolicyCap   = "cap"   // T always holds, even if sessions end early
)

// The values of [Settings.OnIsolation].
const (
	IsolationHold   = "hold"   // new visitors wait
	IsolationOpen   = "open"   // new visitors enter without a permit, up to a limit
	IsolationClosed = "closed" // new visitors are asked to come back later
)

// The values of [Settings.TicketBinding].
const (
	BindingNone    = "none"    // a session's ticket is valid everywhere
	BindingNetwork = "network" // valid in the network in which the session began
	BindingStrict  = "strict"  // valid at the address at which the session began
)

// The values of [Settings.Preflights].
const (
	PreflightsSite = "site" // the site is asked, for its headers only
	PreflightsEdge = "edge" // the edge answers by itself
)

// The values of [Settings.Caching].
const (
	CachingPrivate = "private" // no shared cache keeps answers to admitted visitors
	CachingSite    = "site"    // the site decides
)

// The values of [Settings.OriginReuse].
const (
	ReuseAuto  = "auto"  // a connection to the site is kept for the next visitor
	ReuseNever = "never" // a connection serves one request
)

// The values of [Settings.LongConnections].
const (
	LongEnd   = "end"   // a websocket ends with the session that admitted it
	LongRenew = "renew" // data of its visitor renews the session
)

// The values of [Settings.QueueingMethod].
const (
	MethodFIFO        = "fifo"        // in the order of joining
	MethodRandom      = "random"      // each waiting visitor is next with the same probability
	MethodPassthrough = "passthrough" // everybody enters at once; sessions are counted, and no limit binds
	MethodReject      = "reject"      // no new visitor enters or waits
)

// The values of [Settings.CookieSameSite] and [Settings.CookieSecure].
const (
	CookieAuto   = "auto" // SameSite=None and Secure over TLS, SameSite=Lax without
	CookieLax    = "lax"
	CookieNone   = "none"
	CookieStrict = "strict"
	CookieAlways = "always"
	CookieNever  = "never"
)

// FramedByNone is the value of [Settings.FrameAncestors] other than a list of origins.
const FramedByNone = "none"

// CommandRevoke is the value of [Settings.OriginCommands] other than "".
const CommandRevoke = "revoke"

// The defaults of [Settings.WithDefaults].
const (
	DefaultPath            = "/"
	DefaultSession         = 5 * time.Minute
	DefaultQueueingStatus  = 200
	DefaultLanguage        = "en-US"
	DefaultPolicy          = PolicyServe
	DefaultProbation       = time.Minute
	DefaultGrace           = 5 * time.Minute
	DefaultClaim           = 10 * time.Minute
	DefaultLost            = 15 * time.Minute
	DefaultIsolation       = IsolationHold
	DefaultBinding         = BindingNone
	DefaultPreflights      = PreflightsSite
	DefaultPreflightRate   = 120
	DefaultTurnstile       = "invisible"
	DefaultTurnstileAction = "log"
	DefaultCaching         = CachingPrivate
	DefaultMethod          = MethodFIFO
	DefaultReuse           = ReuseAuto
	DefaultLong            = LongEnd
)

// ID identifies a room on the wire and in tickets. It is a hash of the room's name, or its former name, so it survives
// the loss of every store.
type ID uint64

// TicketName returns the room's name in tickets and cookies: its name, or the name before it was renamed.
func (s *Settings) TicketName() string {
	if s.Identity != "" {
		return s.Identity
	}
	return s.Name
}

// PublicID returns the API's id of the room known by a name: 32 hexadecimal digits. The first 16 are its [ID].
func PublicID(known string) string {
	sum := sha256.Sum256([]byte(known))
	return hex.EncodeToString(sum[:16])
}

// IDOf returns the ID of the room known by a name: the first eight bytes of the SHA-256 of the name.
func IDOf(name string) ID {
	sum := sha256.Sum256([]byte(name))
	return ID(binary.BigEndian.Uint64(sum[:8]))
}

// Settings are an operator's settings of one room. [Schema] documents each field and its range; the zero value of a
// field with a default means the default.
type Settings struct {
	Name              string
	Host              string
	Path              string
	AdditionalRoutes  []Route
	TotalActiveUsers  int // T
	NewUsersPerMinute int // R
	SessionDuration   time.Duration
	Probation         time.Duration
	Grace             time.Duration
	PartitionPolicy   string
	LostAfter         time.Duration
	OnIsolation       string
	IsolationLimit    int
	Origin            string
	QueueingStatus    int
	WaitingPage       string
	DefaultLanguage   string
	QueueMessage      string
	Epoch             uint32
	TicketBinding     string
	CORSOrigins       string
	Preflights        string
	PreflightRate     int
	PreflightsEach    int
	CookieDomain      string
	Caching           string
	Identity          string
	PageSources       string
	Description       string
	QueueingMethod    string
	QueueAll          bool
	Suspended         bool
	NoRenewal         bool
	CookieSuffix      string
	CookieSameSite    string
	CookieSecure      string
	CookiePartitioned bool
	FrameAncestors    string
	JSONResponse      bool
	OriginCommands    string
	Methods           string
	OriginReuse       string
	LongConnections   string
	WebPush           bool
	Claim             time.Duration
	TurnstileMode     string
	TurnstileAction   string
	Rules             []Rule
	Events            []Event
}

// Route is one host and path that a room covers. The path "/sale" covers "/sale" and everything below it, not
// "/sales"; "/sale/" is the same.
type Route struct {
	Host string // bare name or IP address, no scheme, no port, no wildcard
	Path string // "" means "/"
}

// routes returns every route of the room, its own first.
func (s *Settings) routes() []Route {
	all := make([]Route, 0, 1+len(s.AdditionalRoutes))
	all = append(all, Route{Host: s.Host, Path: s.Path})
	return append(all, s.AdditionalRoutes...)
}

// Values of settings of the hosted product that are kept and have no effect.
var (
	TurnstileModes   = []string{"off", DefaultTurnstile, "visible_non_interactive", "visible_managed"}
	TurnstileActions = []string{DefaultTurnstileAction, "infinite_queue"}
)

// controlledID returns the ID contained in a room's id in the API.
func controlledID(public string) (ID, error) {
	n, err := strconv.ParseUint(public[:min(16, len(public))], 16, 64)
	if err != nil || len(public) != 32 {
		return 0, errors.New("an id must be 32 hexadecimal digits")
	}
	return ID(n), nil
}

// limitTo lowers the limits to those of o.
func (s *Settings) limitTo(o *Settings) {
	s.TotalActiveUsers = min(s.TotalActiveUsers, o.TotalActiveUsers)
	s.NewUsersPerMinute = min(s.NewUsersPerMinute, o.NewUsersPerMinute)
}
