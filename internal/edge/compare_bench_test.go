//go:build linux

package edge

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sync/errgroup"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// BenchmarkCompare runs an edge with each front and its peers in turns, each on the first core. It reports answers
// per second, processor time per answer, and the saving against the first peer. The saving is taken per round, since
// the machine may have other work. Client and site run on the other core. make compare runs it.
func BenchmarkCompare(b *testing.B) {
	tools := needs(b, "nginx", "wrk", "taskset")
	b.Run("proxied", func(b *testing.B) { compareProxied(b, tools) })
	b.Run("pages", func(b *testing.B) { comparePages(b, tools) })
	b.Run("polls", func(b *testing.B) { comparePolls(b, tools) })
	b.Run("TLS", func(b *testing.B) { compareTLS(b, tools) })
	b.Run("HTTP2", func(b *testing.B) { compareHTTP2(b, tools) })
	b.Run("newcomers", func(b *testing.B) { compareNewcomers(b, tools) })
	b.Run("open", func(b *testing.B) { compareOpen(b, tools) })
	b.Run("idle", compareIdle)
}

// table runs the sides in turns and reports the results.
func table(b *testing.B, tools map[string]string, sides []*side) {
	b.Helper()
	turns(b, tools, sides)
	var out strings.Builder
	fmt.Fprintf(&out, "\n%-34s %10s %10s   %s\n", b.Name(), "answers/s", "us of CPU",
		"times "+sides[0].name+" (least, most)")
	for _, s := range sides {
		var ratio []float64
		for i := range s.cpus {
			ratio = append(ratio, sides[0].cpus[i]/s.cpus[i])
		}
		fmt.Fprintf(&out, "%-34s %10.0f %10.1f   %.2f (%.2f, %.2f)\n", s.name, median(s.rates), median(s.cpus)*1e6,
			median(ratio), slices.Min(ratio), slices.Max(ratio))
		if what := strings.TrimPrefix(b.Name(), "BenchmarkCompare/"); what != "polls" { // these are judged beside a Go program
			checkFront(b, what, s.name, median(ratio))
		}
	}
	b.Log(out.String())
	b.ReportMetric(0, "ns/op")
}

// checkFront judges a figure of an edge by its goal; pages that are not compressed have none.
func checkFront(b *testing.B, what, side string, value float64) {
	b.Helper()
	for _, front := range []string{frontFast, frontNetHTTP} {
		if name := "edge, " + front; strings.HasPrefix(side, name) && !strings.HasSuffix(side, "as it is") {
			figures.Check(b, "compare: "+strings.ReplaceAll(what, "_", " "), name, value)
		}
	}
}

// beside adds the side of a program, which must be installed.
func beside(b *testing.B, sides *[]*side, program string, start func(path string) *side) {
	b.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		b.Fatalf("%v: make compare installs it", err)
	}
	*sides = append(*sides, start(path))
}

// benchSite is the common site: 1 KiB from an nginx on the other core.
func benchSite(b *testing.B, tools map[string]string) string {
	site, _ := startNginx(b, tools, 1, "",
		`location / { add_header Content-Type text/plain; return 200 "`+strings.Repeat("x", 1024)+`"; }`)
	return site
}

// passesOn is the nginx that passes on to a site and decides nothing.
func passesOn(site string) (http, server string) {
	return "upstream site { server " + site + "; keepalive 128; keepalive_requests 1000000000; }",
		`location / { proxy_pass http://site; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; }`
}

// benchEdge is an edge before a site.
func benchEdge(b *testing.B, front, site string, secure bool) *stage {
	st := newStage(b, func(st *stage) {
		st.cfg.Reader, st.params.Refresh = front, time.Hour
		if secure {
			st.withTLS()
		}
	})
	st.unaudited()
	st.serve(document("http://" + site))
	return st
}

// whoIsInside are the header lines of a visitor with a session.
func whoIsInside(st *stage, secure bool) []string {
	seal := st.keys.seal
	if secure {
		seal = st.keys.sealTLS
	}
	return []string{"Cookie: theirs=1; " + seal("sale", session(7)), "Accept: text/html"}
}

func compareProxied(b *testing.B, tools map[string]string) {
	site := benchSite(b, tools)
	plain, worker := func() (string, int) { h, s := passesOn(site); return startNginx(b, tools, 0, h, s) }()
	const path = "/tickets?show=1"
	header := []string{"Cookie: theirs=1; place=" + strings.Repeat("a", 100), "Accept: text/html"}
	sides := []*side{{name: "nginx", url: "http://" + plain + path, header: header, pid: worker}}
	beside(b, &sides, "haproxy", func(program string) *side {
		addr, pid := startHAProxy(b, tools, program, site, "")
		return &side{name: "HAProxy", url: "http://" + addr + path, header: header, pid: pid}
	})
	beside(b, &sides, "haproxy", func(program string) *side {
		// A visitor in the table passes; another one is added while there is room.
		addr, pid := startHAProxy(b, tools, program, site,
			"\tstick-table type string len 128 size 100k expire 5m store gpc0\n\tacl inside req.cook(place),in_table\n"+
				"\tacl full table_avl lt 1\n"+
				"\thttp-request return status 503 content-type text/html string \"please wait\" if !inside full\n"+
				"\thttp-request track-sc0 req.cook(place)\n")
		return &side{name: "HAProxy, waiting room by a table", url: "http://" + addr + path, header: header, pid: pid}
	})
	beside(b, &sides, "caddy", func(program string) *side {
		addr, pid := startCaddy(b, tools, program, site)
		return &side{name: "Caddy", url: "http://" + addr + path, header: header, pid: pid}
	})
	for _, front := range []string{frontFast, frontNetHTTP} {
		st := benchEdge(b, front, site, false)
		sides = append(sides, &side{
			name: "edge, " + front, url: "http://" + st.door.addr(0) + path,
			header: whoIsInside(st, false), pid: os.Getpid(),
		})
	}
	sides = append(sides, &side{
		name: "bytes passed on, in Go", url: "http://" + bareProxy(b, site) + path, header: header,
		pid: os.Getpid(),
	})
	table(b, tools, sides)
}

// bareProxy is the lower bound of a proxy in Go: it copies between two connections without parsing.
func bareProxy(b *testing.B, site string) (addr string) {
	b.Helper()
	return testkit.Listen(b, func(c net.Conn) {
		up, err := net.Dial("tcp", site)
		if err != nil {
			return
		}
		defer up.Close()
		for buf := make([]byte, 16<<10); ; {
			for _, way := range [2][2]net.Conn{{c, up}, {up, c}} {
				n, err := way[0].Read(buf)
				if err == nil {
					_, err = way[1].Write(buf[:n])
				}
				if err != nil {
					return
				}
			}
		}
	})
}

func comparePages(b *testing.B, tools map[string]string) {
	const html, zipped = "Accept: text/html", "Accept-Encoding: gzip, deflate, br"
	var edges []*side
	sizes := map[string]int{}
	for _, front := range []string{frontFast, frontNetHTTP} {
		st := benchEdge(b, front, "127.0.0.1:9", false)
		st.up.queue(sale, 1234, 2)
		for _, coding := range []string{"gzip", "identity"} {
			a := st.door.visitor().get(saleURL, "Accept-Encoding", coding)
			if sizes[coding] = len(a.body); len(a.Header["Set-Cookie"]) != 1 ||
				(coding == "gzip") != (a.Header.Get("Content-Encoding") == "gzip") {
				b.Fatal(a.Header)
			}
		}
		edges = append(edges, &side{
			name: "edge, " + front + ", gzip", url: "http://" + st.door.addr(0) + "/",
			header: []string{html, zipped}, pid: os.Getpid(),
		},
			&side{
				name: "edge, " + front + ", as it is", url: "http://" + st.door.addr(0) + "/", header: []string{html},
				pid: os.Getpid(),
			})
	}
	long, longWorker := startFile(b, tools, sizes["identity"])
	short, shortWorker := startFile(b, tools, sizes["gzip"])
	table(b, tools, append([]*side{
		{name: fmt.Sprintf("nginx, file of %d B", sizes["identity"]), url: long, header: []string{html}, pid: longWorker},
		{name: fmt.Sprintf("nginx, file of %d B", sizes["gzip"]), url: short, header: []string{html}, pid: shortWorker},
		{
			name: "as many, whatever is asked, in Go", url: "http://" + echoSite(b, sizes["gzip"]) + "/", header: []string{html},
			pid: os.Getpid(),
		},
		{name: fmt.Sprintf("%d B, whatever is asked, in Go", sizes["identity"]), url: "http://" +
			echoSite(b, sizes["identity"]) + "/", header: []string{html}, pid: os.Getpid()},
	}, edges...))
}

// pollScript is a waiting room with a sorted set: a poll keeps the place and returns it.
const pollScript = `
local redis = require "nginx.redis"
local r = redis:new()
r:set_timeout(1000)
assert(r:connect("127.0.0.1", %s))
local me = ngx.var.cookie_place
r:init_pipeline()
r:zadd("line", "NX", ngx.now(), me)
r:set("seen:" .. me, 1, "EX", 60)
r:zrank("line", me)
r:zcard("line")
local got = assert(r:commit_pipeline())
r:set_keepalive(60000, 128)
ngx.header["Content-Type"] = "application/json"
ngx.header["Cache-Control"] = "no-store"
ngx.say('{"ahead":' .. got[3] .. ',"waiting":' .. got[4] .. ',"updatedAt":"' .. ngx.utctime() .. '"}')
`

func comparePolls(b *testing.B, tools map[string]string) {
	var sides []*side
	const module = "/usr/lib/nginx/modules/ngx_http_lua_module.so"
	if _, err := os.Stat(module); err != nil {
		b.Fatalf("nginx has no Lua: %v: make compare installs it", err)
	}
	beside(b, &sides, "redis-server", func(program string) *side {
		addr := testkit.FreeAddr(b)
		_, port, err := net.SplitHostPort(addr)
		testkit.NoError(b, err)
		pid := startServer(b, tools, addr, program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly",
			"no")
		script := filepath.Join(b.TempDir(), "poll.lua")
		testkit.NoError(b, os.WriteFile(script, fmt.Appendf(nil, pollScript, port), 0o600))
		lua, worker := startNginx(b, tools, 0, "", "location / { content_by_lua_file "+script+"; }", "",
			"-g", "load_module /usr/lib/nginx/modules/ndk_http_module.so; load_module "+module+";")
		return &side{
			name: "nginx with Lua, Redis", url: "http://" + lua + "/",
			header: []string{"Cookie: place=" + strings.Repeat("a", 32)}, pid: worker, helper: pid,
		}
	})
	for _, front := range []string{frontFast, frontNetHTTP} {
		st := benchEdge(b, front, "127.0.0.1:9", false)
		st.up.queue(sale, 1234, 2)
		place := inLine(7)
		place.Joined = st.server.Status().Time
		sides = append(sides, &side{
			name: "edge, " + front, url: "http://" + st.door.addr(0) + "/",
			header: []string{"Cookie: " + st.keys.seal("sale", place), "Accept: application/json", "Vestibule-Poll: 1"},
			pid:    os.Getpid(),
		})
	}
	sides = append(sides, &side{
		name: "1 KiB, whatever is asked, in Go", url: "http://" + echoSite(b, 1024) + "/",
		header: sides[len(sides)-1].header, pid: os.Getpid(),
	})
	table(b, tools, sides)
	loop := sides[len(sides)-1]
	for _, s := range sides {
		var ratio []float64
		for i := range s.cpus {
			ratio = append(ratio, loop.cpus[i]/s.cpus[i])
		}
		checkFront(b, "polls beside a Go program", s.name, median(ratio))
	}
}

func compareTLS(b *testing.B, tools map[string]string) {
	site := benchSite(b, tools)
	proxied, pages := secureSides(b, tools, site, false)
	b.Run("proxied", func(b *testing.B) { table(b, tools, proxied) })
	b.Run("pages", func(b *testing.B) { table(b, tools, pages) })
}

func compareHTTP2(b *testing.B, tools map[string]string) {
	h2load, err := exec.LookPath("h2load")
	if err != nil {
		b.Fatalf("%v: make compare installs it", err)
	}
	tools["h2load"] = h2load
	proxied, pages := secureSides(b, tools, benchSite(b, tools), true)
	b.Run("proxied", func(b *testing.B) { table(b, tools, proxied) })
	b.Run("pages", func(b *testing.B) { table(b, tools, pages) })
}

// secureSides are the sides with TLS: proxies to a site, and servers of pages.
func secureSides(b *testing.B, tools map[string]string, site string, http2 bool) (proxied, pages []*side) {
	dir := b.TempDir()
	cert := TLSConfig{Cert: []string{filepath.Join(dir, "cert.pem")}, Key: []string{filepath.Join(dir, "key.pem")}}
	pair(b, cert, 2)
	const zipped = "Accept-Encoding: gzip"
	size := 0
	for _, front := range []string{frontFast, frontNetHTTP} {
		st := benchEdge(b, front, site, true)
		waits := benchEdge(b, front, site, true)
		waits.up.queue(sale, 1234, 2)
		size = len(waits.door.secure(false).get("https://sale.example/", "Accept-Encoding", "gzip").body)
		proxied = append(proxied, &side{
			name: "edge, " + front, url: "https://" + st.door.addr(0) + "/tickets?show=1",
			header: whoIsInside(st, true), pid: os.Getpid(), http2: http2,
		})
		pages = append(pages, &side{
			name: "edge, " + front + ", pages, gzip", url: "https://" + waits.door.addr(0) + "/",
			header: []string{"Accept: text/html", zipped}, pid: os.Getpid(), http2: http2,
		})
	}

	speaks := " ssl"
	if http2 {
		speaks = " ssl http2"
		for n, sides := range map[int]*[]*side{1024: &proxied, size: &pages} {
			*sides = append(*sides, &side{name: fmt.Sprintf("%d B, whatever is asked, in Go", n), url: "https://" +
				bareHTTP2(b, cert, n) + "/", header: (*sides)[0].header, pid: os.Getpid(), http2: true})
		}
	}
	tls := "ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate " + cert.Cert[0] + "; ssl_certificate_key " + cert.Key[0] + "; "
	h, s := passesOn(site)
	addr, worker := startNginx(b, tools, 0, h, tls+s, speaks)
	proxied = append([]*side{{
		name: "nginx", url: "https://" + addr + "/tickets?show=1", header: proxied[0].header,
		pid: worker, http2: http2,
	}}, proxied...)
	testkit.NoError(b, os.WriteFile(filepath.Join(dir, "page.html"), bytes.Repeat([]byte("x"), size), 0o600))
	addr, worker = startNginx(b, tools, 0, "sendfile on; tcp_nopush on; default_type text/html; open_file_cache max=10;",
		tls+"root "+dir+";", speaks)
	pages = append([]*side{{
		name: fmt.Sprintf("nginx, file of %d B", size), url: "https://" + addr + "/page.html",
		header: pages[0].header, pid: worker, http2: http2,
	}}, pages...)
	return proxied, pages
}

// bareHTTP2 is the lower bound of an answer of size bytes over HTTP/2: a loop on the Framer of x/net that decides
// nothing, with one write for all answers to what was read.
func bareHTTP2(b *testing.B, cert TLSConfig, size int) (addr string) {
	b.Helper()
	pair := testkit.Must(tls.LoadX509KeyPair(cert.Cert[0], cert.Key[0]))(b)
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	var head bytes.Buffer
	for _, f := range [][2]string{
		{":status", "200"},
		{"content-type", "text/html; charset=utf-8"},
		{"cache-control", "private, no-store, no-transform"},
		{"content-length", strconv.Itoa(size)},
	} {
		if err := hpack.NewEncoder(&head).WriteField(hpack.HeaderField{
			Name: f[0], Value: f[1],
			Sensitive: true,
		}); err != nil {
			b.Fatal(err)
		}
	}
	body := bytes.Repeat([]byte("x"), size)
	return testkit.Listen(b, func(c net.Conn) {
		conn := tls.Server(c, cfg)
		r := bufio.NewReader(conn)
		if _, err := r.Discard(len(http2.ClientPreface)); err != nil {
			return
		}
		var out bytes.Buffer
		f, unpack := http2.NewFramer(&out, r), hpack.NewDecoder(4096, func(hpack.HeaderField) {})
		f.SetReuseFrames()
		window, asked := 65535, []uint32(nil)
		for err := f.WriteSettings(); err == nil; { // writes to memory do not fail
			for ; len(asked) > 0 && window >= size; asked = asked[1:] {
				window -= size
				err = errors.Join(f.WriteHeaders(http2.HeadersFrameParam{
					StreamID: asked[0], BlockFragment: head.Bytes(),
					EndHeaders: true,
				}), f.WriteData(asked[0], true, body))
			}
			if r.Buffered() == 0 && out.Len() > 0 {
				_, err = out.WriteTo(conn)
			}
			var frame http2.Frame
			if err == nil {
				frame, err = f.ReadFrame()
			}
			switch frame := frame.(type) {
			case *http2.HeadersFrame:
				_, err = unpack.Write(frame.HeaderBlockFragment())
				asked = append(asked, frame.StreamID)
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					err = f.WriteSettingsAck()
				}
			case *http2.WindowUpdateFrame:
				if frame.StreamID == 0 {
					window += int(frame.Increment)
				}
			}
		}
	})
}

// compareNewcomers compares visits: a new connection with TLS, a page over HTTP/2, and the end.
func compareNewcomers(b *testing.B, tools map[string]string) {
	_, pages := secureSides(b, tools, benchSite(b, tools), true)
	for _, visit := range []string{"new", "new, X25519MLKEM768", "back"} {
		var sides []*side
		for _, s := range pages[:len(pages)-1] { // the loop serves pages alone
			sides = append(sides, &side{name: s.name, url: s.url, pid: s.pid, visit: visit})
		}
		b.Run(visit, func(b *testing.B) { table(b, tools, sides) })
	}
}

const visitsEnv = "VESTIBULE_TEST_VISITS"

// The process of the visitors is this test binary.
func init() {
	if to := os.Getenv(visitsEnv); to != "" {
		n, err := visits(to, os.Getenv(visitsEnv+"_KIND"))
		fmt.Println(n, err)
		os.Exit(0)
	}
}

// loadVisits is load with a connection for each request.
func (s *side) loadVisits(b *testing.B, tools map[string]string) (rate, cpu float64) {
	b.Helper()
	used, begun := s.used(b), time.Now()
	visitors := exec.CommandContext(b.Context(), tools["taskset"], "-c", "1", os.Args[0])
	visitors.Env = append(os.Environ(), visitsEnv+"="+s.url, visitsEnv+"_KIND="+s.visit)
	out, err := visitors.CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	took := time.Since(begun).Seconds()
	n, err := strconv.ParseFloat(strings.TrimSuffix(string(out), " <nil>\n"), 64)
	if err != nil || n == 0 {
		b.Fatalf("%s: %s", s.name, out)
	}
	return n / took, (s.used(b) - used) / n
}

// staying is a visit that does not end; there are so many at a time.
const (
	staying = "stay"
	stayers = 3000
)

var kept []*rawHTTP2 // by those who stay

// visits visits a page for a second, eight at a time, and returns how often. Who comes back resumes its TLS session.
func visits(to, kind string) (n int64, err error) {
	at, err := url.Parse(to)
	if err != nil {
		return 0, err
	}
	cfg := &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}}
	switch kind {
	case "new, X25519MLKEM768":
		cfg.CurvePreferences = nil
	case "back":
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	visit := func(first bool) error {
		c, err := openHTTP2By(at.Host, cfg.Clone(), nil)
		if err != nil {
			return err
		}
		if kind == staying {
			kept = append(kept, c)
		} else {
			defer c.Close()
		}
		stream, err := c.ask(http.MethodGet, "sale.example", at.Path, "accept", "text/html", "accept-encoding", "gzip")
		if err != nil {
			return err
		}
		status, body, err := c.hear(stream)
		if got := c.Conn.(*tls.Conn).ConnectionState(); err == nil &&
			(status != "200" || len(body) == 0 || got.DidResume != (kind == "back" && !first)) {
			err = fmt.Errorf("answered %s with %d bytes, resumed: %v", status, len(body), got.DidResume)
		}
		return err
	}
	if err := visit(true); err != nil {
		return 0, err
	}
	if kind == staying {
		for range stayers - 1 {
			if err := visit(false); err != nil {
				return 0, err
			}
		}
		fmt.Println(stayers)
		select {} // until it is killed
	}
	var all atomic.Int64
	var running errgroup.Group
	for begun, i := time.Now(), 0; i < 8; i++ {
		running.Go(func() error {
			for time.Since(begun) < time.Second {
				if err := visit(false); err != nil {
					return err
				}
				all.Add(1)
			}
			return nil
		})
	}
	err = running.Wait()
	return all.Load(), err
}

var doneByHTTP2 = regexp.MustCompile(`requests: [0-9]+ total, [0-9]+ started, [0-9]+ done, ([0-9]+) succeeded, ([0-9]+) failed`)

// loadHTTP2 is load with HTTP/2.
func (s *side) loadHTTP2(b *testing.B, tools map[string]string) (rate, cpu float64) {
	b.Helper()
	used, begun := s.used(b), time.Now()
	args := []string{"-c", "1", tools["h2load"], "-t1", "-c64", "-m8", "-D1", "-H", ":authority: sale.example"}
	for _, line := range s.header {
		args = append(args, "-H", line)
	}
	out, err := exec.CommandContext(b.Context(), tools["taskset"], append(args, s.url)...).CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	took := time.Since(begun).Seconds()
	done := doneByHTTP2.FindSubmatch(out)
	if done == nil || string(done[2]) != "0" {
		b.Fatalf("%s", out)
	}
	n, err := strconv.ParseFloat(string(done[1]), 64)
	if err != nil || n == 0 {
		b.Fatalf("%v: %s", err, out)
	}
	return n / took, (s.used(b) - used) / n
}

// compareOpen measures latency at a steady rate of requests, independent of the answers: 5,000 per second over 50
// connections. Client and site run on the other core.
func compareOpen(b *testing.B, tools map[string]string) {
	h2load, err := exec.LookPath("h2load")
	if err != nil {
		b.Fatalf("%v: make compare installs it", err)
	}
	site := benchSite(b, tools)
	h, s := passesOn(site)
	plain, _ := startNginx(b, tools, 0, h, s)
	sides := []*side{{name: "nginx", url: "http://" + plain + "/tickets?show=1", header: []string{"Accept: text/html"}}}
	for _, front := range []string{frontFast, frontNetHTTP} {
		st := benchEdge(b, front, site, false)
		sides = append(sides, &side{
			name: "edge, " + front, url: "http://" + st.door.addr(0) + "/tickets?show=1",
			header: whoIsInside(st, false),
		})
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	pin(b, tools["taskset"], "0")
	defer pin(b, tools["taskset"], "0-"+strconv.Itoa(runtime.NumCPU()-1))
	const rounds = 5
	p50, p99, answers := make([][]float64, len(sides)), make([][]float64, len(sides)), make([]int, len(sides))
	for range rounds {
		for i, s := range sides {
			took := s.open(b, tools["taskset"], h2load)
			p50[i], p99[i] = append(p50[i], took[len(took)/2]), append(p99[i], took[len(took)*99/100])
			answers[i] += len(took)
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\n%-34s %10s %10s   %s\n", b.Name(), "p50, us", "p99, us", "times "+sides[0].name)
	for i, s := range sides {
		fmt.Fprintf(&out, "%-34s %10.0f %10.0f   %.2f %.2f", s.name, median(p50[i]), median(p99[i]),
			median(p50[i])/median(p50[0]), median(p99[i])/median(p99[0]))
		if answers[i] < rounds*9_500 { // h2load asks once at a time per connection: it waits for answers that take over 10 ms
			fmt.Fprintf(&out, "   does not keep up: %d of %d answered", answers[i], rounds*10_000)
		}
		fmt.Fprintln(&out)
		checkFront(b, "p50 beside nginx at 5,000 requests/s", s.name, median(p50[i])/median(p50[0]))
		checkFront(b, "p99 beside nginx at 5,000 requests/s", s.name, median(p99[i])/median(p99[0]))
	}
	b.Log(out.String())
	b.ReportMetric(0, "ns/op")
}

// open asks for two seconds, and returns how long the answers took in us, the quickest first.
func (s *side) open(b *testing.B, taskset, h2load string) []float64 {
	b.Helper()
	log := filepath.Join(b.TempDir(), "log")
	args := []string{
		"-c", "1", h2load, "--h1", "-t1", "-c50", "--rps=100", "-D2", "--log-file=" + log, "-H",
		":authority: sale.example",
	}
	for _, line := range s.header {
		args = append(args, "-H", line)
	}
	if out, err := exec.CommandContext(b.Context(), taskset, append(args, s.url)...).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	data := testkit.Must(os.ReadFile(log))(b)
	var took []float64
	for line := range strings.Lines(string(data)) { // when it was asked, status, how long it took
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != "200" {
			b.Fatalf("%s: %q", s.name, line)
		}
		took = append(took, testkit.Must(strconv.ParseFloat(f[2], 64))(b))
	}
	if len(took) == 0 {
		b.Fatalf("%s: no answer in two seconds", s.name)
	}
	slices.Sort(took)
	return took
}

// compareIdle is how much memory connections take that are kept and say nothing.
func compareIdle(b *testing.B) {
	// Both ends of connections without TLS are in this process.
	n := 9000
	if limit, err := node.MaxFiles(); err == nil {
		n = min(n, (limit-300)/3)
	}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse + m.StackInuse)
	}
	for _, front := range []string{frontFast, frontNetHTTP} {
		st := open(b, reads(front))
		st.up.queue(sale, 10, 1)
		conns := make([]net.Conn, 0, n)
		before := heap()
		buf := make([]byte, 4<<10)
		for range n {
			c := testkit.Must(net.Dial("tcp", st.door.addr(0)))(b)
			conns = append(conns, c)
			if _, err := fmt.Fprint(c, "GET /about HTTP/1.1\r\nHost: shop.example\r\n"+
				"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\nAccept: text/html\r\n\r\n"); err != nil {
				b.Fatal(err)
			}
			testkit.Must(c.Read(buf))(b)
		}
		b.Logf("%d connections that are kept, both ends of each", n)
		checkFront(b, "memory of an idle connection", "edge, "+front, (heap()-before)/float64(n)/1024)
		for _, c := range conns {
			c.Close() // no request uses it
		}
		testkit.NoError(b, st.stop())
		http.DefaultClient.CloseIdleConnections()

		st = openTLS(b, reads(front))
		st.up.queue(sale, 10, 1)
		before = heap()
		visitors := exec.CommandContext(b.Context(), os.Args[0])
		visitors.Env = append(os.Environ(), visitsEnv+"=https://"+st.door.addr(0)+"/", visitsEnv+"_KIND="+staying)
		out, err := visitors.StdoutPipe()
		if err == nil {
			err = visitors.Start()
		}
		testkit.NoError(b, err)
		testkit.Must(fmt.Fscan(out, &n))(b)
		b.Logf("%d connections over TLS and HTTP/2 that are kept", n)
		checkFront(b, "memory of an idle HTTP/2 connection", "edge, "+front, (heap()-before)/float64(n)/1024)
		visitors.Process.Kill() //nolint:errcheck // it waits for that
		visitors.Wait()         //nolint:errcheck // it was killed
		testkit.NoError(b, st.stop())
	}
	b.ReportMetric(0, "ns/op")
}

// startServer has a program run on the first core until the benchmark ends, and waits until it
// listens.
func startServer(b *testing.B, tools map[string]string, addr string, command ...string) (pid int) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), tools["taskset"], append([]string{"-c", "0"}, command...)...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "HOME="+b.TempDir())
	cmd.Dir = b.TempDir()
	testkit.NoError(b, cmd.Start())
	b.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // it was stopped
	})
	listens(b, command[0], addr)
	return cmd.Process.Pid
}

// startHAProxy starts an HAProxy in front of a site; room holds its directives before forwarding.
func startHAProxy(b *testing.B, tools map[string]string, program, site, room string) (addr string, pid int) {
	b.Helper()
	addr = testkit.FreeAddr(b)
	conf := filepath.Join(b.TempDir(), "haproxy.cfg")
	testkit.NoError(b, os.WriteFile(conf, []byte("global\n\tnbthread 1\ndefaults\n\tmode http\n\ttimeout connect 5s\n"+
		"\ttimeout client 60s\n\ttimeout server 60s\n\toption forwardfor\n\thttp-reuse always\n"+
		"listen site\n\tbind "+addr+"\n"+room+"\tserver site "+site+"\n"), 0o600))
	return addr, startServer(b, tools, addr, program, "-q", "-db", "-f", conf)
}

// startCaddy has one Caddy pass on to a site.
func startCaddy(b *testing.B, tools map[string]string, program, site string) (addr string, pid int) {
	b.Helper()
	addr = testkit.FreeAddr(b)
	conf := filepath.Join(b.TempDir(), "Caddyfile")
	text := "{\n\tadmin off\n\tauto_https off\n\tlog {\n\t\toutput discard\n\t}\n}\n" +
		"http://" + addr + ", http://sale.example:" + addr[strings.LastIndexByte(addr, ':')+1:] + " {\n" +
		"\tbind 127.0.0.1\n\treverse_proxy " + site + "\n}\n"
	testkit.NoError(b, os.WriteFile(conf, []byte(text), 0o600))
	return addr, startServer(b, tools, addr, program, "run", "--adapter", "caddyfile", "--config", conf)
}
