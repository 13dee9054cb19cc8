package edge

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path"
	"strings"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/match"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// withRules gives the room sale rules, and returns when they are in force.
func (st *stage) withRules(site string, all ...room.Rule) {
	st.t.Helper()
	d := document(site)
	d.Rooms[0].Rules = all
	st.docs.offer(node.RoomsDocument, roomsDocument(st.t, 2, d))
	eventually(st.t, "the rules are there", func() bool { return st.server.gate.Rooms().Version() == 2 })
}

// A visitor that matches a rule reaches the site though the room admits nobody: without a ticket, not counted and not
// queued.
func TestRule10Rules(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	byPath := room.Rule{Expression: `starts_with(http.request.uri.path, "/open/") and http.request.method eq "GET"`}
	st.withRules(
		st.origin.URL, byPath, room.Rule{Expression: `any(http.request.cookies["staff"][*] eq "a secret")`},
		room.Rule{Expression: `http.request.method eq "GET"`, Disabled: true},
		room.Rule{Expression: `not ip.src.country eq "DE"`}, room.Rule{Expression: `not ip.src in $nobody`},
		room.Rule{Expression: `not cf.client.bot`},
		room.Rule{
			Expression: `http.user_agent contains "Monitor" and http.host eq "sale.example" and ip.src in {127.0.0.0/8}`,
		},
	)
	passes := func(a answer) bool { return a.Header.Get(gate.DecisionHeader) == "" && a.StatusCode == http.StatusOK }
	v := st.door.visitor()
	for _, tc := range []struct {
		path    string
		header  []string
		passes  bool
		private bool
	}{
		{"/open/a.js", nil, true, false},
		{"/open/a.js?x=/../", nil, true, false},
		{"/buy", nil, false, false},
		{"/open", nil, false, false},
		{"/open/../buy", nil, false, false},
		{"/open/%2e%2e/buy", nil, false, false},
		{"/open/..%2fbuy", nil, false, false},
		{"/open/..;/buy", nil, false, false},
		{"/buy", []string{"Cookie", "staff=a secret"}, true, true},
		{"/buy", []string{"Cookie", "staff=another"}, false, false},
		{"/buy", []string{"User-Agent", "Monitor/1"}, true, true},
		{"/buy", []string{"X-User-Agent", "Monitor/1"}, false, false},
	} {
		a := v.get("http://sale.example"+tc.path, tc.header...)
		if passes(a) != tc.passes {
			t.Errorf("%s %v: %d, %q", tc.path, tc.header, a.StatusCode, a.Header.Get(gate.DecisionHeader))
		}
		if tc.passes && (len(a.Cookies()) > 0 || strings.Contains(a.Header.Get("Cache-Control"), "private") != tc.private) {
			t.Errorf("%s %v: passes with %v", tc.path, tc.header, a.Header)
		}
	}
	if a := v.ask(http.MethodPost, "http://sale.example/open/a", ""); passes(a) {
		t.Error("the rule is for GET, and POST passes")
	}
	if a := v.get("http://sale.example/open/a", gate.PollHeader, "1", "Accept",
		"application/json"); !strings.Contains(a.body, "entering") && a.Header.Get(gate.DecisionHeader) == "wait" {
		t.Errorf("a page that asks whether it may come in gets %s", a.body)
	}
	if n := st.server.gate.Status().Rooms["sale"].Sessions; n != 0 {
		t.Errorf("%d sessions are counted", n)
	}
	id := st.server.gate.Rooms().ByName("sale").Rules[0].ID
	if n := metric(t, st, "vestibule_edge_rule_matches_total", "room", "sale", "rule", id); n != 3 {
		t.Errorf("the rule by path let %v requests past", n)
	}
	if n := metric(t, st, "vestibule_edge_rules_unusable"); n != 3 {
		t.Errorf("%v rules cannot be evaluated", n)
	}
}

// Lists, crawlers and countries come from files of the edge.
func TestRulesGoByFiles(t *testing.T) {
	dir := t.TempDir()
	st := open(t, func(st *stage) {
		st.cfg.Rules.Lists = testkit.WriteFile(t, dir, "lists.json", `{"office": ["127.0.0.0/8"], "other": ["192.0.2.1"]}`)
		st.cfg.Rules.Crawlers = []string{testkit.WriteFile(t, dir, "bot.json",
			`{"creationTime": "2026", "prefixes": [{"ipv4Prefix": "127.0.0.1/32"}, {"ipv6Prefix": "2001:db8::/32"}]}`)}
	})
	st.up.queue(sale, 10, 1)
	st.withRules(st.origin.URL, room.Rule{Expression: `ip.src in $office and http.request.uri.path eq "/office"`},
		room.Rule{Expression: `cf.client.bot and http.request.uri.path eq "/bot"`},
		room.Rule{Expression: `ip.src in $other and http.request.uri.path eq "/other"`})
	for path, want := range map[string]bool{"/office": true, "/bot": true, "/other": false} {
		if a := st.door.visitor().get("http://sale.example" + path); (a.Header.Get(gate.DecisionHeader) == "") != want {
			t.Errorf("%s: %q", path, a.Header.Get(gate.DecisionHeader))
		}
	}
	for file, text := range map[string]string{"broken.json": `{"a": ["x"]}`, "none.json": `[]`} {
		cfg := DefaultConfig()
		cfg.Rules.Lists = testkit.WriteFile(t, dir, file, text)
		if _, err := ruleSources(&cfg); err == nil || !strings.Contains(err.Error(), "rules.lists: ") {
			t.Errorf("%s: %v", file, err)
		}
	}
	cfg := DefaultConfig()
	cfg.Geo.File = testkit.WriteFile(t, dir, "no.mmdb", "no database")
	if _, err := ruleSources(&cfg); err == nil || !strings.Contains(err.Error(), "geo.file: ") {
		t.Errorf("a broken file of countries: %v", err)
	}
}

// dirtyOrigins are sites that read paths each in their own way. They answer CHECKOUT at the
// path /checkout alone.
var dirtyOrigins = []struct {
	name, program string
	args          func(t *testing.T, dir, addr string) []string
}{
	{"nginx", "nginx", func(t *testing.T, dir, addr string) []string {
		return testkit.Nginx(t, dir,
			`server { listen `+addr+`; location ~* ^/checkout/?$ { return 200 CHECKOUT; } location / { return 200 other; } }`)
	}},
	{"apache", "apache2", func(t *testing.T, dir, addr string) []string { // every answer is the text of an error
		return []string{"-X", "-f", testkit.WriteFile(t, dir, "apache.conf", fmt.Sprintf(`
ServerRoot %[1]q
DefaultRuntimeDir %[1]q
DocumentRoot /usr/lib/apache2
PidFile apache.pid
ErrorLog apache.log
ServerName sale.example
Listen %[2]s
User www-data
Group www-data
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
AllowEncodedSlashes On
ErrorDocument 400 other
ErrorDocument 403 other
ErrorDocument 404 other
<LocationMatch "(?i)^/checkout/?$">
ErrorDocument 403 CHECKOUT
ErrorDocument 404 CHECKOUT
</LocationMatch>
`, dir, addr))}
	}},
	{"caddy", "caddy", func(t *testing.T, dir, addr string) []string {
		return []string{
			"run", "--adapter", "caddyfile", "--config",
			testkit.WriteFile(t, dir, "Caddyfile", "{\nadmin off\nauto_https off\n}\n"+
				"http://"+addr+", http://sale.example:"+addr[strings.LastIndexByte(addr, ':')+1:]+" {\n"+
				"bind 127.0.0.1\n@c path /checkout\nrespond @c CHECKOUT\nrespond other\n}\n"),
		}
	}},
	{"python", "python3", func(t *testing.T, dir, addr string) []string {
		host, port, _ := net.SplitHostPort(addr)
		return []string{testkit.WriteFile(t, dir, "site.py", fmt.Sprintf(`
import http.server, posixpath, urllib.parse
class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        path = posixpath.normpath(urllib.parse.unquote(urllib.parse.urlsplit(self.path).path, errors="surrogatepass"))
        body = b"CHECKOUT" if path.lstrip("/") == "checkout" else b"other"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer((%q, %s), Site).serve_forever()
`, host, port))}
	}},
	{"node", "node", func(t *testing.T, dir, addr string) []string {
		host, port, _ := net.SplitHostPort(addr)
		return []string{testkit.WriteFile(t, dir, "site.js", fmt.Sprintf(`
require("http").createServer((q, a) => {
	let path = "";
	try { path = decodeURIComponent(new URL(q.url, "http://site").pathname); } catch (e) { path = q.url; }
	path = require("path").posix.normalize(path).replace(/\/$/, "");
	a.end(path.toLowerCase() == "/checkout" ? "CHECKOUT" : "other");
}).listen(%s, %q);
`, port, host))}
	}},
}

// inProcess are further servers: Go's, and one that takes every liberty.
var inProcess = map[string]http.Handler{
	"go": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, checkout(path.Clean(r.URL.Path) == "/checkout"))
	}),
	"go mux": func() http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("/checkout", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "CHECKOUT") })
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "other") })
		return mux
	}(),
	"every liberty": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, _, _ := strings.Cut(r.RequestURI, "?")
		found := false
		readable := match.Readings(target, func(reading string) bool {
			found = found || strings.TrimSuffix(match.Fold(reading), "/") == "/checkout"
			return true
		})
		fmt.Fprint(w, checkout(found || !readable))
	}),
}

func checkout(yes bool) string {
	if yes {
		return "CHECKOUT"
	}
	return "other"
}

// spellings are spellings of a path that some server may read as /checkout while a rule reads another path.
func spellings() (all []string) {
	names := []string{
		"checkout", "Checkout", "chec%6bout", "chec%256bout", "checkout;.js", "checkout%3b.js", "checkout%00.js",
		"checkout?.js", "checkout%3f.js", "checkout%23.js", "checkout#.js",
		"checkout.", "checkout%20", "checkout::$DATA", "checkout/.", "checkout/x/..", "checkout/./a.js/..",
		"checkout;/a.js/..", "checkout%2f..%2fcheckout", "%ef%bd%83heckout", "checkout/..%2fcheckout",
	}
	for _, before := range []string{
		"/", "//", "/open/../", "/open/%2e%2e/", "/open/..%2f", `/open/..\`, "/open/..%5c",
		"/open/..;/", "/open/..;x/", "/open/..%3b/", "/open/..%00/", "/open/x/..//../", "/open/./../", "/open/%252e%252e/",
		"/open/..%252f", "//open/..//", "/open//../",
	} {
		for _, name := range names {
			all = append(all, before+name)
		}
	}
	return all
}

// No spelling of a path gets a page through a rule that is not meant for it: no request that a rule lets pass is
// answered with the page behind the room, however the site reads its path.
func TestOddSpellingsPassNoRule(t *testing.T) {
	try := func(t *testing.T, site string) {
		part := some(spellings(), 3)
		st := open(t, func(st *stage) { st.cfg.Connections.Total = 0 })
		st.up.queue(sale, 10, 1)
		st.withRules(site,
			room.Rule{Expression: `starts_with(http.request.uri.path, "/open/")`},
			room.Rule{Expression: `http.request.uri.path wildcard "/open/*"`},
			room.Rule{Expression: `ends_with(http.request.uri.path, ".js")`},
			room.Rule{Expression: `http.request.uri.path.extension in {"js" "css"}`},
			room.Rule{Expression: `http.request.uri.path matches "^/open/.*[^/]$"`},
			room.Rule{Expression: `not http.request.uri.path matches "^/checkout/?$"`},
			room.Rule{Expression: `not http.request.uri contains "checkout"`},
			room.Rule{Expression: `not starts_with(raw.http.request.uri.path, "/checkout")`},
		)
		behind, past := 0, 0
		for _, spelling := range part {
			_, direct := st.door.via(strings.TrimPrefix(site, "http://"), request("GET "+spelling+" HTTP/1.1", "sale.example"))
			if direct == "CHECKOUT" {
				behind++
			}
			switch _, body := st.door.raw(request("GET "+spelling+" HTTP/1.1", "sale.example")); body {
			case "CHECKOUT":
				t.Errorf("%s passes a rule, and the site serves what is behind the room", spelling)
			case "other":
				past++
			}
		}
		t.Logf("%d spellings: the site takes %d for /checkout; %d others passed a rule", len(part), behind, past)
		if behind == 0 {
			t.Error("the site takes no spelling for /checkout: this proves nothing")
		}
		if _, body := st.door.raw(request("GET /open/a.js HTTP/1.1", "sale.example")); body != "other" {
			t.Errorf("a plain path that the rules are meant for: %q", body)
		}
	}
	for name, site := range inProcess {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(site)
			t.Cleanup(s.Close)
			try(t, s.URL)
		})
	}
	for _, o := range dirtyOrigins {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			file := testkit.Program(t, o.program)
			addr := startProgram(t, o.name,
				func(addr, dir string) *exec.Cmd { return exec.Command(file, o.args(t, dir, addr)...) })
			try(t, "http://"+addr)
		})
	}
}

// via is raw to another server.
func (d *door) via(addr, text string) (codes []int, last string) {
	other := *d
	other.instead = addr
	return other.raw(text)
}

// mmdb returns a file in the form of MaxMind's that knows one thing of 127.0.0.0/8 alone.
func mmdb(data []byte) []byte {
	text := func(s string) []byte { return append([]byte{0x40 | byte(len(s))}, s...) }
	var out []byte
	const nodes = 8
	for i := range nodes { // 127 is 01111111
		next, other := i+1, nodes
		if i == nodes-1 {
			next = nodes + 16
		}
		if i == 0 {
			next, other = other, next
		}
		out = append(out, byte(other>>16), byte(other>>8), byte(other), byte(next>>16), byte(next>>8), byte(next))
	}
	out = append(append(out, make([]byte, 16)...), data...)
	out = append(append(out, "\xab\xcd\xefMaxMind.com"...), 0xe0|9)
	for _, f := range []struct {
		key   string
		value []byte
	}{
		{"node_count", []byte{0xc1, nodes}},
		{"record_size", []byte{0xa1, 24}},
		{"ip_version", []byte{0xa1, 4}},
		{"database_type", text("Test")},
		{"languages", []byte{0x00, 0x04}},
		{"binary_format_major_version", []byte{0xa1, 2}},
		{"binary_format_minor_version", []byte{0xa0}},
		{"build_epoch", []byte{0x01, 0x02, 1}},
		{"description", []byte{0xe0}},
	} {
		out = append(append(out, text(f.key)...), f.value...)
	}
	return out
}

// A rule on the country uses the operator's file, one on the network a second file; a value in neither is missing.
func TestRulesGoByCountries(t *testing.T) {
	dir := t.TempDir()
	country := "\xe2\x47country\xe2\x48iso_code\x42DE\x54is_in_european_union\x01\x07\x49continent\xe1\x44code\x42EU"
	st := open(t, func(st *stage) {
		st.cfg.Geo.File = testkit.WriteFile(t, dir, "country.mmdb", string(mmdb([]byte(country))))
		st.cfg.Geo.ASN = testkit.WriteFile(t, dir, "asn.mmdb",
			string(mmdb([]byte("\xe1\x58autonomous_system_number\xc2\x0c\xf8"))))
	})
	st.up.queue(sale, 10, 1)
	st.withRules(st.origin.URL, room.Rule{Expression: `ip.src.country eq "DE" and ip.src.continent eq "EU" and ip.src.is_in_european_union and http.request.uri.path eq "/de"`},
		room.Rule{Expression: `ip.src.asnum eq 3320 and http.request.uri.path eq "/asn"`},
		room.Rule{Expression: `ip.src.subdivision_1_iso_code ne "BY" and http.request.uri.path eq "/by"`},
		room.Rule{Expression: `ip.src.country ne "DE" and http.request.uri.path eq "/ne"`})
	for path, want := range map[string]bool{"/de": true, "/asn": true, "/by": false, "/ne": false} {
		if a := st.door.visitor().get("http://sale.example" + path); (a.Header.Get(gate.DecisionHeader) == "") != want {
			t.Errorf("%s: %q", path, a.Header.Get(gate.DecisionHeader))
		}
	}
	if n := metric(t, st, "vestibule_edge_rules_unusable"); n != 0 {
		t.Errorf("%v rules cannot be evaluated", n)
	}
}
