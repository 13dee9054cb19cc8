package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/compress"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

func TestAnEdgeIsNotReadyWithoutRoomsAndKeys(t *testing.T) {
	st := newStage(t, nil)
	st.up = newParent(t, st.bus, sale, vip)
	st.start()
	eventually(t, "the edge gets the time", st.server.gate.Engine.TimeKnown.Load)
	refused := func(want ...string) {
		t.Helper()
		r := st.server.Ready()
		if r.Ready || strings.Join(r.Reasons, ", ") != strings.Join(want, ", ") {
			t.Errorf("ready %v because of %v, want %v", r.Ready, r.Reasons, want)
		}
		if a := st.door.visitor().get("http://sale.example/"); a.StatusCode != http.StatusServiceUnavailable ||
			a.Header.Get("Retry-After") == "" || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("got %d %v", a.StatusCode, a.Header)
		}
	}
	refused("no room set yet", "no keys yet")
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 1, document(st.origin.URL)))
	eventually(t, "rooms are here", func() bool { return st.server.gate.Rooms() != nil })
	refused("no keys yet")
	st.docs.offer(node.KeysDocument, keysDocument(t, st.keys.ring))
	eventually(t, "the edge is ready", func() bool { return st.server.Ready().Ready })
	st.origin.untouched()
}

// An edge that once had rooms and keys serves admitted visitors without any other node: at the start, when it is not
// ready for others yet, and later, when it is.
func TestAnIsolatedEdgeServesWhoIsIn(t *testing.T) {
	st := open(t, nil)
	in := st.keys.seal("sale", session(7))
	place := session(8)
	place.Admitted, place.Until = 0, 0
	waiting := st.keys.seal("sale", place)
	testkit.NoError(t, st.stop())

	testkit.NoError(t, os.RemoveAll(filepath.Join(st.cfg.DataDir, "time.json"))) // its machine was restarted
	again := newStage(t, func(s *stage) { s.cfg.DataDir, s.keys.ring = st.cfg.DataDir, st.keys.ring })
	again.bus.down.Store(true)
	again.origin.Config.Handler = st.origin // the rooms name the first origin
	again.audit(st.origin)
	again.start()
	check := func(reason admission.Reason) {
		t.Helper()
		r := again.server.Ready()
		if r.Ready != again.server.gate.Engine.TimeKnown.Load() || !r.Isolated {
			t.Errorf("readiness %+v", r)
		}
		v := again.door.visitor()
		v.Jar = nil
		v.get("http://sale.example/", "Cookie", in).enters(t, "who is in")
		for _, cookie := range []string{"", waiting} {
			a := v.get("http://sale.example/", "Cookie", cookie)
			if cookie == "" && !r.Ready {
				a.moment(t, "somebody new") // there is no time to give a place with
				continue
			}
			if a.StatusCode != http.StatusOK || !strings.Contains(a.body, "Nobody can be let in at the moment") ||
				!strings.Contains(a.body, `data-state=paused`) {
				t.Errorf("who waits: %d %.60q", a.StatusCode, a.body)
			}
		}
		if n := metric(t, again, "vestibule_edge_decisions_total", "reason", reason.String()); n == 0 {
			t.Errorf("no decision for the reason %s", reason)
		}
	}
	if again.server.gate.Engine.TimeKnown.Load() {
		t.Error("where does it have the time from?")
	}
	check(admission.Unsure)

	// Heard, then cut off: the lease lapses.
	again.up = newParent(t, again.bus, sale, vip)
	again.up.lease = 300 * time.Millisecond
	again.bus.down.Store(false)
	again.adopted()
	again.up.silence()
	again.bus.down.Store(true)
	eventually(t, "the lease lapses", func() bool { return again.server.Ready().Isolated })
	check(admission.Isolated)
	again.bus.down.Store(false)
	again.up.mu.Lock()
	again.up.mute = false
	again.up.mu.Unlock()
	again.adopted()
}

// metric is [testkit.Metric] of an edge.
func metric(t testing.TB, st *stage, name string, labels ...string) float64 {
	t.Helper()
	return testkit.Metric(t, st.reg, name, labels...)
}

// counts fails if the sum of a metric's samples, or of those with a label and its value, is not n.
func (st *stage) counts(n float64, name string, label ...string) {
	st.t.Helper()
	if got := metric(st.t, st, name, label...); got != n {
		st.t.Errorf("%s %q is %v, want %v", name, label, got, n)
	}
}

// A room without visitors has no series of its own; the counts of a room stay until the room goes.
func TestIdleRoomsShareTheirSeries(t *testing.T) {
	st := open(t, nil)
	own := func(name string) float64 { return metric(t, st, name, "room", "sale") }
	if n := own("vestibule_edge_sessions") + own("vestibule_edge_decisions_total"); n != 0 {
		t.Errorf("a room that nobody visited shows %v", n)
	}
	if n := metric(t, st, "vestibule_edge_permits", "room", node.IdleRooms); n == 0 {
		t.Error("the permits of idle rooms are not added up")
	}
	if a := st.door.visitor().get("http://sale.example/"); a.body != "the site" {
		t.Fatalf("got %q", a.body)
	}
	if own("vestibule_edge_sessions") != 1 || own("vestibule_edge_decisions_total") != 1 ||
		own("vestibule_edge_permits") == 0 {
		t.Error("a room with a visitor has no series")
	}
	rooms := st.server.gate.Rooms()
	d := document(st.origin.URL)
	d.Rooms[0].TotalActiveUsers++
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 2, d))
	eventually(t, "the rooms are new", func() bool { return st.server.gate.Rooms() != rooms })
	if own("vestibule_edge_decisions_total") != 1 {
		t.Error("a change of the rooms lost what was counted")
	}
}

// A change of the rooms reaches visitors without a restart; a broken or older
// document changes nothing.
func TestRoomsChangeWhileServing(t *testing.T) {
	st := open(t, nil)
	page := []byte("<p>{{peopleAhead}} before you</p>")
	st.docs.pages.Store(roomdoc.PageDocument(roomdoc.Hash(page)), compress.Gzip(page))
	d := document(st.origin.URL)
	d.Rooms = d.Rooms[:1]
	d.Rooms[0].QueueingStatus, d.Rooms[0].WaitingPage = 202, roomdoc.Hash(page)
	st.up.queue(sale, 12, 1)
	st.docs.offer(node.RoomsDocument, []byte("{"))
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 2, d))
	eventually(t, "the rooms are new", func() bool { return len(st.server.gate.Rooms().Rooms()) == 1 })
	a := st.door.visitor().get("http://sale.example/")
	if a.StatusCode != http.StatusAccepted || a.body != "<p>12 before you</p>" || a.Header.Get("Content-Length") == "" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
	st.door.visitor().get("http://shop.example/vip").has(t, http.StatusMisdirectedRequest, "the host that is gone")
	st.counts(0, "vestibule_edge_decisions_total", "room", "vip")
	// Raised epoch: every ticket of the room is void.
	in := st.keys.seal("sale", session(7))
	d.Rooms[0].Epoch = 1
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 3, d))
	eventually(t, "the epoch is new", func() bool { return st.server.gate.Rooms().Rooms()[0].Epoch == 1 })
	st.door.visitor().get("http://sale.example/", "Cookie", in).stays(t, "a ticket of the epoch before")
}

// A key with a time stamp slightly in the future must not admit visitors without a ticket.
func TestTheFirstKeySealsAtOnce(t *testing.T) {
	st := open(t, func(st *stage) { st.keys.ring.Keys[0].SealFrom = fleettime.TimeOf(time.Now().Add(time.Hour)) })
	v := st.door.visitor()
	for range 2 {
		v.get("http://sale.example/")
	}
	st.hasAdmitted(1)
}

// A visitor of several rooms holds a ticket of each, and must be admitted to all.
func TestARequestOfTwoRooms(t *testing.T) {
	st := openRooms(t, nil, func(d *room.Document) { d.Rooms[1].Host = "sale.example" })
	st.up.grant(sale, 1, 1)
	st.up.grant(vip, 1, 1)
	st.covered(0, sale, vip)
	st.up.queue(vip, 3, 1)
	v := st.door.visitor()
	// The path as it stands is in vip; decoded or not, it lies in sale as well
	// for an origin that does not decode.
	a := v.get("http://sale.example/%76ip")
	if a.StatusCode != http.StatusTooManyRequests || st.origin.requests() > 0 {
		t.Fatalf("got %d", a.StatusCode)
	}
	if cookieOf(a, "vestibule-vip") == nil || cookieOf(a, "vestibule-sale") == nil {
		t.Errorf("cookies %v, want one of each room", a.Cookies())
	}
	st.up.view(vip, 0, 1, fleettime.TimeOf(time.Now().Add(time.Hour)), 0)
	v.get("http://sale.example/%76ip").enters(t, "whose turn it is in both rooms")
	for _, name := range []string{"sale", "vip"} {
		if n := st.server.Status().Rooms[name].Admitted; n != 1 {
			t.Errorf("%s: %d admissions, want 1", name, n)
		}
	}
}

// faulty panics when it is armed.
type faulty struct {
	rand.Source
	armed atomic.Bool
}

func (f *faulty) Uint64() uint64 {
	if f.armed.Load() {
		panic("a fault for this test")
	}
	return f.Source.Uint64()
}

// panicking is a way to origins with a fault.
type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("a fault for this test") }

// A panic is this request's alone: 500, never forwarded, and the next request
// finds the edge as it was.
func TestAPanicIsOneRequestsAlone(t *testing.T) {
	src := &faulty{Source: rand.NewPCG(1, 2)}
	st := openRooms(t, func(st *stage) { st.chance = src }, nil)
	st.up.grant(sale, 10, 10)
	st.covered(0, sale)
	src.armed.Store(true)
	for range 2 {
		a := st.door.visitor().get("http://sale.example/", "X-Text", "<echoed>")
		if a.StatusCode != http.StatusInternalServerError || a.Header.Get("Cache-Control") != "no-store" ||
			strings.Contains(a.body, "fault") {
			t.Errorf("got %d %q", a.StatusCode, a.body)
		}
	}
	src.armed.Store(false)
	st.origin.untouched()
	st.door.visitor().get("http://sale.example/").enters(t, "the next request")
	// After a session permit was charged: the visitor gets its ticket all the same.
	st.server.proxy.trip = panicking{}
	if p := st.server.pool; p != nil {
		p.Close() // nothing is idle
		p.Dial = func(context.Context, string, string) (net.Conn, error) { panic("a fault") }
	}
	a := st.door.visitor().get("http://sale.example/")
	if a.StatusCode != http.StatusInternalServerError || cookieOf(a, "vestibule-sale") == nil {
		t.Errorf("got %d, cookies %v", a.StatusCode, a.Cookies())
	}
}

// An edge that stops answers requests in flight: those at the origin get its answer, held ones get the page, and the
// regional gets a goodbye.
func TestStoppingAnswersEverybody(t *testing.T) {
	st := open(t, func(st *stage) { st.params.Hold, st.params.Knock = time.Hour, time.Hour })
	entered, finish := make(chan struct{}), make(chan struct{})
	st.origin.serves(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-finish
		w.Write([]byte("at last")) //nolint:errcheck // the client checks the answer
	})
	inside, held := make(chan answer, 1), make(chan answer, 1)
	v, h := st.door.visitor(), st.door.visitor()
	go func() { inside <- v.get("http://shop.example/about") }()
	<-entered
	st.fill(sale, 1000)
	go func() { held <- h.get("http://sale.example/", "Accept", "application/json") }()
	eventually(t, "one is held", func() bool { return st.server.Status().Rooms["sale"].Held == 1 })
	st.cancel(nil)
	if a := <-held; a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("who was held got %d", a.StatusCode)
	}
	close(finish)
	if a := <-inside; a.body != "at last" {
		t.Errorf("who was inside got %q", a.body)
	}
	testkit.NoError(t, st.stop())
	st.up.mu.Lock()
	defer st.up.mu.Unlock()
	if r := st.up.last; !r.Bye || !r.Final {
		t.Errorf("the last report is no goodbye: %+v", r)
	}
}

// pair writes the first certificate, for the hosts of all rooms, with this serial number.
func pair(t testing.TB, cfg TLSConfig, serial int64) {
	t.Helper()
	writePair(t, cfg.Cert[0], cfg.Key[0], serial, "sale.example", "shop.example", "unknown.example", "slow.example")
}

// writePair writes a certificate for some names.
func writePair(t testing.TB, certFile, keyFile string, serial int64, names ...string) {
	t.Helper()
	cert, key, err := testkit.Certificate(serial, time.Now().Add(time.Hour), names...)
	testkit.NoError(t, errors.Join(err, os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, key, 0o600)))
}

// withTLS has the edge speak TLS alone, with a certificate for the hosts of all rooms.
func (st *stage) withTLS() {
	dir := st.t.TempDir()
	st.cfg.Listen = ""
	st.cfg.TLS = TLSConfig{
		Listen: "127.0.0.1:0", Cert: []string{filepath.Join(dir, "cert.pem")},
		Key: []string{filepath.Join(dir, "key.pem")},
	}
	pair(st.t, st.cfg.TLS, 1)
}

// secure is a visitor over TLS that knows no certificate authority.
func (d *door) secure(http2 bool) *visitor {
	v := d.visitor()
	tr := v.Transport.(*http.Transport)
	tr.TLSClientConfig = trusting("sale.example")
	tr.ForceAttemptHTTP2 = http2
	return v
}

func TestTLS(t *testing.T) {
	st := open(t, (*stage).withTLS)
	if !strings.HasPrefix(st.server.URL(), "https://127.0.0.1:") {
		t.Errorf("URL %s", st.server.URL())
	}
	for _, http2 := range []bool{false, true} {
		v := st.door.secure(http2)
		a := v.get("https://sale.example/")
		if want := map[bool]int{false: 1, true: 2}[http2]; a.ProtoMajor != want || a.body != "the site" {
			t.Errorf("%s %d %q", a.Proto, a.StatusCode, a.body)
		}
		c := cookieOf(a, "__Host-vestibule-sale")
		if c == nil || !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" || c.SameSite != http.SameSiteNoneMode {
			t.Errorf("cookie %+v", c)
		}
		if got := st.origin.last().Header.Get("X-Forwarded-Proto"); got != "https" {
			t.Errorf("X-Forwarded-Proto %q", got)
		}
		before := st.server.Status().Rooms["sale"].Admitted
		if a := v.ask(http.MethodPost, "https://sale.example/", strings.Repeat("x", 100_000)); a.body != "the site" ||
			st.server.Status().Rooms["sale"].Admitted != before {
			t.Errorf("%s: the ticket is not known again", a.Proto)
		}
		st.up.queue(sale, 10, 1)
		if a := v.get("https://sale.example/"); a.body != "the site" {
			t.Errorf("%s: who is in: %.60q", a.Proto, a.body)
		}
		if a := st.door.secure(http2).get("https://unknown.example/"); a.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s: unknown host: %d", a.Proto, a.StatusCode)
		}
		st.up.view(sale, 0, 1, fleettime.TimeOf(time.Now().Add(time.Hour)), 0)
	}
	old := trusting("")
	old.MaxVersion = tls.VersionTLS11
	if _, err := tls.Dial("tcp", st.door.addr(0), old); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	// A connection that never says hello ties nothing up for long: the header
	// timeout covers the handshake.
	if st.server.cfg.Timeouts.Header > 10*time.Second {
		t.Errorf("header timeout %v", st.server.cfg.Timeouts.Header)
	}
}

// serial returns the serial number of the certificate that is in use.
func serial(t *testing.T, c *node.Certificates) int64 {
	t.Helper()
	cert := testkit.Must(c.Get(&tls.ClientHelloInfo{}))(t)
	leaf := testkit.Must(x509.ParseCertificate(cert.Certificate[0]))(t)
	return leaf.SerialNumber.Int64()
}

func TestACertificateIsReadAgain(t *testing.T) {
	cfg := TLSConfig{Cert: []string{filepath.Join(t.TempDir(), "c")}, Key: []string{filepath.Join(t.TempDir(), "k")}}
	pair(t, cfg, 1)
	now := time.Unix(1622133200, 0)
	var log bytes.Buffer
	c := testkit.Must(node.NewCertificates(cfg.Cert, cfg.Key, slog.New(slog.NewTextHandler(&log, nil)),
		func() time.Time { return now }))(t)
	replace := func(n int64) {
		pair(t, cfg, n)
		for _, f := range []string{cfg.Cert[0], cfg.Key[0]} { // independent of the resolution of the file system
			at := time.Unix(1622133200+n, 0)
			testkit.NoError(t, os.Chtimes(f, at, at))
		}
	}
	replace(2)
	if got := serial(t, c); got != 1 {
		t.Errorf("certificate %d: the files are looked at with every handshake", got)
	}
	now = now.Add(2 * time.Second) // how often the files are looked at, at most
	if got := serial(t, c); got != 2 {
		t.Errorf("certificate %d, want the new one", got)
	}
	// Half of a new pair: the last good one stays, and the other half is noticed.
	old := testkit.Must(os.ReadFile(cfg.Key[0]))(t)
	replace(3)
	good := testkit.Must(os.ReadFile(cfg.Key[0]))(t)
	testkit.NoError(t, os.WriteFile(cfg.Key[0], old, 0o600))
	now = now.Add(2 * time.Second) // how often the files are looked at, at most
	if got := serial(t, c); got != 2 || !strings.Contains(log.String(), "refused") {
		t.Errorf("certificate %d with the key of another, log %q", got, log.String())
	}
	testkit.NoError(t, os.WriteFile(cfg.Key[0], good, 0o600))
	testkit.NoError(t, os.Chtimes(cfg.Key[0], time.Unix(1622133300, 0), time.Unix(1622133300, 0)))
	now = now.Add(2 * time.Second) // how often the files are looked at, at most
	if got := serial(t, c); got != 3 {
		t.Errorf("certificate %d, want the whole new pair", got)
	}
	testkit.NoError(t, os.Remove(cfg.Cert[0]))
	now = now.Add(2 * time.Second) // how often the files are looked at, at most
	if got := serial(t, c); got != 3 {
		t.Errorf("certificate %d after the file went", got)
	}
}

// A server that cannot start leaves nothing open.
func TestAServerThatCannotStart(t *testing.T) {
	st := newStage(t, func(st *stage) {
		st.withTLS()
		st.cfg.Listen, st.cfg.TLS.Cert[0] = "127.0.0.1:0", st.cfg.TLS.Cert[0]+".missing"
	})
	err := st.server.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "tls.cert") {
		t.Errorf("without a certificate: %v", err)
	}
	for _, l := range st.server.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a listener was left open: %v", err)
		}
	}
}

func TestConfigTellsEveryFault(t *testing.T) {
	good := DefaultConfig()
	good.Name, good.DataCenter, good.DataDir = "edge-1", dc, t.TempDir()
	if errs := good.Validate(); len(errs) > 0 {
		t.Errorf("the defaults are refused: %v", errs)
	}
	bad := good
	bad.Name, bad.DataCenter, bad.Listen, bad.TLS.Listen = "Edge", "global", "8080", "127.0.0.1:443"
	bad.Proxies, bad.Held.Prefix, bad.Recent, bad.Timeouts.Idle = []string{"10.0.0.0/33", "proxy.example"}, 0, -1,
		time.Millisecond
	all := errors.Join(bad.Validate()...).Error()
	for _, want := range []string{
		"name:", "data_center:", "listen:", "tls.cert, tls.key:", "10.0.0.0/33", "proxy.example",
		"held.per_prefix:", "recent_tickets:", "timeouts.idle:",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no word of %s in:\n%s", want, all)
		}
	}
	none := good
	none.Listen = ""
	if err := errors.Join(none.Validate()...); err == nil || !strings.Contains(err.Error(), "at least one") {
		t.Errorf("without a listener: %v", err)
	}
}
