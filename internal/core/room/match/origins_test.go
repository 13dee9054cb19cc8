package match_test

import (
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Models of how origins map the path of the request line to the served path. They are independent of the reading
// steps; each is written from the documentation of its original, and returns "" if that rejects the path.
var origins = map[string]func(string) string{
	"go ServeMux": func(p string) string {
		u, err := url.ParseRequestURI(p)
		if err != nil {
			return ""
		}
		return path.Clean("/" + u.Path)
	},
	"nginx": func(p string) string { return nginx(p) },
	"nginx with merge_slashes off": func(p string) string {
		d, err := url.PathUnescape(p)
		if err != nil {
			return ""
		}
		return twinDots(rooted(d))
	},
	"apache with AllowEncodedSlashes NoDecode": func(p string) string {
		return path.Clean("/" + twinDecode(p, true))
	},
	"tomcat": tomcat,
	"nginx before tomcat": func(p string) string {
		return tomcat(escapeAgain(nginx(p)))
	},
	"tomcat that unescapes once more": func(p string) string {
		return path.Clean("/" + twinDecode(tomcat(p), false))
	},
	"iis": func(p string) string {
		d := strings.ReplaceAll(twinDecode(p, false), `\`, "/")
		d = path.Clean("/" + d)
		return strings.ToLower(strings.TrimRight(path.Clean("/"+twinTrim(d)), "."))
	},
	"asp.net without cookies": func(p string) string {
		d := regexp.MustCompile(`/\([A-Z]\([^)/]*\)\)`).ReplaceAllString(twinDecode(p, false), "")
		return strings.ToLower(path.Clean("/" + d))
	},
	"node new URL": func(p string) string {
		p = strings.ReplaceAll(p, `\`, "/")
		p, _, _ = strings.Cut(p, "#")
		if strings.HasPrefix(p, "//") {
			p = strings.TrimLeft(p, "/")
			i := strings.IndexByte(p, '/')
			if i < 0 {
				return "/"
			}
			p = p[i:]
		}
		p = regexp.MustCompile(`(?i)%2e`).ReplaceAllString(p, ".")
		return twinDecode(twinDots(rooted(p)), false)
	},
	"python urlparse and unquote": func(p string) string {
		if strings.HasPrefix(p, "//") {
			p = rooted(twinAuthority.ReplaceAllString(p, ""))
		}
		if i := strings.LastIndexByte(p, '/'); i >= 0 {
			last, _, _ := strings.Cut(p[i:], ";")
			p = p[:i] + last
		}
		return path.Clean("/" + twinDecode(p, false))
	},
	"php with a case-blind file system": func(p string) string {
		return strings.ToUpper(path.Clean("/" + twinDecode(p, false)))
	},
	"an unescape until nothing is left": func(p string) string {
		for range 100 {
			d := twinDecode(p, false)
			if d == p {
				return path.Clean("/" + d)
			}
			p = d
		}
		return ""
	},
	"a C string": func(p string) string {
		d, _, _ := strings.Cut(twinDecode(p, false), "\x00")
		return path.Clean("/" + d)
	},
	"a normaliser of compatibility forms": func(p string) string {
		return path.Clean("/" + strings.ReplaceAll(twinCompat(strings.ToValidUTF8(twinDecode(p, false), "")), `\`, "/"))
	},
	"nothing at all": func(p string) string { return p },
}

func nginx(p string) string {
	d, err := url.PathUnescape(p)
	if err != nil || strings.Contains(d, "\x00") {
		return ""
	}
	return twinDots(rooted(twinSlashes.ReplaceAllString(d, "/")))
}

func tomcat(p string) string {
	d, err := url.PathUnescape(twinParam.ReplaceAllString(p, ""))
	if err != nil {
		return ""
	}
	return path.Clean("/" + strings.ReplaceAll(d, `\`, "/"))
}

func escapeAgain(p string) string { return (&url.URL{Path: p}).EscapedPath() }

// TestNoOriginIsReached compares Match with all models: if one of them serves content under /sale, the room gates.
func TestNoOriginIsReached(t *testing.T) {
	s := mustSet(t, attackDoc)
	reached := make(map[string]int)
	check := func(t rapid.TB, p string) {
		m := s.Match("shop.test", p)
		gated := m.Refuse
		for _, r := range m.Rooms() {
			gated = gated || r.Name == "sale"
		}
		for name, origin := range origins {
			served := origin(p)
			if !twinCovers("/sale", served) && !twinCovers("/sale", strings.ToLower(served)) {
				continue
			}
			reached[name]++
			if !gated {
				t.Fatalf("%q passes, and %s serves %q", p, name, served)
			}
		}
	}
	for _, a := range pathAttacks {
		check(t, a.path)
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			check(t, nastyPath().Draw(t, "path"))
		}
	})
	for name := range origins {
		if reached[name] < 10 {
			t.Errorf("%s was reached %d times: it proves nothing", name, reached[name])
		}
	}
}
