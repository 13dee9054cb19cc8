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
	{
		Key: "name", Doc: "Part of the cookie's name. A renamed room is another room, unless `identity` has its old name.",
		Bounds: fmt.Sprintf("1 to %d of A-Z a-z 0-9 _ -", MaxName),
		Field:  func(s *Settings) any { return &s.Name }, Rule: func(s *Settings) string { return checkRoomName(s.Name) },
	},
	{
		Key: "host", Doc: "The host in the visitor's request.",
		Bounds: "a bare name or an IP address: no scheme, no port, no wildcard",
		Field:  func(s *Settings) any { return &s.Host }, Rule: func(s *Settings) string { return checkHost(s.Host) },
	},
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
	{
		Key: "origin", Doc: "The site.", Bounds: "an absolute http or https URL without a path",
		Field: func(s *Settings) any { return &s.Origin }, Rule: func(s *Settings) string { return CheckOrigin(s.Origin) },
	},
	{
		Key: "queueing_status_code", Default: DefaultQueueingStatus,
		Doc:    "HTTP status of the waiting page; 429 for [programs](#machines) where it is a success.",
		Bounds: "200, 202, 429 or 503", Field: func(s *Settings) any { return &s.QueueingStatus },
		Rule: func(s *Settings) string { return checkStatus(s.QueueingStatus) },
	},
	{
		Key: "waiting_page", Events: true,
		Doc: "A file beside the rooms file: a style for the built-in page, or a page of your own.", Bounds: "a file name",
		Field: func(s *Settings) any { return &s.WaitingPage },
		Rule:  func(s *Settings) string { return checkPageName(s.WaitingPage) },
	},
	{
		Key: "default_template_language", Default: DefaultLanguage, Bounds: "a language of the page, see WAITING-PAGE.md",
		Doc:   "For browsers that ask for no language of the page.",
		Field: func(s *Settings) any { return &s.DefaultLanguage },
		Rule:  func(s *Settings) string { return checkOneOf(s.DefaultLanguage, Languages...) },
	},
	{
		Key: "queue_message", Doc: "The operator's message to visitors that wait.",
		Bounds: fmt.Sprintf("at most %d bytes", MaxMessage), Field: func(s *Settings) any { return &s.QueueMessage },
		Rule: func(s *Settings) string { return checkMessage(s.QueueMessage) },
	},
	{
		Key: "epoch", Doc: "Raise it to void every ticket of the room.", Bounds: "0 to 4294967295",
		Field: func(s *Settings) any { return &s.Epoch },
	},
	choice("ticket_binding", DefaultBinding, func(s *Settings) *string { return &s.TicketBinding },
		"Where a session's ticket is accepted ([Ticket binding](#ticket-binding)).", BindingNone, BindingNetwork,
		BindingStrict),
	{
		Key:    "cors_origins",
		Bounds: fmt.Sprintf("`*`, or at most %d origins such as https://shop.example, with spaces between", MaxOrigins),
		Doc:    "Pages that may read the edge's answers ([Other origins](#other-origins)).",
		Field:  func(s *Settings) any { return &s.CORSOrigins },
		Rule:   func(s *Settings) string { return checkCORSOrigins(s.CORSOrigins) },
	},
	choice("preflights", DefaultPreflights, func(s *Settings) *string { return &s.Preflights },
		"Answers to preflights of other origins ([Other origins](#other-origins)).", PreflightsSite, PreflightsEdge),
	{
		Key: "cookie_domain", Bounds: "a domain in which all hosts of the room lie",
		Doc:   "Domain of the ticket's cookie, so that all hosts of the room share one place ([Several hosts](#several-hosts)).",
		Field: func(s *Settings) any { return &s.CookieDomain }, Rule: checkCookieDomain,
	},
	choice("caching", DefaultCaching, func(s *Settings) *string { return &s.Caching },
		"`private`: the site's answers to visitors inside become `private`, so that no CDN serves them past the room; `site`: unchanged.",
		CachingPrivate, CachingSite),
	{
		Key: "identity", Bounds: fmt.Sprintf("1 to %d of A-Z a-z 0-9 _ -", MaxName),
		Doc:   "Name of the room in tickets, cookies and the API where it differs from `name`: a renamed room with its old name here keeps sessions and places.",
		Field: func(s *Settings) any { return &s.Identity },
		Rule:  func(s *Settings) string { return checkIdentity(s.Identity) },
	},
	{
		Key:    "waiting_page_sources",
		Bounds: fmt.Sprintf("at most %d origins such as https://cdn.example, with spaces between", MaxOrigins),
		Doc:    "Further origins from which your own page may load scripts and fetch data.",
		Field:  func(s *Settings) any { return &s.PageSources },
		Rule:   func(s *Settings) string { return checkOrigins(s.PageSources) },
	},
	{
		Key: "description", Bounds: fmt.Sprintf("at most %d bytes", MaxMessage),
		Doc:   "A note for operators.",
		Field: func(s *Settings) any { return &s.Description },
		Rule:  func(s *Settings) string { return checkMessage(s.Description) },
	},
	{
		Key: "queueing_method", Events: true, Default: DefaultMethod,
		Bounds: alternatives([]string{MethodFIFO, MethodRandom, MethodPassthrough, MethodReject}),
		Doc:    "Order of admission ([Methods](#methods)).", Field: func(s *Settings) any { return &s.QueueingMethod },
		Rule: func(s *Settings) string { return checkMethod(s.QueueingMethod) },
	},
	truth("queue_all", func(s *Settings) *bool { return &s.QueueAll },
		"Everybody without a session waits ([Methods](#methods))."),
	truth("suspended", func(s *Settings) *bool { return &s.Suspended },
		"The room is off ([Methods](#methods))."),
	forEvents(truth("disable_session_renewal", func(s *Settings) *bool { return &s.NoRenewal },
		"A session ends `session_duration` after its admission; `probation` is not used.")),
	{
		Key: "cookie_suffix", Bounds: fmt.Sprintf("at most %d of A-Z a-z 0-9 _ -", MaxSuffix),
		Doc:   "End of the cookie's name. A change makes everybody a newcomer.",
		Field: func(s *Settings) any { return &s.CookieSuffix },
		Rule:  func(s *Settings) string { return checkSuffix(s.CookieSuffix) },
	},
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
	{
		Key: "enabled_origin_commands", Bounds: "`revoke` or nothing",
		Doc:   "With `revoke`, `Cf-Waiting-Room-Command: revoke` of the site ends a session too.",
		Field: func(s *Settings) any { return &s.OriginCommands },
		Rule:  func(s *Settings) string { return checkCommands(s.OriginCommands) },
	},
	{
		Key:    "methods",
		Bounds: fmt.Sprintf("at most %d of A-Z 0-9 - with spaces between, without CONNECT, TRACE and PRI", MaxMethods),
		Doc:    "Further methods that reach the site, such as `PURGE`, beside QUERY and those of IANA's registry.",
		Field:  func(s *Settings) any { return &s.Methods },
		Rule:   func(s *Settings) string { return checkMethods(s.Methods) },
	},
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

// truth is a boolean setting with the default false.
func truth(key string, field func(*Settings) *bool, doc string) Setting {
	return Setting{Key: key, Doc: doc, Bounds: "true or false", Field: func(s *Settings) any { return field(s) }}
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

// set sets the value of the setting in s.
func (t *Setting) set(s *Settings, v any) { reflect.ValueOf(t.Field(s)).Elem().Set(reflect.ValueOf(v)) }

// IsZero reports whether the setting is absent from a room.
func (t *Setting) IsZero(s *Settings) bool {
	switch f := t.Field(s).(type) {
	case *string:
		return *f == ""
	case *int:
		return *f == 0
	case *uint32:
		return *f == 0
	case *bool:
		return !*f
	case *time.Duration:
		return *f == 0
	case *[]Route:
		return len(*f) == 0
	case *[]Rule:
		return len(*f) == 0
	case *[]Event:
		return len(*f) == 0
	default:
		panic(fmt.Sprintf("room: a setting of type %T", f))
	}
}

// IsDefault reports whether the setting has its default value in a room.
func (t *Setting) IsDefault(s *Settings) bool {
	switch f := t.Field(s).(type) {
	case *string:
		return *f == "" || t.Default == *f
	case *int:
		return *f == 0 || t.Default == *f
	case *time.Duration:
		return *f == 0 || t.Default == *f
	default:
		return t.IsZero(s)
	}
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
