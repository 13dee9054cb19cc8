package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func compiled(b *testing.B, expressions ...string) (all []*Rule) {
	b.Helper()
	for _, e := range expressions {
		r, err := Compile(e, sources)
		if err != nil {
			b.Fatalf("%s: %v", e, err)
		}
		all = append(all, r)
	}
	return all
}

// BenchmarkRules measures rules on a browser's request with cookies: one of three terms, then twenty of a room
// without a match.
func BenchmarkRules(b *testing.B) {
	req := sample()
	req.Headers = append(req.Headers, Header{"Cookie", "session=" + strings.Repeat("c", 300) + "; theme=dark; ab=7"})
	three := []string{`starts_with(http.request.uri.path, "/static/") and http.request.method eq "GET" or ip.src in {10.0.0.0/8 172.16.0.0/12}`}
	var twenty []string
	for i := range 5 {
		twenty = append(
			twenty, fmt.Sprintf(`starts_with(http.request.uri.path, "/static/%d/") or ends_with(http.request.uri.path, ".j%d")`,
				i, i),
			fmt.Sprintf(`ip.src in {10.%d.0.0/16 2001:db8:%d::/48} and ssl`, i, i),
			fmt.Sprintf(`any(http.request.cookies["staff"][*] eq "%d")`, i),
			fmt.Sprintf(`http.user_agent contains "Monitor/%d" and ip.src.country eq "DE"`, i),
		)
	}
	for name, all := range map[string][]*Rule{"three-terms": compiled(b, three...), "twenty": compiled(b, twenty...)} {
		b.Run(name, func(b *testing.B) {
			var s Scratch
			b.ReportAllocs()
			for b.Loop() {
				s.Ask(req)
				for _, r := range all {
					if r.Match(&s) {
						b.Fatal("matches")
					}
				}
			}
		})
	}
}

// largest is the largest request that an edge reads, with a header under full control of the client: one header, or
// the maximum number.
func largest() map[string]*Request {
	const room = 20 << 10
	out := map[string]*Request{}
	for name, fill := range map[string]string{
		"same": "a", "cookies": "a=;", "upper": "A", "escapes": "%41",
		"accents": "é",
	} {
		value := strings.Repeat(fill, room/len(fill))
		for _, h := range []string{"User-Agent", "Cookie", "Referer", "X-A"} {
			out[name+"/"+h] = &Request{
				Scheme: "https", Host: "shop.example", Paths: []string{"/"},
				Headers: []Header{{h, value}}, Client: netip.MustParseAddr("192.0.2.7"),
			}
		}
		out[name+"/query"] = &Request{
			Scheme: "https", Host: "shop.example", Paths: []string{"/"},
			Query: strings.ReplaceAll(value, ";", "&"), Client: netip.MustParseAddr("192.0.2.7"),
		}
		paths := []string{"/" + strings.Repeat(fill, 16000/len(fill))}
		out[name+"/path"] = &Request{Scheme: "https", Host: "shop.example", Paths: paths}
		var many []string
		for range 64 {
			many = append(many, "/"+strings.Repeat(fill, 250/len(fill)))
		}
		out[name+"/paths"] = &Request{Scheme: "https", Host: "shop.example", Paths: many}
	}
	many := &Request{Scheme: "https", Host: "shop.example", Paths: []string{"/"}}
	for range room / 8 {
		many.Headers = append(many.Headers, Header{"X-A", "aaaa"})
	}
	out["headers"] = many
	cookies := &Request{Scheme: "https", Host: "shop.example", Paths: []string{"/"}}
	for range room / 16 {
		cookies.Headers = append(cookies.Headers, Header{"Cookie", "a=aaa;b"})
	}
	out["cookie-lines"] = cookies
	return out
}

// costly are rules of maximum size that each stress one feature.
func costly() map[string]string {
	many := func(term, with string) string {
		return strings.Repeat(term+with, (MaxExpression-len(term))/(len(term)+len(with))) + term
	}
	out := map[string]string{}
	for i, term := range []string{
		`http.cookie contains "aab"`, `http.user_agent contains "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"`,
		`http.cookie contains "` + strings.Repeat("a", 60) + `b"`, `lower(http.cookie) contains "ab"`,
		`http.cookie wildcard "*a*a*ab*"`, `any(http.request.cookies["b"][*] eq "x")`,
		`any(lower(http.request.headers[*][*]) eq "x")`,
		`any(http.request.headers.names[*] eq "x")`, `any(http.request.uri.args["b"][*] eq "x")`,
		`http.request.headers["x-b"][0] eq "x"`, `http.request.headers["x-a"][60000] eq "x"`,
		`url_decode(http.request.uri.query) eq "x"`, `concat(http.cookie,http.cookie) eq "x"`, `http.request.full_uri eq "x"`,
		`upper(http.request.uri.query) eq "x"`,
		`not lower(http.request.uri.path) eq "x"`, `http.request.uri.path ne "/x"`,
		`not url_decode(http.request.uri, "r") contains "ab"`, `not http.request.uri.path.extension eq "a"`,
		`ip.src in {10.0.0.0/8}`, `ssl`, `http.host eq "x"`, `len(http.request.headers["x-a"]) eq 0`,
		`any(http.request.accepted_languages[*] eq "x")`, `http.referer in {"a" "b"}`,
		`any(http.request.headers["x-a"][*] matches "(a|b)*c")`,
	} {
		with, count := " or ", strings.Count(term, "matches")
		if strings.HasPrefix(term, "not") || strings.Contains(term, " ne ") || term == "ssl" {
			with = " and "
		}
		if out[fmt.Sprint(i)] = many(term, with); count > 0 {
			out[fmt.Sprint(i)] = strings.Repeat(term+with, MaxMatches-1) + term
		}
	}
	for i, pattern := range []string{`(a+)+b`, `(?i)(bot|crawl|spider|slurp).*x$`, `\bé+\pL\b`} {
		for _, field := range []string{"http.cookie", "http.user_agent", "http.request.uri.path"} {
			term := field + ` matches "` + pattern + `"`
			out[fmt.Sprint("regex", i, field)] = strings.Repeat(term+" or ", MaxMatches-1) + term
		}
	}
	return out
}

// BenchmarkRulesWorst is the slowest of all these rules on all these requests.
func BenchmarkRulesWorst(b *testing.B) {
	worst, what := time.Duration(0), ""
	for rule, expression := range costly() {
		r := compiled(b, expression)[0]
		for request, req := range largest() {
			var s Scratch
			took := time.Hour
			for range 200 { // the fastest of a few: the machine may be busy
				start := time.Now()
				s.Ask(req)
				r.Match(&s)
				took = min(took, time.Since(start))
			}
			if took > worst {
				worst, what = took, rule+" on "+request+": "+expression[:60]
			}
		}
	}
	b.Log(what)
	for b.Loop() { // measured above
	}
	b.ReportMetric(float64(worst)/1e3, "worst-us")
}
