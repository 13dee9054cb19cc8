package testkit

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Front is a server in front of a site that asks edges, with its files of deploy/fronts.
type Front struct {
	Name, Form string
	config     func(t testing.TB, dir string, at *FrontPlaces) (args, env []string)
}

// FrontPlaces are the addresses of a front.
type FrontPlaces struct {
	Visitors string // with TLS if there is a Cert
	Plain    string // for visitors without TLS, beside Visitors; "" for none
	Edges    []string
	Site     string
	Cert     string // a file with certificate and key; "" for no TLS

	Alone bool // the edges are not asked

	// Change changes a file of deploy/fronts; nil for no change.
	Change func(name, text string) string
}

// Fronts are all of them.
var Fronts = []Front{
	{"nginx", "accel", nginxConfig},
	{"haproxy", "headers", haproxyConfig},
	{"caddy", "headers", caddyConfig},
}

// Command returns the command that runs the front. Its configuration is written to dir. The test is skipped if the
// program is not installed.
func (f *Front) Command(t testing.TB, dir string, at *FrontPlaces) *exec.Cmd {
	t.Helper()
	args, env := f.config(t, dir, at)
	cmd := exec.Command(Program(t, f.Name), args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	return cmd
}

// FrontFile returns the path of a file of deploy/fronts.
func FrontFile(name string) string { return filepath.Join(root, "deploy", "fronts", name) }

// root is the folder of the module: that of go.mod at or above the folder of the test, also in a build with -trimpath.
var root = func() string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return "."
}()

// take copies a file of deploy/fronts into dir, with changes, and returns its path.
func (at *FrontPlaces) take(t testing.TB, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(FrontFile(name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if at.Change != nil {
		text = at.Change(name, text)
	}
	return WriteFile(t, dir, filepath.Base(name), text)
}

// WriteFile writes a file and returns its path.
func WriteFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func nginxConfig(t testing.TB, dir string, at *FrontPlaces) (args, env []string) {
	for _, name := range []string{"vestibule-http.conf", "vestibule-server.conf", "vestibule-strip.conf"} {
		at.take(t, dir, "nginx/"+name)
	}
	http, server := "include vestibule-http.conf;", "include vestibule-server.conf;"
	if at.Alone {
		http, server = "",
			`location / { proxy_pass http://site; proxy_http_version 1.1; proxy_set_header Host $host; proxy_set_header Connection ""; }`
	}
	listen := "listen " + at.Visitors
	if at.Cert != "" {
		listen += " ssl http2; ssl_certificate " + at.Cert + "; ssl_certificate_key " + at.Cert
	}
	if at.Plain != "" {
		listen += "; listen " + at.Plain
	}
	var edges strings.Builder
	for _, e := range at.Edges {
		edges.WriteString("server " + e + " max_fails=0; ")
	}
	return Nginx(t, dir, `upstream vestibule { `+edges.String()+`keepalive 64; keepalive_timeout 30s; }
	upstream site { server `+at.Site+`; keepalive 64; keepalive_timeout 30s; }
	`+http+`
	server { `+listen+`; `+server+` }`), nil
}

func haproxyConfig(t testing.TB, dir string, at *FrontPlaces) (args, env []string) {
	lua := at.take(t, dir, "haproxy/vestibule.lua")
	file := at.take(t, dir, "haproxy/haproxy.cfg")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	change := func(old, with string) {
		t.Helper()
		if strings.Count(text, old) != 1 {
			t.Fatalf("haproxy.cfg has %q %d times", old, strings.Count(text, old))
		}
		text = strings.Replace(text, old, with, 1)
	}
	const bind, server = `bind "$VESTIBULE_BIND"`, "\tserver edge-1 \"$VESTIBULE_EDGE\"\n"
	more := ""
	if at.Cert != "" {
		more = " ssl crt " + at.Cert + " alpn h2,http/1.1"
	}
	if at.Plain != "" {
		more += "\n\tbind " + at.Plain
	}
	change(bind, bind+more)
	var servers strings.Builder
	for i, e := range at.Edges {
		fmt.Fprintf(&servers, "\tserver edge-%d %s\n", i+1, e)
	}
	change(server, servers.String())
	if at.Alone {
		text = regexp.MustCompile(`.*(lua\.|txn\.).*\n`).ReplaceAllString(text, "")
	}
	WriteFile(t, dir, "haproxy.cfg", text)
	return []string{"-db", "-f", file}, []string{
		"VESTIBULE_BIND=" + at.Visitors, "VESTIBULE_SITE=" + at.Site, "VESTIBULE_LUA=" + lua,
		"VESTIBULE_QUESTIONS=unix@" + filepath.Join(dir, "questions"),
	}
}

func caddyConfig(t testing.TB, dir string, at *FrontPlaces) (args, env []string) {
	at.take(t, dir, "caddy/vestibule.caddy")
	site := func(addr string) string {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		return "://:" + port + " {\n"
	}
	text := "http" + site(at.Visitors)
	if at.Cert != "" {
		text = "https" + site(at.Visitors) + "\ttls " + at.Cert + " " + at.Cert + "\n"
	}
	text += "\timport vestibule\n}\n"
	if at.Plain != "" {
		text += "http" + site(at.Plain) + "\timport vestibule\n}\n"
	}
	file := WriteFile(t, dir, "Caddyfile", `{
	admin off
	auto_https off
	default_bind 127.0.0.1
	log {
		level ERROR
	}
}
import vestibule.caddy
`+text)
	return []string{"run", "--config", file, "--adapter", "caddyfile"},
		[]string{"HOME=" + dir, "VESTIBULE_EDGE=" + strings.Join(at.Edges, " "), "VESTIBULE_SITE=" + at.Site}
}

// Section compares the part of a file of deploy/fronts between two lines, or all of it, with the expected text. With
// rewrite it writes that instead.
func Section(t testing.TB, name, from, to, want string, rewrite bool) {
	t.Helper()
	path := FrontFile(name)
	data, err := os.ReadFile(path)
	if err != nil && !rewrite {
		t.Fatal(err)
	}
	before, got, after := "", string(data), ""
	if from != "" {
		var ok, closed bool
		before, got, ok = strings.Cut(got, from)
		got, after, closed = strings.Cut(got, to)
		if !ok || !closed {
			t.Fatalf("%s has no %q", name, from)
		}
		before, after = before+from, to+after
	}
	switch {
	case got == want:
	case !rewrite:
		t.Errorf("%s is not what it is made of: make golden", name)
	default:
		if err := os.WriteFile(path, []byte(before+want+after), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
