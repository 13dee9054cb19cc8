package room

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/room/match"
)

// Setting is one entry of [Schema], which determines the stored document, rooms.yaml, defaults, validation and the
// reference for operators.
type Setting struct {
	Key     string // in rooms.yaml and in documents
	Events  bool   // an event may override it; its Rule sees the room with all overrides of the event
	Default any    // of the field's type; nil if the zero value is valid
	Bounds  string // allowed values, as in "must be …"; "" if Rule tells more
	Doc     string // effect, in one or two sentences of Markdown

	// Field returns a pointer to the field of a room: a *string, *int, *uint32, *bool, *time.Duration, *[]Route,
	// *[]Rule or *[]Event. The default of a *bool is false. Events override no list.
	Field func(*Settings) any

	// Rule returns the violated rule, "" for none. Defaults are filled in before. Lists have checks of their own.
	Rule func(*Settings) string
}

// Schema lists a room's settings in the order in which they are documented, written and checked. To add one: a field
// in
// [Settings], an entry here, its effect, and a test of that. A default never changes, because documents leave it out.
var Schema = []Setting{
	text("name", func(s *Settings) *string { return &s.Name }, checkRoomName,
		"Part of the cookie's name. A renamed room is another room, unless `identity` has its old name.",
		fmt.Sprintf("1 to %d of A-Z a-z 0-9 _ -", MaxName)),
	text("host", func(s *Settings) *string { return &s.Host }, checkHost, "The host in the visitor's request.",
		"a bare name or an IP address: no scheme, no port, no wildcard"),
	{
		Key: "path", Default: "/", Doc: "Covers itself and everything below it: `/sale` covers `/sale/a` and not `/sales`.",
		Bounds: fmt.Sprintf("at most %d bytes that mean the same to every site", match.MaxPath),
		Field:  func(s *Settings) any { return &s.Path },
		Rule:   func(s *Settings) string { _, rule := match.Key(s.Path); return rule },
	},
	{
		Key: "additional_routes", Doc: "More `{host, path}` that the room covers.",
		Bounds: fmt.Sprintf("at most %d", MaxRoutes),
		Field:  func(s *Settings) any { return &s.AdditionalRoutes },
	},
	forEvents(whole("total_active_users", 1, MaxRate, func(s *Settings) *int { return &s.TotalActiveUsers },
		"T: valid sessions at any moment.")),
	forEvents(whole("new_users_per_minute", 1, MaxRate, func(s *Settings) *int { return &s.NewUsersPerMinute },
		"R: admissions in any 60 seconds.")),
	forEvents(duration("session_duration", MinSession, MaxSession, DefaultSession,
		func(s *Settings) *time.Duration { return &s.SessionDuration },
		"Length of a session after its visitor's last request.")),
	duration("probation", MinProbation, MaxProbation, DefaultProbation,
		func(s *Settings) *time.Duration { return &s.Probation },
		"Length of a session until its visitor's second request. "+
			"Set it to `session_duration` where visitors look at one page only."),
	duration("grace", MinGrace, MaxGrace, DefaultGrace, func(s *Settings) *time.Duration { return &s.Grace },
		"Time for which an absent visitor keeps the place in the line."),
	choice("partition_policy", DefaultPolicy, func(s *Settings) *string { return &s.PartitionPolicy },
		"Sessions at a node that is cut off ([Partitions](#partitions)).", PolicyServe, PolicyCap),
	duration("lost_after", MinLost, MaxLost, DefaultLost, func(s *Settings) *time.Duration { return &s.LostAfter },
		"Under `serve`, the permits of a node silent for this long, while others of its kind are heard, are granted again."),
	choice("on_isolation", DefaultIsolation, func(s *Settings) *string { return &s.OnIsolation },
		"Newcomers at an edge that is cut off ([Partitions](#partitions)).", IsolationHold, IsolationOpen, IsolationClosed),
	{
		Key: "isolation_limit", Doc: "Newcomers admitted per edge and isolation with `on_isolation: open`.",
		Bounds: fmt.Sprintf("0 to %d, at least 1 with open", MaxRate),
		Field:  func(s *Settings) any { return &s.IsolationLimit },
		Rule:   func(s *Settings) string { return checkIsolationLimit(s.IsolationLimit, s.OnIsolation) },
	},
	text("origin", func(s *Settings) *string { return &s.Origin }, CheckOrigin, "The site.",
		"an absolute http or https URL without a path"),
	{
		Key: "queueing_status_code", Default: DefaultQueueingStatus,
		Doc:    "HTTP status of the waiting page; 429 for [programs](#machines) where it is a success.",
		Bounds: "200, 202, 429 or 503", Field: func(s *Settings) any { return &s.QueueingStatus },
		Rule: func(s *Settings) string { return checkStatus(s.QueueingStatus) },
	},
	forEvents(text("waiting_page", func(s *Settings) *string { return &s.WaitingPage }, checkPageName,
		"A file beside the rooms file: a style for the built-in page, or a page of your own.", "a file name")),
	{
		Key: "default_template_language", Default: DefaultLanguage, Bounds: "a language of the page, see WAITING-PAGE.md",
		Doc:   "For browsers that ask for no language of the page.",
		Field: func(s *Settings) any { return &s.DefaultLanguage },
		Rule:  func(s *Settings) string { return checkOneOf(s.DefaultLanguage, Languages...) },
	},
	text("queue_message", func(s *Settings) *string { return &s.QueueMessage }, checkMessage,
		"The operator's message to visitors that wait.", fmt.Sprintf("at most %d bytes", MaxMessage)),
	{
		Key: "epoch", Doc: "Raise it to void every ticket of the room.", Bounds: "0 to 4294967295",
		Field: func(s *Settings) any { return &s.Epoch },
	},
	choice("ticket_binding", DefaultBinding, func(s *Settings) *string { return &s.TicketBinding },
		"Where a session's ticket is accepted ([Ticket binding](#ticket-binding)).", BindingNone, BindingNetwork,
		BindingStrict),
	text("cors_origins", func(s *Settings) *string { return &s.CORSOrigins }, checkCORSOrigins,
		"Pages that may read the edge's answers ([Other origins](#other-origins)).",
		fmt.Sprintf("`*`, or at most %d origins such as https://shop.example, with spaces between", MaxOrigins)),
	choice("preflights", DefaultPreflights, func(s *Settings) *string { return &s.Preflights },
		"Answers to preflights of other origins ([Other origins](#other-origins)).", PreflightsSite, PreflightsEdge),
	preflightRate("preflights_per_minute", func(s *Settings) *int { return &s.PreflightRate },
		"While the room has no space: preflights of an address (IPv4 /24, IPv6 /56) in a minute for which an edge asks the site."),
	preflightRate("preflights_per_session", func(s *Settings) *int { return &s.PreflightsEach },
		"As many more in a minute for each session seen from the address in the last ten minutes."),
	{
		Key: "cookie_domain", Bounds: "a domain in which all hosts of the room lie, and no public suffix such as co.uk",
		Doc:   "Domain of the ticket's cookie, so that all hosts of the room share one place ([Several hosts](#several-hosts)).",
		Field: func(s *Settings) any { return &s.CookieDomain }, Rule: checkCookieDomain,
	},
	choice("caching", DefaultCaching, func(s *Settings) *string { return &s.Caching },
		"`private`: the site's answers to visitors inside become `private`, so that no CDN serves them past the room; `site`: unchanged.",
		CachingPrivate, CachingSite),
	text("identity", func(s *Settings) *string { return &s.Identity }, checkIdentity,
		"Name of the room in tickets, cookies and the API where it differs from `name`: a renamed room with its old name here keeps sessions and places.",
		fmt.Sprintf("1 to %d of A-Z a-z 0-9 _ -", MaxName)),
	text("waiting_page_sources", func(s *Settings) *string { return &s.PageSources }, checkOrigins,
		"Further origins from which your own page may load scripts and fetch data.",
		fmt.Sprintf("at most %d origins such as https://cdn.example, with spaces between", MaxOrigins)),
	text("description", func(s *Settings) *string { return &s.Description }, checkMessage, "A note for operators.",
		fmt.Sprintf("at most %d bytes", MaxMessage)),
	forEvents(choice("queueing_method", DefaultMethod, func(s *Settings) *string { return &s.QueueingMethod },
		"Order of admission ([Methods](#methods)).", MethodFIFO, MethodRandom, MethodPassthrough, MethodReject)),
	truth("queue_all", func(s *Settings) *bool { return &s.QueueAll },
		"Everybody without a session waits ([Methods](#methods))."),
	truth("suspended", func(s *Settings) *bool { return &s.Suspended },
		"The room is off ([Methods](#methods))."),
	forEvents(truth("disable_session_renewal", func(s *Settings) *bool { return &s.NoRenewal },
		"A session ends `session_duration` after its admission; `probation` is not used.")),
	text("cookie_suffix", func(s *Settings) *string { return &s.CookieSuffix }, checkSuffix,
		"End of the cookie's name. A change makes everybody a newcomer.",
		fmt.Sprintf("at most %d of A-Z a-z 0-9 _ -", MaxSuffix)),
	{
		Key: "cookie_samesite", Default: CookieAuto,
		Bounds: alternatives([]string{CookieAuto, CookieLax, CookieNone, CookieStrict}),
		Doc:    "SameSite of the cookies ([Returns from other sites](#returns-from-other-sites)). `auto` is `none` where the cookies are Secure, else `lax`, because browsers refuse `none` there.",
		Field:  func(s *Settings) any { return &s.CookieSameSite }, Rule: checkSameSite,
	},
	choice("cookie_secure", CookieAuto, func(s *Settings) *string { return &s.CookieSecure },
		"Secure of the cookie. `auto`: where the request came over TLS. A change makes everybody a newcomer.", CookieAuto,
		CookieAlways, CookieNever),
	{
		Key: "cookie_partitioned", Bounds: "true or false, true only with `cookie_samesite: none`",
		Doc:   "Partitioned of the cookie, where it is Secure ([Frames](#frames)).",
		Field: func(s *Settings) any { return &s.CookiePartitioned }, Rule: checkPartitioned,
	},
	{
		Key:    "frame_ancestors",
		Bounds: fmt.Sprintf("`none`, or at most %d origins such as https://shop.example, with spaces between", MaxOrigins),
		Doc:    "Pages that may show the waiting page in a frame, beside its own origin ([Frames](#frames)).",
		Field:  func(s *Settings) any { return &s.FrameAncestors }, Rule: checkFrameAncestors,
	},
	truth("json_response_enabled", func(s *Settings) *bool { return &s.JSONResponse },
		"Programs that ask for JSON get `queueing_status_code` also if it is a success."),
	text("enabled_origin_commands", func(s *Settings) *string { return &s.OriginCommands }, checkCommands,
		"With `revoke`, `Cf-Waiting-Room-Command: revoke` of the site ends a session too.", "`revoke` or nothing"),
	text("methods", func(s *Settings) *string { return &s.Methods }, checkMethods,
		"Further methods that reach the site, such as `PURGE`, beside QUERY and those of IANA's registry.",
		fmt.Sprintf("at most %d of A-Z 0-9 - with spaces between, without CONNECT, TRACE and PRI", MaxMethods)),
	choice("origin_reuse", DefaultReuse, func(s *Settings) *string { return &s.OriginReuse },
		"Connections to the site: `auto` keeps them for the next visitor, except where a login is bound to one (NTLM, Negotiate); `never` opens one for each request, and passes every informational answer (103).",
		ReuseAuto, ReuseNever),
	choice("long_connections", DefaultLong, func(s *Settings) *string { return &s.LongConnections },
		"Websockets: `end` with their session, or `renew` it while their visitor sends data ([Long connections](#long-connections)).",
		LongEnd, LongRenew),
	truth("web_push", func(s *Settings) *bool { return &s.WebPush },
		"Visitors may ask to be told near their turn and at it ([Notifications](WAITING-PAGE.md#notifications)). `random` rooms do not."),
	duration("claim", MinClaim, MaxClaim, DefaultClaim, func(s *Settings) *time.Duration { return &s.Claim },
		"Time to come after the call, for a visitor with notifications and the page closed."),
	forEvents(choice("turnstile_mode", DefaultTurnstile, func(s *Settings) *string { return &s.TurnstileMode },
		"Kept for clients of the hosted product. It has no effect.", TurnstileModes...)),
	forEvents(choice("turnstile_action", DefaultTurnstileAction, func(s *Settings) *string { return &s.TurnstileAction },
		"Kept for clients of the hosted product. It has no effect.", TurnstileActions...)),
	{
		Key: "rules", Bounds: fmt.Sprintf("at most %d of `{expression, description, enabled, id}`", MaxRules),
		Doc:   "Requests that pass the room ([Rules](#rules)).",
		Field: func(s *Settings) any { return &s.Rules },
	},
	{
		Key: "events", Bounds: fmt.Sprintf("at most %d that do not overlap", MaxEvents),
		Doc:   "Times with other settings ([Events](#events)).",
		Field: func(s *Settings) any { return &s.Events },
	},
}

// preflightRate is a number of preflights in a minute.
func preflightRate(key string, field func(*Settings) *int, doc string) Setting {
	s := whole(key, 1, 1_000_000, field, doc)
	s.Default = DefaultPreflightRate
	return s
}

// truth is a boolean setting with the default false.
func truth(key string, field func(*Settings) *bool, doc string) Setting {
	return Setting{Key: key, Doc: doc, Bounds: "true or false", Field: func(s *Settings) any { return field(s) }}
}

// text is a setting with a rule for its text alone.
func text(key string, field func(*Settings) *string, rule func(string) string, doc, bounds string) Setting {
	return Setting{
		Key: key, Doc: doc, Bounds: bounds, Field: func(s *Settings) any { return field(s) },
		Rule: func(s *Settings) string { return rule(*field(s)) },
	}
}

// forEvents returns s as a setting that events may override.
func forEvents(s Setting) Setting {
	s.Events = true
	return s
}

// whole is a required integer setting from low to high.
func whole(key string, low, high int, field func(*Settings) *int, doc string) Setting {
	return Setting{
		Key: key, Doc: doc, Bounds: fmt.Sprintf("%d to %d", low, high), Field: func(s *Settings) any { return field(s) },
		Rule: func(s *Settings) string {
			if n := *field(s); n < low || n > high {
				return fmt.Sprintf("must be %d to %d, got %d", low, high, n)
			}
			return ""
		},
	}
}

// duration is a setting of whole seconds from low to high.
func duration(
	key string, low, high, byDefault time.Duration, field func(*Settings) *time.Duration, doc string,
) Setting {
	bounds := short(low) + " to " + short(high) + " in whole seconds"
	return Setting{
		Key: key, Default: byDefault, Doc: doc, Bounds: bounds, Field: func(s *Settings) any { return field(s) },
		Rule: func(s *Settings) string {
			if d := *field(s); d < low || d > high || d%time.Second != 0 {
				return fmt.Sprintf("must be %s, got %v", bounds, d)
			}
			return ""
		},
	}
}

// choice is an enumerated setting.
func choice(key, byDefault string, field func(*Settings) *string, doc string, all ...string) Setting {
	return Setting{
		Key: key, Default: byDefault, Doc: doc, Bounds: alternatives(all), Field: func(s *Settings) any { return field(s) },
		Rule: func(s *Settings) string { return checkOneOf(*field(s), all...) },
	}
}

// short formats d without zero parts: 5m and not 5m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// settingByKey returns the entry of a setting; ok is false if there is none.
func settingByKey(key string) (t *Setting, ok bool) {
	i, ok := byKey[key]
	if !ok {
		return nil, false
	}
	return &Schema[i], true
}

var byKey = func() map[string]int {
	m := make(map[string]int, len(Schema))
	for i := range Schema {
		m[Schema[i].Key] = i
	}
	return m
}()

// Required reports whether the setting must be written.
func (t *Setting) Required() bool {
	return t.Default == nil && t.Rule != nil && t.Rule(&Settings{}) != ""
}

// fill sets the default if the field is zero.
func (t *Setting) fill(s *Settings) {
	if t.Default == nil || !t.IsZero(s) {
		return
	}
	t.set(s, t.Default)
}

// Value returns the value of the setting in s.
func (t *Setting) Value(s *Settings) any { return reflect.ValueOf(t.Field(s)).Elem().Interface() }

// holds reports whether v has the type of the setting's field.
func (t *Setting) holds(v any) bool {
	return reflect.TypeOf(v) == reflect.TypeOf(t.Field(&Settings{})).Elem()
}

func (t *Setting) set(s *Settings, v any) { reflect.ValueOf(t.Field(s)).Elem().Set(reflect.ValueOf(v)) }

// IsZero reports whether the setting is absent from a room.
func (t *Setting) IsZero(s *Settings) bool {
	v := reflect.ValueOf(t.Field(s)).Elem()
	return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
}

// IsDefault reports whether the setting has its default value in a room.
func (t *Setting) IsDefault(s *Settings) bool {
	return t.IsZero(s) || t.Default != nil && t.Value(s) == t.Default
}

// WithDefaults returns s with its defaults filled in and its hosts and origin in canonical form. Invalid values are
// left for [Settings.Validate] to report. The result shares no memory with s.
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

// Equal reports whether s and o are equal once their defaults are filled in.
func (s Settings) Equal(o Settings) bool {
	s, o = s.WithDefaults(), o.WithDefaults()
	if !slices.Equal(s.AdditionalRoutes, o.AdditionalRoutes) {
		return false
	}
	if !slices.EqualFunc(s.Rules, o.Rules, Rule.same) || !slices.EqualFunc(s.Events, o.Events, Event.same) {
		return false
	}
	s.AdditionalRoutes, o.AdditionalRoutes = nil, nil // nil and empty lists are equal
	s.Rules, o.Rules, s.Events, o.Events = nil, nil, nil, nil
	return reflect.DeepEqual(s, o)
}
