package rules

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"vestibule/internal/lab/testkit"
)

// sample is the request of most tests.
func sample() *Request {
	return &Request{
		Method: "GET", Scheme: "https", Host: "shop.example", Query: "a=1&b=two&a=3&x=%41+b", Version: "HTTP/1.1",
		Paths: []string{"/articles/2008/Photo.JPG"},
		Headers: []Header{
			{"Host", "shop.example"},
			{"User-Agent", "Mozilla/5.0 (X11) Firefox/1.0"},
			{"Cookie", "app=test; sid=1"},
			{"Cookie", "b=x=y; app=beta"},
			{"X-Staff", "yes"},
			{"x-staff", "no"},
			{"Accept-Language", "de-CH, fr;q=0.9,en"},
			{"X-Forwarded-For", "1.1.1.1"},
			{"X-Forwarded-For", "2.2.2.2"},
		},
		Client: netip.MustParseAddr("192.0.2.7"), Time: 1_600_000_000, Country: "DE", Continent: "EU", ASN: 3320, EU: true,
	}
}

var sources = Sources{Geo: true, Crawlers: true, Lists: map[string]*Networks{
	"office": NewNetworks([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/29"), netip.MustParsePrefix("2001:db8::/32")}),
	"empty":  NewNetworks(nil),
}}

func asked(r *Rule, req *Request) bool {
	var s Scratch
	s.Ask(req)
	return r.Match(&s)
}

func match(t *testing.T, expression string, req *Request) bool {
	t.Helper()
	r, err := Compile(expression, sources)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return asked(r, req)
}

func TestEvaluation(t *testing.T) {
	all := map[string]bool{
		`http.request.method eq "GET"`:                                         true,
		`http.request.method == "POST"`:                                        false,
		`http.host ne "a"`:                                                     true,
		`http.request.uri.path eq "/articles/2008/Photo.JPG"`:                  true,
		`http.request.uri.path eq "/articles/2008/photo.jpg"`:                  false,
		`lower(http.request.uri.path) eq "/articles/2008/photo.jpg"`:           true,
		`http.request.uri.path wildcard "/ARTICLES/*.jpg"`:                     true,
		`http.request.uri.path strict wildcard "/ARTICLES/*.jpg"`:              false,
		`http.request.uri.path strict wildcard "/articles/*/Photo.*"`:          true,
		`http.request.uri.path wildcard "/articles"`:                           false,
		`http.request.uri.path matches "^/articles/200[7-8]/"`:                 true,
		`http.request.uri.path ~ r"^/articles/200\d/"`:                         true,
		`http.request.uri.path ~ "^/articles/200\d/"`:                          true,
		`http.user_agent matches "(?i)FIREFOX/\d+\.\d+$"`:                      true,
		`http.user_agent matches "\bX11\b"`:                                    true,
		`http.request.uri.path.extension eq "jpg"`:                             true,
		`http.request.uri eq "/articles/2008/Photo.JPG?a=1&b=two&a=3&x=%41+b"`: true,
		`http.request.full_uri contains "https://shop.example/articles"`:       true,
		`http.request.uri.query contains "b=two"`:                              true,

		`ssl`:                                 true,
		`not ssl`:                             false,
		`!ssl or ssl`:                         true,
		`ssl xor ssl`:                         false,
		`ssl ^^ ssl xor ssl`:                  true,
		`ssl or ssl xor ssl`:                  true, // xor binds before or
		`ssl xor ssl and not ssl`:             true, // and before xor
		`not ssl and not ssl or ssl`:          true, // not before and before or
		`not (ssl and ssl)`:                   false,
		`ip.src eq 192.0.2.7`:                 true,
		`ip.src == ::ffff:192.0.2.7`:          true,
		`ip.src ne 2001:db8::1`:               true,
		`ip.src in {10.0.0.0/8 192.0.2.0/24}`: true,

		`ip.src in {192.0.2.1..192.0.2.6 192.0.2.8}`:                              false,
		`ip.src in $office`:                                                       true,
		`ip.src in $empty`:                                                        false,
		`not ip.src in $office`:                                                   false,
		`ip.src.country in {"AT" "DE"}`:                                           true,
		`ip.geoip.country eq "FR"`:                                                false,
		`ip.src.asnum in {1..5 3320}`:                                             true,
		`ip.src.asnum in {1..3319 3321..4000 7 3000..3319}`:                       false,
		`ip.src.is_in_european_union`:                                             true,
		`ip.src.subdivision_1_iso_code ne "BY"`:                                   false, // missing
		`ip.src.subdivision_1_iso_code eq ""`:                                     false,
		`cf.client.bot`:                                                           false,
		`http.request.timestamp.sec ge 1600000000`:                                true,
		`http.request.timestamp.sec < 0x10`:                                       false,
		`http.referer eq ""`:                                                      false, // missing
		`http.referer ne "x"`:                                                     false,
		`not http.referer eq "x"`:                                                 true,
		`http.cookie contains "sid=1; b=x=y"`:                                     true,
		`http.x_forwarded_for eq "1.1.1.1, 2.2.2.2"`:                              true,
		`any(http.request.cookies["app"][*] == "beta")`:                           true,
		`all(http.request.cookies["app"][*] == "beta")`:                           false,
		`http.request.cookies["b"][0] eq "x=y"`:                                   true,
		`http.request.cookies["app"][1] eq "beta"`:                                true,
		`http.request.cookies["app"][2] ne "beta"`:                                false, // missing
		`any(http.request.headers["x-staff"][*] eq "no")`:                         true,
		`all(http.request.headers["none"][*] ne "no")`:                            false, // missing
		`len(http.request.headers["x-staff"]) eq 2`:                               true,
		`len(http.request.headers["none"]) eq 0`:                                  false, // missing
		`any(lower(http.request.headers[*][*])[*] eq "x")`:                        false,
		`any(lower(http.request.headers.names[*])[*] == "x-staff")`:               true,
		`any(lower(http.request.headers.names[*])[*] == "x-other")`:               false,
		`all(len(http.request.headers["x-staff"][*])[*] in {2 3})`:                true,
		`all(len(http.request.headers["x-staff"][*])[*] in {3 4})`:                false,
		`any(starts_with(http.request.headers["x-staff"][*], "n")[*])`:            true,
		`any(http.request.headers.names[*] == "x-staff")`:                         true,
		`any(http.request.headers[*][*] == "yes")`:                                true,
		`http.request.uri.args["a"][1] eq "3"`:                                    true,
		`any(http.request.uri.args.names[*] eq "b")`:                              true,
		`any(url_decode(http.request.uri.args["x"][*]) eq "A b")`:                 true,
		`any(http.request.uri.args.values[*] contains "w")`:                       true,
		`any(http.request.accepted_languages[*] eq "fr")`:                         true,
		`http.request.accepted_languages[0] eq "de-CH"`:                           true,
		`starts_with(http.request.uri.path, "/articles/")`:                        true,
		`ends_with(http.request.uri.path, ".jpg")`:                                false,
		`ends_with(lower(http.request.uri.path), ".jpg")`:                         true,
		`any(starts_with(http.request.headers["x-staff"][*], "n"))`:               true,
		`upper(http.request.method) eq "GET"`:                                     true,
		`concat(http.host, ":", len(http.host)) eq "shop.example:12"`:             true,
		`substring(http.host, 0, 4) eq "shop"`:                                    true,
		`substring(http.host, -7) eq "example"`:                                   true,
		`len(http.host) > 11 && len(http.host) <= 12`:                             true,
		`http.host eq "\x73hop.\145xample"`:                                       true,
		`http.host eq r#"shop.example"#`:                                          true,
		`http.host gt "shop"`:                                                     true,
		"http.host\teq\r\n\"shop.example\"":                                       true,
		`http.host contains "0123456789012345678901234567890123456789"`:           false,
		`http.request.full_uri contains "//shop.example/articles/2008/Photo.JPG"`: true,
	}
	right := 0
	for expression, want := range all {
		if got := match(t, expression, sample()); got != want {
			t.Errorf("%s: got %v", expression, got)
			continue
		}
		right++
	}
	t.Logf("%d of %d expressions are right", right, len(all))
}

func TestFaults(t *testing.T) {
	deep := strings.Repeat("(", MaxDepth+1) + "ssl" + strings.Repeat(")", MaxDepth+1)
	for expression, want := range map[string]string{
		``:                                    "character 1: expected a field, a function, not or (, and the expression ends",
		`http.hots eq "a" and ip.src eq "b"`:  `character 1: unknown field http.hots; character 32: expected an address, got "\""`,
		`http.hots eq "a" and http.host eq 5`: `character 1: unknown field http.hots; character 35: expected a text in quotation marks, got "5"`,
		`http.host eq "ä" AND ssl`:            `character 18: "AND": words are in lower case: and`,
		`http.hots eq "a" or hots eq 1 or ssl eq true`: "character 1: unknown field http.hots; character 21: unknown field " +
			"hots; character 38: a Boolean is used alone",
		`http.host`:              "character 1: a text must be compared with something",
		`len(http.host)`:         "character 1: a number must be compared",
		`http.host not in {"a"}`: "character 11: not precedes the value",
		`ip.src eq 10.0.0.0/8`:   "character 11: a network is only valid in braces",
		`ip.src in {10.0.0.1/8}`: "character 12: 10.0.0.1/8 has bits behind its network: " +
			"it is 10.0.0.0/8",
		`ip.src in {10.0.0.1, 10.0.0.2}`:                         "no commas",
		`ip.src in {10.0.0.2..10.0.0.1}`:                         "ends before it begins",
		`ip.src in {x 10.0.0.0/99}`:                              `character 12: "x" is not an address; character 14: "10.0.0.0/99" is not a network`,
		`ip.src in {}`:                                           "a set has a member at least",
		`ip.src in $nobody`:                                      "character 11: there is no list $nobody",
		`http.host in $office`:                                   "a named list holds addresses",
		`http.host matches "(?=a)"`:                              "character 19: a regular expression that is not understood",
		`http.host matches "(?x)a"`:                              "a regular expression that is not understood",
		`http.host matches ".{1,1000}.{1,1000}"`:                 "shorten its repetitions",
		`http.host matches "[ab]*a[ab]{14}"`:                     "too many states",
		`http.host wildcard "a**b"`:                              "** is not allowed",
		`http.host wildcard "a\\b"`:                              "a backslash in a wildcard pattern",
		`http.host wildcard "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*"`: "16 stars",
		`http.host eq "a\q"`:                                     "a backslash stands before",
		`http.host eq "a`:                                        "character 14: the text is not closed",
		`http.request.headers["X-A"][0] eq "a"`:                  `names of headers are in lower case: "x-a"`,
		`http.request.headers["x-a"] eq "a"`:                     "one value is compared",
		`http.request.headers["x-a"][*] eq "a"`:                  "put the comparison into any(…)",
		`any(http.host eq "a")`:                                  "take a comparison with one [*], got 0",
		`lower(http.host, "a") eq "a"`:                           "lower takes one argument, got 2",
		`lower("A") eq "a"`:                                      "the first argument of lower is no literal",
		`len(http.host) eq "a"`:                                  "expected a number",
		`len(http.host) contains "a"`:                            "contains, matches and wildcard go with a text",
		`regex_replace(http.host, "a", "b") eq "b"`:              "regex_replace is not there for rules of waiting rooms",
		`cf.bot_management.score lt 5`:                           "cf.bot_management.score is not there",
		`any(lower(http.host)[*] eq "x")`:                        "a text is one value",
		`any(lower(http.request.headers.names[*])[*][*] eq "x")`: "a text is one value",
		`ssl ssl`:                          `expected and, or, xor or the end, got "ssl"`,
		`(ssl`:                             "expected and, or, xor or ), and the expression ends",
		deep:                               "more than 32",
		strings.Repeat("not ", 40) + "ssl": "more than 32",
		strings.Repeat("lower(", 40):       "more than 32",
		strings.Repeat(" ", MaxExpression) + "ä": "at most 4096 characters, this one has 4097",
		"ssl \xff":                          "UTF-8",
		`http.request.timestamp.sec eq 1_0`: "is not a whole number",
	} {
		r, err := Compile(expression, sources)
		if err == nil || r != nil {
			t.Errorf("%s: compiles", expression)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", expression, err, want)
		}
	}
}

// An unknown value does not match, nor does its negation.
func TestSources(t *testing.T) {
	for expression, fault := range map[string]string{
		`not ip.src.country eq "DE"`: "geo.file",
		`not cf.client.bot`:          "rules.crawlers",
		`not ip.src in $office`:      "there is no list $office",
	} {
		if _, err := Compile(expression, Sources{}); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s without sources: %v", expression, err)
		}
		r := testkit.Must(Compile(expression, Sources{Unknown: true}))(t)
		if n := r.Needs; !n.Geo && !n.Crawlers && len(n.Lists) == 0 {
			t.Errorf("%s needs nothing", expression)
		}
		if asked(r, &Request{Paths: []string{"/"}}) {
			t.Errorf("%s matches where its source is unknown", expression)
		}
	}
}

// A rule bypasses only paths that it matches under every reading.
func TestEveryReading(t *testing.T) {
	for _, c := range []struct {
		expression string
		paths      []string
		want       bool
	}{
		{`starts_with(http.request.uri.path, "/open/")`, []string{"/open/a"}, true},
		{`starts_with(http.request.uri.path, "/open/")`, []string{"/open/../checkout", "/checkout"}, false},
		{`starts_with(raw.http.request.uri.path, "/open/")`, []string{"/open/../checkout", "/checkout"}, false},
		{`starts_with(http.request.uri, "/open/")`, []string{"/open/../checkout", "/checkout"}, false},
		{`ends_with(http.request.uri.path, ".js")`, []string{"/checkout;.js", "/checkout"}, false},
		{`not starts_with(http.request.uri.path, "/checkout")`, []string{"/x/../checkout", "/checkout"}, false},
		{`not starts_with(http.request.uri.path, "/checkout")`, []string{"/open"}, true},
		{`ssl`, nil, false},
		{`not http.request.uri.path eq "/"`, nil, false},
		// A site may ignore letter case.
		{`not starts_with(http.request.uri.path, "/checkout")`, []string{"/CheckOut"}, false},
		{`http.request.uri.path ne "/Checkout"`, []string{"/cHECKOUT"}, false},
		{`not http.request.uri.path in {"/Checkout"}`, []string{"/cHECKOUT"}, false},
		{`not http.request.uri.path contains "Check"`, []string{"/cHECKOUT"}, false},
		{`not http.request.uri.path matches "^/Check"`, []string{"/cHECKOUT"}, false},
		{`not http.request.uri.path strict wildcard "/Check*"`, []string{"/cHECKOUT"}, false},
		{`not upper(http.request.uri.path) eq "/CHECKOUT"`, []string{"/cHECKOUT"}, false},
		{`not concat("a", http.request.uri.path) eq "a/checkout"`, []string{"/cHECKOUT"}, false},
		{`not url_decode(http.request.uri.path) eq "/checkout"`, []string{"/CHECKOUT"}, false},
		{`not http.request.uri.path.extension eq "php"`, []string{"/a.PHP"}, false},
		{`http.request.uri.path eq "/Open"`, []string{"/Open"}, true},
		{`http.request.uri.path matches "^/Op"`, []string{"/Open"}, true},
		{`http.request.uri.path eq "/Open"`, []string{"/open"}, false},
	} {
		if got := match(t, c.expression, &Request{Paths: c.paths, Scheme: "https"}); got != c.want {
			t.Errorf("%s on %q: got %v", c.expression, c.paths, got)
		}
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		expression string
		paths      []string
		why        string
	}{
		{`http.request.uri.path eq "/a"`, []string{"/a"}, ""},
		{`http.request.uri.path eq "/a"`, []string{"/b"}, ""},
		{`http.request.uri.path eq "/a"`, []string{"/a", "/b"}, "a site may read the path as /b"},
		{`http.request.uri.path ne "/b"`, []string{"/B"}, "a site may read the path as /b"},
		{`ssl`, nil, "the path can mean anything"},
	} {
		r := testkit.Must(Compile(c.expression, sources))(t)
		var s Scratch
		s.Ask(&Request{Paths: c.paths})
		matches, why := r.Explain(&s)
		if why != c.why || matches != (len(c.paths) == 1 && c.paths[0] == "/a") {
			t.Errorf("%s on %q: %v, %q", c.expression, c.paths, matches, why)
		}
	}
}

func TestNetworks(t *testing.T) {
	n := NewNetworks([]netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16"),
		netip.MustParsePrefix("::ffff:192.0.2.0/120"),
		netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("0.0.0.0/32"),
	})
	for address, want := range map[string]bool{
		"10.0.0.0": true, "10.255.255.255": true, "11.0.0.0": false, "9.255.255.255": false, "192.0.2.9": true,
		"::ffff:192.0.2.9": true,
		"2001:db8::1":      true, "2001:db9::": false, "0.0.0.0": true, "0.0.0.1": false, "::": false,
		"2001:db8::1%eth0": true,
	} {
		if got := n.Has(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	if n.Has(netip.Addr{}) || (*Networks)(nil).Has(netip.MustParseAddr("10.0.0.1")) {
		t.Error("nothing is in a set")
	}
}

// A rule over its budget does not match, nor does its negation, and it does not use up the budget of another one.
func TestBudget(t *testing.T) {
	req := &Request{Scheme: "https", Paths: []string{"/"}, Headers: []Header{{"User-Agent", strings.Repeat("a", 16<<10)}}}
	term := `lower(http.user_agent) contains "ab"`
	for _, expression := range []string{"not " + term + " and not " + term, `not http.user_agent contains "ab" and ssl`} {
		r := testkit.Must(Compile(expression, sources))(t)
		var s Scratch
		s.Ask(req)
		matched := 0
		for range 100 {
			if r.Match(&s) {
				matched++
			}
		}
		dear := strings.Contains(expression, "lower")
		if dear && matched > 0 || !dear && (matched == 0 || matched == 100) {
			t.Errorf("%s: matches %d times of 100", expression, matched)
		}
		s.Ask(req)
		if r.Match(&s) == dear {
			t.Errorf("%s: the budget is not each request's own", expression)
		}
	}
	many := sample()
	many.Headers = append(many.Headers, Header{"Cookie", strings.Repeat("x=1;", MaxCookies)})
	if match(t, `any(http.request.cookies["app"][*] eq "test")`, many) {
		t.Error("matches although there are more cookies than are looked at")
	}
}

// TestTheRecipesOfRooms: the rules that docs/ROOMS.md gives for programs let these pass, and no page.
func TestTheRecipesOfRooms(t *testing.T) {
	data := string(testkit.Must(os.ReadFile("../../../docs/ROOMS.md"))(t))
	_, data, _ = strings.Cut(data, "| program | expression |\n|---|---|\n")
	data, _, _ = strings.Cut(data, "\n\n")
	asks := map[string][]Request{ // by the beginning of the program's name
		"webhooks of payments": {{Method: "POST", Paths: []string{"/hooks/pay"}}},
		"ACME":                 {{Method: "GET", Paths: []string{"/.well-known/acme-challenge/x"}}},
		"feeds":                {{Method: "GET", Paths: []string{"/feed.xml"}}, {Method: "GET", Paths: []string{"/rss"}}},
		"manifests":            {{Method: "GET", Paths: []string{"/app.webmanifest"}}},
		"probes":               {{Method: "GET", Paths: []string{"/"}, Client: netip.MustParseAddr("192.0.2.11")}},
		"WordPress":            {{Method: "POST", Paths: []string{"/wp-cron.php"}, Query: "doing_wp_cron=1"}},
		"further parts":        {{Method: "PATCH", Paths: []string{"/files/2"}}, {Method: "HEAD", Paths: []string{"/files/2"}}},
	}
	rows := strings.Split(strings.TrimSpace(data), "\n")
	if len(rows) != len(asks) {
		t.Errorf("%d recipes, %d programs of this test", len(rows), len(asks))
	}
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		expression := strings.Trim(cells[1], "`")
		for name, requests := range asks {
			if !strings.HasPrefix(cells[0], name) {
				continue
			}
			for i := range requests {
				requests[i].Scheme, requests[i].Host = "https", "shop.example"
				if !match(t, expression, &requests[i]) {
					t.Errorf("%s: %s %s does not pass", cells[0], requests[i].Method, requests[i].Paths[0])
				}
			}
			delete(asks, name)
		}
		page := sample()
		page.Paths = []string{"/tickets"}
		if match(t, expression, page) {
			t.Errorf("%s: a page passes", cells[0])
		}
	}
	for name := range asks {
		t.Errorf("no recipe begins with %q", name)
	}
}
