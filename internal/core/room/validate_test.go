package room

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/lab/testkit"
)

func TestValidateFields(t *testing.T) {
	for _, c := range []struct {
		field string
		set   func(s *Settings, v string)
		good  []string
		bad   map[string]string // value -> what the rule must say
	}{
		{
			"name", func(s *Settings, v string) { s.Name = v },
			[]string{"a", "A-b_9", strings.Repeat("a", 64)},
			map[string]string{
				"": "is required", "a b": "1 to 64", "a.b": "1 to 64", "é": "1 to 64", "a/b": "1 to 64", "a\n": "1 to 64",
				strings.Repeat("a", 65): "1 to 64",
			},
		},
		{
			"host", func(s *Settings, v string) { s.Host = v },
			[]string{"shop.example.com", "Shop.Example.COM.", "localhost", "10.0.0.5", "::1", "[::1]", "2001:DB8::1"},
			map[string]string{
				"": "is required", "shop.example.com:80": "port", "http://shop.example.com": "scheme", "*.example.com": "wildcard",
				"café.example": "xn--", "a_b.example": "DNS name", "a..b": "DNS name", "1.2.3": "DNS name", "[::1]:80": "DNS name",
				"[::1": "DNS name", "::1]": "DNS name", "a b": "DNS name", "fe80::1%eth0": "DNS name", "a/b": "DNS name",
				"a,b": "DNS name",
			},
		},
		{
			"path", func(s *Settings, v string) { s.Path = v },
			[]string{
				"", "/", "/sale", "/Sale/", "/a/b.c/d-e_f~g", "/café", "/caf%C3%A9", "/my sale", "/my%20sale", "/.well-known",
				"/a:b@c!$&'()+,=", "/s%61le",
				"/" + strings.Repeat("a", 1023), "/販売", "/a{b}|c^d",
			},
			map[string]string{
				"sale": "begin with a slash", `\sale`: "begin with a slash", "http://h/": "begin with a slash",
				"/a?b": `"?"`, "/a#b": `"#"`, "/a*": `"*"`, "/a;b": `";"`, `/a\b`: `"\\"`,
				"/a%": "hexadecimal", "/a%zz": "hexadecimal", "/a%2": "hexadecimal", "/%u0041": "hexadecimal",
				"/a\x00": "control", "/a%00": "control", "/a\n": "control", "/%0d": "control", "/\u0085": "control",
				"/\xff": "UTF-8", "/%ff": "UTF-8", "/%c0%af": "UTF-8",
				"//": "empty segment", "/a//b": "empty segment", "//a": "empty segment", "/a//": "empty segment",
				"/.": "plain", "/..": "plain", "/a/./b": "plain", "/a/../b": "plain", "/a/%2e%2e": "plain", "/a/.": "plain",
				"/a%2fb": "plain", "/a%2Fb": "plain", "/a%5cb": "plain", "/a%25": "plain", "/a%3fb": "plain", "/a%23": "plain",
				"/a%3bb": "plain", "/a%2a": "plain",
				"/a.": "plain", "/a./b": "plain", "/a%20": "plain", "/a /b": "plain", "/a./": "plain", "/a::$DATA": "plain",
				"/(S(x))": "plain",
				"/ｓale":   "compat", "/a\u200bb": "invisible", "/a%E2%80%8Bb": "invisible", "/a／b": "compat",
				"/" + strings.Repeat("a", 1024): "at most 1024",
			},
		},
		{
			"session_duration", func(s *Settings, v string) { s.SessionDuration, _ = time.ParseDuration(v) },
			[]string{"0s", "5s", "1h", "90s", "59m59s"},
			map[string]string{
				"4s": "got 4s", "1h1s": "got 1h0m1s", "5500ms": "whole seconds, got 5.5s", "-5m": "got -5m0s",
				"1ns": "got 1ns",
			},
		},
		{
			"partition_policy", func(s *Settings, v string) { s.PartitionPolicy = v },
			[]string{"", "serve", "cap"},
			map[string]string{
				"Cap": `must be serve or cap, got "Cap"`, "hold": "must be serve or cap",
				" ": "must be serve or cap",
			},
		},
		{
			"ticket_binding", func(s *Settings, v string) { s.TicketBinding = v },
			[]string{"", "none", "network", "strict"},
			map[string]string{"None": `must be none, network or strict, got "None"`, "soft": "must be none, network or strict"},
		},
		{
			"default_template_language", func(s *Settings, v string) { s.DefaultLanguage = v },
			[]string{"", "en-US", "ar-EG", "vi-VN"},
			map[string]string{"de": `tl-PH, th-TH, uk-UA or vi-VN, got "de"`, "DE-de": "must be", " ": "must be"},
		},
		{
			"queue_message", func(s *Settings, v string) { s.QueueMessage = v },
			[]string{"", "The sale starts at noon.", "<b>1 & 2</b>", strings.Repeat("x", MaxMessage)},
			map[string]string{
				strings.Repeat("x", MaxMessage+1): "must be at most 1000 bytes, got 1001",
				"a\nb":                            "without control characters", "\xff": "must be UTF-8",
			},
		},
		{
			"probation", func(s *Settings, v string) { s.Probation, _ = time.ParseDuration(v) },
			[]string{"0s", "10s", "1h", "45s"},
			map[string]string{
				"9s": "must be 10s to 1h in whole seconds, got 9s", "1h1s": "got 1h0m1s",
				"10500ms": "whole seconds", "-1m": "got -1m0s",
			},
		},
		{
			"grace", func(s *Settings, v string) { s.Grace, _ = time.ParseDuration(v) },
			[]string{"0s", "10s", "1h", "45s"},
			map[string]string{
				"9s": "must be 10s to 1h in whole seconds, got 9s", "1h1s": "got 1h0m1s",
				"10500ms": "whole seconds", "-5m": "got -5m0s",
			},
		},
		{
			"lost_after", func(s *Settings, v string) { s.LostAfter, _ = time.ParseDuration(v) },
			[]string{"0s", "1m", "24h", "90s"},
			map[string]string{
				"59s": "must be 1m to 24h in whole seconds, got 59s", "24h1s": "got 24h0m1s",
				"90500ms": "whole seconds", "-15m": "got -15m0s",
			},
		},
		{
			"on_isolation", func(s *Settings, v string) { s.OnIsolation, s.IsolationLimit = v, 1 },
			[]string{"", "hold", "open", "closed"},
			map[string]string{"OPEN": `must be hold, open or closed, got "OPEN"`, "serve": "must be hold, open or closed"},
		},
		{
			"origin", func(s *Settings, v string) { s.Origin = v },
			[]string{
				"http://a", "https://a.example:8443/", "http://10.0.0.5:80", "http://[2001:db8::1]:80", "HTTP://A.example",
				"http://my_app:8080",
				"http://127.0.0.1", "http://a:1", "http://a:65535",
			},
			map[string]string{
				"": "is required", "a.example": "absolute URL", "//a": "absolute URL", "http://": "absolute URL",
				"http:a":  "absolute URL",
				"ftp://a": "absolute URL", "unix:///x": "absolute URL", "http:///x": "absolute URL", "http://a b": "absolute URL",
				"http://%zz":        "absolute URL",
				"http://u:secret@a": "user name", "ftp://u:secret@a": "user name", "http://u:sec%ret@a": "user name",
				"http://a?x": "query", "http://a?": "query", "http://a#x": "fragment", "http://a#": "fragment",
				"http://a/b": "path", "http://a//": "path", "http://a/%2f": "path",
				"http://a:": "port", "http://a:0": "port of", "http://a:65536": "port of", "http://a:080": "port of",
				"http://-a": "name its host", "http://a..b": "name its host", "http://*": "name its host",
				"http://:80":        "name its host",
				"http://2852039166": "name its host", "http://0xa9fea9fe": "name its host", "http://169.254.43518": "name its host",
				"http://0251.0376.0251.0376": "name its host",
				"http://169.254.169.254":     "link-local", "http://[::ffff:169.254.169.254]": "link-local",
				"http://[fe80::1]": "link-local", "http://[fd00:ec2::254]:80": "link-local",
				"http://0.0.0.0": "link-local", "http://[::]": "link-local", "http://224.0.0.1": "link-local",
				"http://[ff02::1]":        "link-local",
				"http://[fe80::1%25eth0]": "zone", "http://169.254.169.254.": "name its host",
			},
		},
		{
			"frame_ancestors", func(s *Settings, v string) {
				own, partitioned := strings.CutPrefix(v, "partitioned ")
				if s.FrameAncestors = own; partitioned {
					s.CookiePartitioned, s.CookieSameSite = true, CookieNone
				}
				if with, ok := strings.CutPrefix(own, "domain "); ok {
					s.Host, s.CookieDomain, s.FrameAncestors = "tickets.shop.example", "shop.example", with
				}
			},
			[]string{
				"", "none", "https://shop.example.com", "http://www.shop.example.com:8080 https://example.com",
				"partitioned https://partner.example https://other.example:8443",
				"domain https://app.shop.example",
			},
			map[string]string{
				"*": "none or a list of origins", "'self'": "none or a list of origins", "none https://a.example": "none or a list",
				"https://partner.example":     "cookie_partitioned is false",
				"https://notshop.example.com": "no cookie in a frame on a page of https://notshop.example.com",
				"https://app.example.com":     "cookie_domain", "domain https://app.other.example": "cookie_partitioned",
				"partitioned https://A.example":                 "as browsers spell them",
				strings.Repeat("https://shop.example.com ", 33): "at most 32",
			},
		},
		{
			"cookie_partitioned", func(s *Settings, v string) { s.CookiePartitioned, s.CookieSameSite = true, v },
			[]string{"none"},
			map[string]string{
				"": "cookie_samesite is not none", "lax": "no such cookie in frames",
				"strict": "cookie_samesite is not none",
			},
		},
		{
			"methods", func(s *Settings, v string) { s.Methods = v },
			[]string{"", "PURGE", "PURGE BAN X-1", strings.Repeat("A ", MaxMethods)},
			map[string]string{
				"CONNECT": "never reaches it", "PURGE TRACE": "TRACE never", "PRI": "never", "purge": "A-Z 0-9", "A_B": "A-Z 0-9",
				"A,B":                   "A-Z 0-9",
				strings.Repeat("A", 33): "1 to 32", strings.Repeat("A ", MaxMethods+1): "at most 32 methods",
			},
		},
		{
			"cors_origins", func(s *Settings, v string) { s.CORSOrigins = v },
			[]string{"", "*", "https://a.example", "https://a.example http://127.0.0.1:3000  https://[::1]:8443"},
			map[string]string{
				"* https://a.example": "absolute URL", "a.example": "absolute URL",
				"https://a.example/": "as browsers spell them, https://a.example", "https://A.example": "as browsers spell",
				"https://a.example:443": "as browsers spell", "https://a.example/x": "path",
				"https://u:secret@a.example": "user name", strings.Repeat("https://a.example ", 33): "at most 32",
			},
		},
		{
			"cookie_domain", func(s *Settings, v string) {
				if host, domain, ok := strings.Cut(v, " in "); ok {
					s.Host, v = host, domain
				}
				s.CookieDomain = v
			},
			[]string{"", "shop.example.com", "example.com", "www.shop.co.uk in shop.co.uk", "a.b.github.io in b.github.io"},
			map[string]string{
				"shop.co.uk in co.uk": "public suffix", "a.github.io in github.io": "public suffix",
				"com": "two labels", ".example.com": "two labels", "Example.com": "two labels", "example.com.": "two labels",
				"127.1": "two labels", "a b.com": "two labels",
				"ample.com": "shop.example.com does not", "www.shop.example.com": "shop.example.com does not",
				"example.org": "shop.example.com does not",
			},
		},
		{
			"waiting_page", func(s *Settings, v string) { s.WaitingPage = v },
			[]string{"", "page.html", "a", "A-1_b.tmpl"},
			map[string]string{
				".": "file name", "..": "file name", "../x": "file name", "a/b": "file name", `a\b`: "file name",
				".hidden": "file name", "a b": "file name", strings.Repeat("a", 129): "file name",
			},
		},
	} {
		check := func(v string) Faults {
			s := valid("tickets", "shop.example.com", "/sale")
			c.set(&s, v)
			return s.Validate()
		}
		for _, v := range c.good {
			if fs := check(v); len(fs) > 0 {
				t.Errorf("%s %q: %v", c.field, v, fs)
			}
		}
		for v, want := range c.bad {
			fs := check(v)
			if len(fs) != 1 || fs[0].Field != c.field || !strings.Contains(fs[0].Rule, want) {
				t.Errorf("%s %q: faults %v, want one that says %q", c.field, v, fs, want)
			}
			if strings.Contains(fs.Error(), "secret") {
				t.Errorf("%s %q: the fault shows the password: %v", c.field, v, fs)
			}
		}
	}
}

func TestValidateNumbers(t *testing.T) {
	for n, ok := range map[int]bool{
		1: true, 2147483647: true, 0: false, -1: false, 2147483648: false,
		math.MinInt: false,
	} {
		for field, set := range map[string]func(*Settings){
			"total_active_users":   func(s *Settings) { s.TotalActiveUsers = n },
			"new_users_per_minute": func(s *Settings) { s.NewUsersPerMinute = n },
		} {
			s := valid("tickets", "shop.example.com", "/sale")
			set(&s)
			fs := s.Validate()
			want := Faults{{Field: field, Rule: fmt.Sprintf("must be 1 to 2147483647, got %d", n)}}
			if ok {
				want = nil
			}
			if diff := cmp.Diff(want, fs); diff != "" {
				t.Errorf("%s %d: %s", field, n, diff)
			}
		}
	}
	for _, c := range []struct {
		onIsolation string
		limit       int
		rule        string
	}{
		{"", 0, ""},
		{IsolationHold, 5, ""}, // an operator may close and open again without losing the number
		{IsolationHold, -1, "must be 0 to 2147483647, got -1"},
		{IsolationClosed, math.MaxInt, fmt.Sprint("must be 0 to 2147483647, got ", math.MaxInt)},
		{IsolationOpen, 1, ""},
		{IsolationOpen, MaxRate, ""},
		{IsolationOpen, 0, "must be 1 to 2147483647 where on_isolation is open, got 0"},
		{IsolationOpen, MaxRate + 1, "must be 1 to 2147483647 where on_isolation is open, got 2147483648"},
	} {
		s := valid("tickets", "shop.example.com", "/sale")
		s.OnIsolation, s.IsolationLimit = c.onIsolation, c.limit
		var want Faults
		if c.rule != "" {
			want = Faults{{Field: "isolation_limit", Rule: c.rule}}
		}
		if diff := cmp.Diff(want, s.Validate()); diff != "" {
			t.Errorf("on_isolation %q, isolation_limit %d: %s", c.onIsolation, c.limit, diff)
		}
	}
	for code, ok := range map[int]bool{
		0: true, 200: true, 202: true, 429: true, 503: true, 500: false, 201: false,
		-200: false,
	} {
		s := valid("tickets", "shop.example.com", "/sale")
		s.QueueingStatus = code
		if fs := s.Validate(); (len(fs) == 0) != ok {
			t.Errorf("queueing status %d: %v", code, fs)
		}
	}
}

// TestValidateAll checks that everything is named at once and in order.
func TestValidateAll(t *testing.T) {
	s := Settings{
		Host: "a:80", Path: "x", AdditionalRoutes: []Route{{"ok.example", "/y"}, {"", "z"}},
		SessionDuration: time.Second, QueueingStatus: 500, WaitingPage: "..", DefaultLanguage: "x", QueueMessage: "\x00",
		Probation: time.Second, Grace: time.Second, PartitionPolicy: "x", LostAfter: time.Second, OnIsolation: "x",
		IsolationLimit: -1,
		TicketBinding:  "x", CORSOrigins: "x", Preflights: "x", PreflightRate: -1, PreflightsEach: -1, CookieDomain: "x", Caching: "x", PageSources: "x",
	}
	var got []string
	for _, f := range s.Validate() {
		got = append(got, f.Field)
	}
	want := []string{
		"name", "host", "path", "additional_routes[1].host", "additional_routes[1].path", "total_active_users",
		"new_users_per_minute",
		"session_duration", "probation", "grace", "partition_policy", "lost_after", "on_isolation", "isolation_limit",
		"origin", "queueing_status_code", "waiting_page",
		"default_template_language", "queue_message", "ticket_binding", "cors_origins", "preflights", "preflights_per_minute", "preflights_per_session", "cookie_domain",
		"caching", "waiting_page_sources",
	}
	if !slices.Equal(got, want) {
		t.Errorf("faults of %v", got)
	}
	s = valid("tickets", "a.example", "/")
	s.AdditionalRoutes = make([]Route, MaxRoutes+1)
	if fs := s.Validate(); len(fs) != 1 || fs[0].String() != "additional_routes: must be at most 64, got 65" {
		t.Errorf("65 routes: %v", fs)
	}
}

func TestWithDefaults(t *testing.T) {
	in := Settings{
		Host: "Shop.Example.", Origin: "HTTP://Shop.Internal.:80/",
		AdditionalRoutes: []Route{{Host: "[::0:1]"}, {Host: "no good", Path: "/x"}},
	}
	got := in.WithDefaults()
	want := Settings{
		Host: "shop.example", Path: "/", SessionDuration: 5 * time.Minute, QueueingStatus: 200,
		Origin:    "http://shop.internal",
		Probation: time.Minute, Grace: 5 * time.Minute, PartitionPolicy: "serve", LostAfter: 15 * time.Minute,
		OnIsolation: "hold", DefaultLanguage: "en-US", TicketBinding: "none",
		AdditionalRoutes: []Route{{"::1", "/"}, {"no good", "/x"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if in.AdditionalRoutes[0].Path != "" {
		t.Error("WithDefaults has changed its receiver")
	}
	for in, want := range map[string]string{
		"https://a:443": "https://a", "https://a:80": "https://a:80", "http://a:443/": "http://a:443",
		"http://[2001:DB8::0]:80/": "http://[2001:db8::]",
		"http://My_App:80":         "http://my_app", "http://a/b": "http://a/b",
	} {
		if got := spellOrigin(in); got != want {
			t.Errorf("spellOrigin(%q) = %q, want %q", in, got, want)
		}
	}
}

func valid(name, host, path string) Settings {
	return Settings{
		Name: name, Host: host, Path: path,
		TotalActiveUsers: 1000, NewUsersPerMinute: 600, Origin: "http://10.0.0.5:8080",
	}
}

func mustSet(t testing.TB, doc Document) *Set {
	t.Helper()
	s := testkit.Must(NewSet(doc, 1))(t)
	return s
}
