package match_test

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/match"
)

// The naive twin: readings and matching written as plainly as possible, with regular expressions and exhaustive
// loops, without regard to speed.

var (
	twinEscape    = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	twinSeparator = regexp.MustCompile(`^%(2[Ff]|5[Cc])$`)
	twinParam     = regexp.MustCompile(`;[^/]*`)
	twinCut       = regexp.MustCompile(`(?s)[?#].*`)
	twinSlashes   = regexp.MustCompile(`/+`)
	twinAuthority = regexp.MustCompile(`^//+[^/]*`)
	twinStream    = regexp.MustCompile(`(?s):+\$.*`)
	twinSession   = regexp.MustCompile(`/\((?:[A-Za-z0-9]\([^)/]*\))+\)`)
)

const twinHex = "0123456789abcdef"

func twinDecode(s string, keep bool) string {
	return twinEscape.ReplaceAllStringFunc(s, func(e string) string {
		if keep && twinSeparator.MatchString(e) {
			return e
		}
		e = strings.ToLower(e)
		return string([]byte{byte(strings.IndexByte(twinHex, e[1])<<4 | strings.IndexByte(twinHex, e[2]))})
	})
}

// twinDots is the algorithm of RFC 3986, 5.2.4, to the letter.
func twinDots(in string) string {
	out := ""
	for in != "" {
		switch {
		case strings.HasPrefix(in, "/./"):
			in = in[2:]
		case in == "/.":
			in = "/"
		case strings.HasPrefix(in, "/../"), in == "/..":
			in = "/" + strings.TrimPrefix(in[3:], "/")
			out = out[:max(0, strings.LastIndex(out, "/"))]
		default:
			end := strings.Index(in[1:], "/") + 1
			if end == 0 {
				end = len(in)
			}
			out += in[:end]
			in = in[end:]
		}
	}
	return out
}

func twinTrim(s string) string {
	segs := strings.Split(s, "/")
	for i, seg := range segs {
		seg = strings.TrimRight(twinStream.ReplaceAllString(seg, ""), " ")
		if seg != "." && seg != ".." {
			seg = strings.TrimRight(seg, ". ")
		}
		segs[i] = seg
	}
	return strings.Join(segs, "/")
}

func twinCompat(s string) string {
	var b strings.Builder
	for _, r := range s {
		to, ok := match.CompatOf(r) // checked by TestCompatForms
		switch {
		case ok:
			b.WriteString(to)
		case !match.Ignorable(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

func rooted(s string) string {
	if !strings.HasPrefix(s, "/") {
		return "/" + s
	}
	return s
}

var twinSteps = []func(string) string{
	func(s string) string { return twinDecode(s, false) },
	func(s string) string { return twinDecode(s, true) },
	func(s string) string { return strings.ReplaceAll(s, `\`, "/") },
	func(s string) string { return twinParam.ReplaceAllString(s, "") },
	func(s string) string { return twinCut.ReplaceAllString(s, "") },
	func(s string) string { return twinSlashes.ReplaceAllString(s, "/") },
	func(s string) string { return rooted(twinAuthority.ReplaceAllString(s, "")) },
	twinDots,
	twinTrim,
	func(s string) string { return rooted(twinSession.ReplaceAllString(s, "")) },
	twinCompat,
}

// twinReadings returns the set of readings, or nil if there are no reliable ones.
func twinReadings(path string) map[string]bool {
	if !strings.HasPrefix(path, "/") || strings.Contains(twinEscape.ReplaceAllString(path, ""), "%") {
		return nil
	}
	all := map[string]bool{path: true}
	for todo := []string{path}; len(todo) > 0; todo = todo[1:] {
		if strings.ContainsFunc(strings.ToValidUTF8(todo[0], "\x00"), func(r rune) bool {
			return r < 0x20 || 0x7f <= r && r < 0xa0
		}) {
			return nil
		}
		for _, step := range twinSteps {
			if next := step(todo[0]); !all[next] {
				all[next] = true
				todo = append(todo, next)
			}
		}
		total := 0
		for r := range all {
			total += len(r)
		}
		if len(all) > match.MaxReadings || total > match.MaxReadingBytes {
			return nil
		}
	}
	return all
}

// twinCovers reports whether a room with this path covers a reading.
func twinCovers(path, reading string) bool {
	return path == "/" || reading == path || strings.HasPrefix(reading, path+"/")
}

type twinMatch struct {
	Known, Refuse bool
	Origin        string
	Rooms         []string
}

// twinMatchOf is Set.Match over a document, by exhaustive search.
func twinMatchOf(t rapid.TB, doc room.Document, rawHost, path string) twinMatch {
	doc = doc.WithDefaults()
	origins := mustSet(t, doc).Origins()
	name, ok := match.CanonicalHost(rawHost)
	origin, known := origins[name]
	if !ok || !known {
		return twinMatch{}
	}
	m := twinMatch{Known: true, Origin: origin}
	type gate struct {
		name string
		path string
	}
	var here []gate // every route on this host
	for _, s := range doc.Rooms {
		for _, r := range append([]room.Route{{Host: s.Host, Path: s.Path}}, s.AdditionalRoutes...) {
			if r.Host == name {
				key, _ := match.Key(r.Path)
				here = append(here, gate{s.Name, key})
			}
		}
	}
	specific := func(reading string, spell func(string) string) (best gate, found bool) {
		for _, g := range here {
			for _, key := range match.Spellings(g.path) {
				if twinCovers(spell(key), reading) &&
					(!found || strings.Count(g.path+"/", "/") > strings.Count(best.path+"/", "/") || best.path == "/") {
					best, found = g, true
				}
			}
		}
		return best, found
	}
	same := func(s string) string { return s }

	var gating []gate
	readings := twinReadings(path)
	if readings == nil {
		gating = append(gating, here...)
	}
	for r := range readings {
		if g, ok := specific(r, same); ok {
			gating = append(gating, g)
		}
		if g, ok := specific(match.Fold(r), match.Fold); ok {
			gating = append(gating, g)
		}
		if rest, ok := strings.CutPrefix(r, "//"); ok {
			authority, _, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
			authority = authority[strings.LastIndex(authority, "@")+1:]
			if other, ok := match.CanonicalHost(authority); ok && other != name && origins[other] != "" {
				m.Refuse = true
			}
		}
	}
	slices.SortFunc(gating, func(a, b gate) int {
		if c := cmp.Compare(len(b.path), len(a.path)); c != 0 {
			return c
		}
		return cmp.Compare(room.IDOf(a.name), room.IDOf(b.name))
	})
	if strings.HasPrefix(path, "/") {
		if g, ok := specific(path, same); ok {
			gating = slices.Insert(gating, 0, g)
		}
	}
	for _, g := range gating {
		if !slices.Contains(m.Rooms, g.name) {
			m.Rooms = append(m.Rooms, g.name)
		}
	}
	if len(m.Rooms) > 4 {
		m.Refuse = true
	}
	return m
}
