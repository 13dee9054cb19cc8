package room

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"vestibule/internal/core/room/match"
)

func checkRoomName(name string) string {
	if name == "" {
		return "is required"
	}
	if len(name) > MaxName || strings.ContainsFunc(name, isNoNameChar) {
		return fmt.Sprintf("must be 1 to %d of A-Z a-z 0-9 _ -", MaxName) + got(name)
	}
	return ""
}

func isNoNameChar(r rune) bool { return !match.IsLetterOrDigit(r) && r != '_' && r != '-' }

func checkIdentity(name string) string {
	if name == "" {
		return ""
	}
	return checkRoomName(name)
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

// checkIsolationLimit requires a limit where one is needed, so that a single word cannot open a site.
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

// checkOrigins returns the fault of a list of origins, in the form of browsers.
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

// checkCookieDomain requires a domain that browsers accept from every host of the room.
func checkCookieDomain(s *Settings) string {
	d := s.CookieDomain
	if d == "" {
		return ""
	}
	if upper, ok := match.CheckName(d, false); !ok || upper || !strings.Contains(d, ".") || match.IsNumericName(d) {
		return "must be a domain of two labels or more in lower case, without a dot in front" + got(d)
	}
	if suffix, _ := publicsuffix.PublicSuffix(d); suffix == d {
		return "must not be a public suffix, under which anybody may have a site: browsers drop such cookies" + got(d)
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
	// The name is joined to a directory when the page is read.
	if len(name) > MaxPageName || name[0] == '.' || strings.ContainsFunc(strings.ReplaceAll(name, ".", ""), isNoNameChar) {
		return fmt.Sprintf("must be a file name of 1 to %d of A-Z a-z 0-9 _ - . that does not begin with a dot",
			MaxPageName) + got(name)
	}
	return ""
}

func checkMessage(text string) string {
	switch {
	case len(text) > MaxMessage:
		return fmt.Sprintf("must be at most %d bytes, got %d", MaxMessage, len(text))
	case !match.Readable(text):
		return "must be UTF-8 without control characters" + got(text)
	}
	return ""
}

func checkSuffix(suffix string) string {
	if len(suffix) > MaxSuffix || strings.ContainsFunc(suffix, isNoNameChar) {
		return fmt.Sprintf("must be at most %d of A-Z a-z 0-9 _ -", MaxSuffix) + got(suffix)
	}
	return ""
}

func checkSameSite(s *Settings) string {
	if s.CookieSameSite == CookieNone && s.CookieSecure == CookieNever {
		return "must not be none where cookie_secure is never: browsers refuse such a cookie"
	}
	return checkOneOf(s.CookieSameSite, CookieAuto, CookieLax, CookieNone, CookieStrict)
}

func checkPartitioned(s *Settings) string {
	if s.CookiePartitioned && s.CookieSameSite != CookieNone {
		return "must be false where cookie_samesite is not none: browsers send no such cookie in frames of other sites"
	}
	return ""
}

// checkFrameAncestors requires that browsers send the cookie wherever the page may be framed: without the cookie every
// request from a frame would be a new visitor.
func checkFrameAncestors(s *Settings) string {
	if s.FrameAncestors == FramedByNone {
		return ""
	}
	if rule := checkOrigins(s.FrameAncestors); rule != "" {
		return strings.Replace(rule, "must be", "must be none or", 1)
	}
	for o := range strings.FieldsSeq(s.FrameAncestors) {
		if !s.CookiePartitioned && !isOwnSite(s, o) {
			return "must be origins of the room's own site where cookie_partitioned is false: a browser sends no cookie in a frame on a page of " + clip(o) +
				" (a sister of the room's host is of its site where cookie_domain says so)"
		}
	}
	return ""
}

// isOwnSite reports whether an origin is certainly of the same site as every host of the room. Only browsers know
// which domains are sites.
func isOwnSite(s *Settings, origin string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	within := func(host, domain string) bool { return host == domain || strings.HasSuffix(host, "."+domain) }
	from := u.Hostname()
	return !slices.ContainsFunc(s.routes(), func(r Route) bool {
		return !within(from, r.Host) && !within(r.Host, from) && (s.CookieDomain == "" || !within(from, s.CookieDomain))
	})
}

func checkMethods(list string) string {
	all := strings.Fields(list)
	if len(all) > MaxMethods {
		return fmt.Sprintf("must be at most %d methods, got %d", MaxMethods, len(all))
	}
	for _, m := range all {
		if rule := CheckMethodName(m); rule != "" {
			return rule
		}
	}
	return ""
}

// CheckMethodName returns the fault of a method that a room may name. Servers differ about methods in lower case.
func CheckMethodName(m string) string {
	switch {
	case m == "CONNECT" || m == "TRACE" || m == "PRI":
		return "must be methods that end at the site, and " + m + " never reaches it"
	case m == "" || len(m) > MaxMethods ||
		strings.ContainsFunc(m, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' }):
		return fmt.Sprintf("must be methods of 1 to %d of A-Z 0-9 -", MaxMethods) + got(m)
	}
	return ""
}

func checkCommands(command string) string {
	if command != "" && command != CommandRevoke {
		return "must be revoke or nothing" + got(command)
	}
	return ""
}
