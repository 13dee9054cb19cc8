package rules

import "strings"

// kindOf is the type of a value.
type kindOf uint8

const (
	badKind kindOf = iota // a fault was already reported
	boolKind
	intKind
	textKind
	addrKind
	textsKind // list of texts
	mapKind   // lists of texts by name
)

func (k kindOf) String() string {
	return [...]string{"?", "a Boolean", "a number", "a text", "an address", "a list", "a map"}[k]
}

// Accessors of values by type. ok is false if the value is missing.
type (
	textFn func(*Scratch) (v string, ok bool)
	intFn  func(*Scratch) (v int64, ok bool)

	// listFn returns the element at a position, first 0, and the next position.
	listFn func(s *Scratch, pos int64) (v string, next int64, ok bool)
)

// field is a field of the rules language.
type field struct {
	kind     kindOf
	ofPath   bool
	geo, bot bool // needs a source
	url      bool // depends on the URL alone

	text   textFn
	number intFn
	truth  test
	list   listFn
	byName func(name string) listFn // of a map
}

// geoText is a text field that is missing if empty.
func geoText(get func(*Request) string) field {
	return field{kind: textKind, geo: true, text: func(s *Scratch) (string, bool) { v := get(s.req); return v, v != "" }}
}

var (
	country     = geoText(func(r *Request) string { return r.Country })
	continent   = geoText(func(r *Request) string { return r.Continent })
	subdivision = geoText(func(r *Request) string { return r.Subdivision })
	network     = field{
		kind: intKind, geo: true, number: func(s *Scratch) (int64, bool) { return s.req.ASN, s.req.ASN != 0 },
	}
	european = field{kind: boolKind, geo: true, truth: func(s *Scratch) bool { return s.req.EU }}

	// The raw and the cleaned path are the same here: a rule is evaluated for every reading.
	path    = field{kind: textKind, ofPath: true, url: true, text: func(s *Scratch) (string, bool) { return s.path, true }}
	suffix  = field{kind: textKind, ofPath: true, url: true, text: extension}
	uri     = field{kind: textKind, ofPath: true, text: func(s *Scratch) (string, bool) { return address(s, false) }}
	fullURI = field{kind: textKind, ofPath: true, text: func(s *Scratch) (string, bool) { return address(s, true) }}
	query   = field{kind: textKind, text: func(s *Scratch) (string, bool) { return s.req.Query, true }}
	args    = field{kind: mapKind, list: argValues, byName: func(name string) listFn {
		return func(s *Scratch, pos int64) (string, int64, bool) { return nextArg(s, pos, name, true) }
	}}
	argNames = field{kind: textsKind, list: func(s *Scratch, pos int64) (string, int64, bool) {
		v, _, next, ok := argAt(s, pos)
		return v, next, ok
	}}
	argVals = field{kind: textsKind, list: argValues}
)

// fields are all fields by name.
var fields = map[string]field{
	"http.host": {
		kind: textKind, url: true, text: func(s *Scratch) (string, bool) { return s.req.Host, true },
	},
	"http.request.method": {
		kind: textKind, url: true, text: func(s *Scratch) (string, bool) { return s.req.Method, true },
	},
	"http.request.version": {
		kind: textKind, text: func(s *Scratch) (string, bool) { return s.req.Version, s.req.Version != "" },
	},
	"http.request.uri":                uri,
	"http.request.uri.path":           path,
	"http.request.uri.path.extension": suffix,
	"http.request.uri.query":          query,
	"http.request.full_uri":           fullURI,
	"http.request.uri.args":           args,
	"http.request.uri.args.names":     argNames,
	"http.request.uri.args.values":    argVals,

	"raw.http.request.uri":                uri,
	"raw.http.request.uri.path":           path,
	"raw.http.request.uri.path.extension": suffix,
	"raw.http.request.uri.query":          query,
	"raw.http.request.full_uri":           fullURI,
	"raw.http.request.uri.args":           args,
	"raw.http.request.uri.args.names":     argNames,
	"raw.http.request.uri.args.values":    argVals,

	"http.user_agent":                 {kind: textKind, text: agent},
	"http.referer":                    {kind: textKind, text: first("referer")},
	"http.cookie":                     {kind: textKind, text: joined("cookie", "; ")},
	"http.x_forwarded_for":            {kind: textKind, text: joined("x-forwarded-for", ", ")},
	"http.request.headers":            {kind: mapKind, list: headerValues, byName: lines},
	"http.request.headers.values":     {kind: textsKind, list: headerValues},
	"http.request.headers.names":      {kind: textsKind, list: headerNames},
	"http.request.cookies":            {kind: mapKind, list: cookieValues, byName: cookies},
	"http.request.timestamp.sec":      {kind: intKind, number: func(s *Scratch) (int64, bool) { return s.req.Time, true }},
	"http.request.accepted_languages": {kind: textsKind, list: languages},
	"ssl":                             {kind: boolKind, truth: func(s *Scratch) bool { return s.req.Scheme == "https" }},

	"ip.src":                          {kind: addrKind},
	"ip.src.country":                  country,
	"ip.src.continent":                continent,
	"ip.src.asnum":                    network,
	"ip.src.is_in_european_union":     european,
	"ip.src.subdivision_1_iso_code":   subdivision,
	"ip.geoip.country":                country,
	"ip.geoip.continent":              continent,
	"ip.geoip.asnum":                  network,
	"ip.geoip.is_in_european_union":   european,
	"ip.geoip.subdivision_1_iso_code": subdivision,
	"cf.client.bot":                   {kind: boolKind, bot: true, truth: func(s *Scratch) bool { return s.req.Crawler }},
}

// address returns path and query, or the full URL.
func address(s *Scratch, full bool) (string, bool) {
	if !full && s.req.Query == "" {
		return s.path, true
	}
	if !s.spend(16 + len(s.path) + len(s.req.Query) + len(s.req.Host)) {
		return "", false
	}
	n := len(s.buf)
	if full {
		s.buf = append(append(append(s.buf, s.req.Scheme...), "://"...), s.req.Host...)
	}
	s.buf = append(s.buf, s.path...)
	if s.req.Query != "" {
		s.buf = append(append(s.buf, '?'), s.req.Query...)
	}
	v := s.text(n)
	if s.folded {
		return s.fold(v)
	}
	return v, true
}

// extension returns the text after the last dot of the path's last segment, in lower case.
func extension(s *Scratch) (string, bool) {
	if !s.spend(8 + 2*len(s.path)) {
		return "", false
	}
	name := s.path[strings.LastIndexByte(s.path, '/')+1:]
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", true
	}
	return lowered(s, name[dot+1:])
}

// lines returns the lines of a header; name is in lower case.
func lines(name string) listFn {
	return func(s *Scratch, pos int64) (string, int64, bool) {
		all := s.req.Headers
		for i := int(pos); i < len(all) && s.spend(2); i++ {
			if sameName(all[i].Name, name) {
				return all[i].Value, int64(i) + 1, s.spend(len(name))
			}
		}
		return "", 0, false
	}
}

func headerValues(s *Scratch, pos int64) (string, int64, bool) {
	if int(pos) >= len(s.req.Headers) || !s.spend(4) {
		return "", 0, false
	}
	return s.req.Headers[pos].Value, pos + 1, true
}

func headerNames(s *Scratch, pos int64) (string, int64, bool) {
	if int(pos) >= len(s.req.Headers) {
		return "", 0, false
	}
	v, ok := lowered(s, s.req.Headers[pos].Name)
	return v, pos + 1, ok
}

// firstLine returns the index of the first line of a known header, or the number of lines if it is missing.
func (s *Scratch) firstLine(known int, name string) int {
	if s.lines[known] == 0 {
		i := 0
		for i < len(s.req.Headers) && !sameName(s.req.Headers[i].Name, name) {
			i++
		}
		s.lines[known] = i + 1
	}
	return s.lines[known] - 1
}

func agent(s *Scratch) (string, bool) {
	i := s.firstLine(agentLine, "user-agent")
	if i == len(s.req.Headers) {
		return "", false
	}
	return s.req.Headers[i].Value, s.spend(2)
}

// first returns the first line of a header.
func first(name string) textFn {
	all := lines(name)
	return func(s *Scratch) (string, bool) {
		v, _, ok := all(s, 0)
		return v, ok
	}
}

// joined returns all lines of a header, joined.
func joined(name, with string) textFn {
	all := lines(name)
	return func(s *Scratch) (string, bool) {
		one, pos, ok := all(s, 0)
		if !ok {
			return "", false
		}
		more, pos, ok := all(s, pos)
		if !ok {
			return one, true
		}
		n := len(s.buf)
		s.buf = append(s.buf, one...)
		for ok {
			if !s.spend(len(with) + len(more)) {
				return "", false
			}
			s.buf = append(append(s.buf, with...), more...)
			more, pos, ok = all(s, pos)
		}
		return s.text(n), true
	}
}

// argAt returns the query argument at a position.
func argAt(s *Scratch, pos int64) (name, value string, next int64, ok bool) {
	for next = pos; ; {
		arg, after, ok := s.part(s.req.Query, next, '&', 16)
		if !ok {
			return "", "", 0, false
		}
		if next = after; arg != "" {
			name, value, _ = strings.Cut(arg, "=")
			return name, value, next, true
		}
	}
}

// part returns the part of a list at a position, up to a separator, and the next position, for cost steps and more if it
// is long.
func (s *Scratch) part(list string, pos int64, separator byte, cost int) (v string, next int64, ok bool) {
	if int(pos) >= len(list) {
		return "", 0, false
	}
	v = list[pos:]
	if n := strings.IndexByte(v, separator); n >= 0 {
		v = v[:n]
	}
	return v, pos + int64(len(v)) + 1, s.spend(cost + len(v)/2)
}

func argValues(s *Scratch, pos int64) (string, int64, bool) { return nextArg(s, pos, "", false) }

// nextArg returns the value of the next argument, or of the next one with this name if named is set.
func nextArg(s *Scratch, pos int64, name string, named bool) (string, int64, bool) {
	for {
		n, v, next, ok := argAt(s, pos)
		if !ok || !named || n == name {
			return v, next, ok
		}
		pos = next
	}
}

// pair is a cookie.
type pair struct{ name, value string }

// MaxCookies is the maximum number of cookies that are read per request; no browser sends as many. With more, a
// rule about cookies does not match.
const MaxCookies = 256

// cookies returns all cookies of the request, parsed once per request.
func (s *Scratch) cookies() []pair {
	if !s.hasPairs {
		s.hasPairs = true
		s.readCookies()
	}
	if len(s.pairs) > MaxCookies {
		s.left = -1
	}
	return s.pairs
}

func (s *Scratch) readCookies() {
	for _, h := range s.req.Headers[min(s.firstLine(cookieLine, "cookie"), len(s.req.Headers)):] {
		if !sameName(h.Name, "cookie") {
			continue
		}
		for c := range strings.SplitSeq(h.Value, ";") {
			name, value, _ := strings.Cut(c, "=")
			s.pairs = append(s.pairs, pair{strings.Trim(name, " \t"), strings.Trim(value, " \t")})
			if len(s.pairs) > MaxCookies {
				return
			}
		}
	}
}

func cookies(name string) listFn {
	return func(s *Scratch, pos int64) (string, int64, bool) {
		all := s.cookies()
		for i := int(pos); i < len(all) && s.spend(2); i++ {
			if all[i].name == name {
				return all[i].value, int64(i) + 1, s.spend(len(name) / 8)
			}
		}
		return "", 0, false
	}
}

func cookieValues(s *Scratch, pos int64) (string, int64, bool) {
	all := s.cookies()
	if int(pos) >= len(all) || !s.spend(4) {
		return "", 0, false
	}
	return all[pos].value, pos + 1, true
}

// languages returns the languages of Accept-Language in header order.
func languages(s *Scratch, pos int64) (string, int64, bool) {
	all, _ := first("accept-language")(s)
	for {
		item, next, ok := s.part(all, pos, ',', 6)
		if !ok {
			return "", 0, false
		}
		tag, _, _ := strings.Cut(item, ";")
		if tag = strings.Trim(tag, " \t"); tag != "" {
			return tag, next, true
		}
		pos = next
	}
}
