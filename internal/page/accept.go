package page

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/text/language"
)

// PrefersJSON reports whether an Accept header prefers JSON to HTML. The greater q-value wins, then the more
// specific range (so "application/json, */*" prefers JSON), then the earlier one. Without a preference it is HTML.
func PrefersJSON(accept []string) bool {
	json, page := preference{}, preference{}
	at := 0
	for media, params := range ranges(accept) {
		at++
		p := preference{q: quality(params), at: at}
		switch {
		case strings.EqualFold(media, "application/json"), isJSONOfAKind(media):
			p.close = 3
			json.see(p)
		case strings.EqualFold(media, "text/html"), strings.EqualFold(media, "application/xhtml+xml"):
			p.close = 3
			page.see(p)
		case strings.EqualFold(media, "application/*"):
			p.close = 2
			json.see(p)
		case strings.EqualFold(media, "text/*"):
			p.close = 2
			page.see(p)
		case media == "*/*":
			p.close = 1
			json.see(p)
			page.see(p)
		}
	}
	switch {
	case json.q != page.q:
		return json.q > page.q
	case json.q == 0:
		return false
	case json.close != page.close:
		return json.close > page.close
	}
	return json.at < page.at
}

// isJSONOfAKind reports whether a type has a JSON suffix: application/problem+json, application/*+json.
func isJSONOfAKind(media string) bool {
	const kind, suffix = "application/", "+json"
	return len(media) > len(kind)+len(suffix) && strings.EqualFold(media[:len(kind)], kind) &&
		strings.EqualFold(media[len(media)-len(suffix):], suffix)
}

// TakesGzip reports whether Accept-Encoding headers prefer gzip to no compression.
func TakesGzip(accept []string) bool {
	zipped, other, plain := -1, -1, -1
	for coding, params := range ranges(accept) {
		switch {
		case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"):
			zipped = max(zipped, quality(params))
		case strings.EqualFold(coding, "identity"):
			plain = max(plain, quality(params))
		case coding == "*":
			other = max(other, quality(params))
		}
	}
	if zipped < 0 {
		zipped = other
	}
	return zipped > 0 && zipped >= plain
}

// maxRanges bounds the media ranges that are read per request.
const maxRanges = 32

// ranges yields the media ranges or codings of a header's lines, and their parameters.
func ranges(lines []string) iter.Seq2[string, string] {
	return func(yield func(name, params string) bool) {
		n := 0
		for _, line := range lines {
			for item := range strings.SplitSeq(line, ",") {
				name, params, _ := strings.Cut(item, ";")
				if n++; n > maxRanges || !yield(strings.TrimSpace(name), params) {
					return
				}
			}
		}
	}
}

// preference is the weight of one type, from the most specific range that covers it.
type preference struct {
	q     int // in thousandths
	close int // specificity of the range, 0 for no match
	at    int // position in the header
}

func (p *preference) see(o preference) {
	if o.close > p.close || o.close == p.close && o.q > p.q {
		*p = o
	}
}

// quality returns the q of a media range in thousandths: 1000 without one, 0 if it is not a number.
func quality(params string) int {
	for params != "" {
		var param string
		param, params, _ = strings.Cut(params, ";")
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return int(q*1000 + .5)
	}
	return 1000
}

// matcher finds the closest available language.
var matcher = language.NewMatcher(inEveryLanguage(func(_ Lang, c *catalog) language.Tag { return c.tag }))

// Picker chooses languages by Accept-Language headers and caches the results: browsers of one country all send the
// same few. It is safe for concurrent use. The zero value is ready.
type Picker struct {
	mu    sync.RWMutex
	known map[string]int // language by header, -1 for none available
}

const (
	maxKnown  = 1024 // cached headers
	maxHeader = 128  // bytes of a header that are read; browsers send less
)

// Pick returns the best available language of an Accept-Language header, or otherwise.
func (p *Picker) Pick(header string, otherwise Lang) Lang {
	if header == "" {
		return otherwise
	}
	if len(header) > maxHeader {
		header = header[:maxHeader]
		header = header[:max(0, strings.LastIndexByte(header, ','))]
	}
	p.mu.RLock()
	i, ok := p.known[header]
	p.mu.RUnlock()
	if !ok {
		i = match(header)
		p.mu.Lock()
		if len(p.known) >= maxKnown || p.known == nil {
			p.known = make(map[string]int) // rare: a client sends garbage
		}
		p.known[strings.Clone(header)] = i
		p.mu.Unlock()
	}
	if i < 0 {
		return otherwise
	}
	return Lang(i)
}

// traditional returns the available language for tags of Chinese in traditional characters, as in Hong Kong, and other
// tags unchanged. The matcher prefers the language of a neighbouring region over that of the script.
func traditional(tag language.Tag) language.Tag {
	base, _ := tag.Base()
	if script, _ := tag.Script(); base.String() == "zh" && script.String() == "Hant" {
		return language.MustParse("zh-TW")
	}
	return tag
}

// match parses as much of a header as possible: invalid or unknown languages do not hide the others.
func match(header string) int {
	type wish struct {
		tag language.Tag
		q   int
	}
	var wishes []wish
	for item := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(item, ";")
		tag, err := language.Parse(strings.TrimSpace(name))
		if q := quality(params); err == nil && q > 0 {
			wishes = append(wishes, wish{traditional(tag), q})
		}
	}
	if len(wishes) == 0 {
		return -1
	}
	slices.SortStableFunc(wishes, func(a, b wish) int { return b.q - a.q })
	tags := make([]language.Tag, len(wishes))
	for i, w := range wishes {
		tags[i] = w.tag
	}
	_, i, confidence := matcher.Match(tags...)
	if confidence == language.No {
		return -1
	}
	return i
}
