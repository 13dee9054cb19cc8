package room

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Validate returns everything wrong with s, in the order in which the fields
// are documented; an empty result means that s is valid. The zero value of a
// field with a default is valid. The faults carry no Item; they name fields as
// an operator writes them.
func (s Settings) Validate() Faults {
	s = s.WithDefaults()
	var fs Faults
	add := func(field, rule string) {
		if rule != "" {
			fs = append(fs, Fault{Field: field, Rule: rule})
		}
	}
	for i := range Schema {
		t := &Schema[i]
		switch {
		case t.Rule != nil:
			add(t.Key, t.Rule(&s))
		case t.Key == "additional_routes":
			s.checkRoutes(add)
		case t.Key == "rules":
			s.checkRules(add)
		case t.Key == "events":
			s.checkEvents(add)
		}
	}
	return fs
}

func (s *Settings) checkRoutes(add func(field, rule string)) {
	if n := len(s.AdditionalRoutes); n > MaxRoutes {
		add("additional_routes", fmt.Sprintf("must be at most %d, got %d", MaxRoutes, n))
		return
	}
	for i, r := range s.AdditionalRoutes {
		add(routeField(i+1, "host"), checkHost(r.Host))
		_, rule := pathKey(r.Path)
		add(routeField(i+1, "path"), rule)
	}
}

// routeField names a field of the i-th route of a room; route 0 is the room's own.
func routeField(i int, field string) string {
	if i == 0 {
		return field
	}
	return fmt.Sprintf("additional_routes[%d].%s", i-1, field)
}

func checkRoomName(name string) string {
	if name == "" {
		return "is required"
	}
	if len(name) > MaxName || strings.ContainsFunc(name, func(r rune) bool {
		return !isLetterOrDigit(r) && r != '_' && r != '-'
	}) {
		return fmt.Sprintf("must be 1 to %d of A-Z a-z 0-9 _ -", MaxName) + got(name)
	}
	return ""
}

func checkIdentity(name string) string {
	if name == "" {
		return ""
	}
	return checkRoomName(name)
}

func isLetterOrDigit(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

func checkOneOf(s string, all ...string) string {
	if slices.Contains(all, s) {
		return ""
	}
	return "must be " + alternatives(all) + got(s)
}

// alternatives lists words: a, b or c.
func alternatives(all []string) string {
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// checkIsolationLimit asks for a limit where one is needed, so that nobody opens
// a site by one word.
func checkIsolationLimit(n int, onIsolation string) string {
	switch {
	case onIsolation == IsolationOpen && (n < 1 || n > MaxRate):
		return fmt.Sprintf("must be 1 to %d where on_isolation is open, got %d", MaxRate, n)
	case n < 0 || n > MaxRate:
		return fmt.Sprintf("must be 0 to %d, got %d", MaxRate, n)
	}
	return ""
}

func checkStatus(code int) string {
	switch code {
	case 200, 202, 429, 503:
		return ""
	}
	return fmt.Sprintf("must be 200, 202, 429 or 503, got %d", code)
}

// checkOrigins returns what is wrong with a list of origins as browsers spell them.
func checkOrigins(list string) string {
	all := strings.Fields(list)
	if len(all) > MaxOrigins {
		return fmt.Sprintf("must be at most %d origins, got %d", MaxOrigins, len(all))
	}
	for _, o := range all {
		if _, rule := parseOrigin(o); rule != "" {
			return "must be a list of origins: each " + rule
		}
		if spelt := spellOrigin(o); o != spelt {
			return "must be a list of origins as browsers spell them, " + spelt + got(o)
		}
	}
	return ""
}

// checkCookieDomain demands a domain that browsers take from every host of the room.
func (s *Settings) checkCookieDomain() string {
	d := s.CookieDomain
	if d == "" {
		return ""
	}
	if upper, ok := checkName(d, false); !ok || upper || !strings.Contains(d, ".") || numericName(d) {
		return "must be a domain of two labels or more in lower case, without a dot in front" + got(d)
	}
	for _, r := range s.routes() {
		if r.Host != d && !strings.HasSuffix(r.Host, "."+d) {
			return "must be a domain in which all hosts of the room lie, and " + clip(r.Host) + " does not"
		}
	}
	return ""
}

func checkCORSOrigins(list string) string {
	if list == "*" {
		return ""
	}
	return checkOrigins(list)
}

func checkPageName(name string) string {
	if name == "" {
		return ""
	}
	// The name is joined to a directory by whoever reads the page.
	if len(name) > MaxPageName || name[0] == '.' || strings.ContainsFunc(name, func(r rune) bool {
		return !isLetterOrDigit(r) && r != '_' && r != '-' && r != '.'
	}) {
		return fmt.Sprintf("must be a file name of 1 to %d of A-Z a-z 0-9 _ - . that does not begin with a dot",
			MaxPageName) + got(name)
	}
	return ""
}

func checkMessage(text string) string {
	switch {
	case len(text) > MaxMessage:
		return fmt.Sprintf("must be at most %d bytes, got %d", MaxMessage, len(text))
	case !readable(text):
		return "must be UTF-8 without control characters" + got(text)
	}
	return ""
}

func checkMethod(method string) string {
	return checkOneOf(method, MethodFIFO, MethodRandom, MethodPassthrough, MethodReject)
}

func checkSuffix(suffix string) string {
	if len(suffix) > MaxSuffix || strings.ContainsFunc(suffix, func(c rune) bool { return !isLetterOrDigit(c) && c != '_' && c != '-' }) {
		return fmt.Sprintf("must be at most %d of A-Z a-z 0-9 _ -", MaxSuffix) + got(suffix)
	}
	return ""
}

func (s *Settings) checkSameSite() string {
	if s.CookieSameSite == CookieNone && s.CookieSecure == CookieNever {
		return "must not be none where cookie_secure is never: browsers refuse such a cookie"
	}
	return checkOneOf(s.CookieSameSite, CookieAuto, CookieLax, CookieNone, CookieStrict)
}

func checkCommands(command string) string {
	if command != "" && command != CommandRevoke {
		return "must be revoke or nothing" + got(command)
	}
	return ""
}

// got quotes what was found instead, for the end of a rule.
func got(s string) string { return ", got " + strconv.Quote(clip(s)) }

// clip shortens s for a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// soleReading tells whether path has no reading but itself.
func soleReading(path string) bool {
	n := 0
	ok := Readings(path, func(string) bool {
		n++
		return n == 1
	})
	return ok && n == 1
}

// pathKey returns the path of a route as the matcher holds it: percent-decoded,
// without a slash at the end. The rule is that a room's path must mean the same
// to every origin, so that nobody can argue about what the room covers: once
// decoded it has exactly one reading.
func pathKey(path string) (key, rule string) {
	switch {
	case !strings.HasPrefix(path, "/"):
		return "", "must begin with a slash" + got(path)
	case len(path) > MaxPath:
		return "", fmt.Sprintf("must be at most %d bytes, got %d", MaxPath, len(path))
	}
	if i := strings.IndexAny(path, `?#*;\`); i >= 0 {
		return "", fmt.Sprintf("must not contain %q: a room covers its path and everything below it", path[i:i+1])
	}
	if !validEscapes(path) {
		return "", "must have two hexadecimal digits after each percent sign" + got(path)
	}
	key, _ = unescape(path, true) // an escaped separator stays, and is refused below
	switch {
	case !readable(key):
		return "", "must be UTF-8 without control characters" + got(path)
	case strings.Contains(key, "//"):
		return "", "must not contain an empty segment (//)" + got(path)
	}
	if key != "/" {
		key = strings.TrimSuffix(key, "/")
	}
	if _, changed := foldCompat(key); changed {
		return "", "must not contain invisible characters or compatibility forms of ASCII" + got(path)
	}
	if strings.ContainsAny(key, `%?#*;\`) || !soleReading(key) {
		return "", "must be plain: no dot segments, no segment that ends in a dot or a space, " +
			"no escaped slash, backslash, percent sign or other delimiter" + got(path)
	}
	return key, ""
}
