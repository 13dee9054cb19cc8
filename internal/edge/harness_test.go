package edge

import (
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

var (
	frontFlag = flag.String("front", frontFast, "the front that tests ask: fast or nethttp")
	thorough  = flag.Bool("thorough", false, "play all cases of tests that otherwise play a part of them (`make nethttp`)")
)

// some returns all cases with -thorough, otherwise every nth from a random one on.
func some[T any](all []T, n int) (out []T) {
	if *thorough {
		return all
	}
	for i := rand.IntN(n); i < len(all); i += n {
		out = append(out, all[i])
	}
	return out
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bus is a wire.Bus in memory: Publish runs the handlers before it returns.
type bus struct {
	down atomic.Bool

	mu   sync.Mutex
	subs map[*subscription]bool
}

type subscription struct {
	pattern string
	handle  func(string, []byte)
	mu      sync.Mutex // one message at a time
	over    bool
}

func (b *bus) Publish(subject string, data []byte) error {
	if b.down.Load() {
		return wire.ErrDown
	}
	b.mu.Lock()
	var to []*subscription
	for s := range b.subs {
		if prefix, any := strings.CutSuffix(s.pattern, "*"); s.pattern == subject || any &&
			strings.HasPrefix(subject, prefix) {
			to = append(to, s)
		}
	}
	b.mu.Unlock()
	for _, s := range to {
		s.mu.Lock()
		if !s.over {
			s.handle(subject, data)
		}
		s.mu.Unlock()
	}
	return nil
}

func (b *bus) Flush(context.Context) error {
	if b.down.Load() {
		return wire.ErrDown
	}
	return nil
}

func (b *bus) Subscribe(pattern string, handle func(string, []byte)) (func(), error) {
	s := &subscription{pattern: pattern, handle: handle}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs == nil {
		b.subs = map[*subscription]bool{}
	}
	b.subs[s] = true
	return func() {
		b.mu.Lock()
		delete(b.subs, s)
		b.mu.Unlock()
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
	}, nil
}

// fakeDocs is the source of a node's documents: an offered document reaches the watcher.
type fakeDocs struct {
	offers chan [2]string
	pages  sync.Map
	broken atomic.Bool // nothing can be asked for
	behind atomic.Bool // answers may be stale
	doubts atomic.Int32
}

func newFakeDocs() *fakeDocs { return &fakeDocs{offers: make(chan [2]string, 16)} }

func (d *fakeDocs) offer(doc string, data []byte) { d.offers <- [2]string{doc, string(data)} }

func (d *fakeDocs) Watch(ctx context.Context, handle func(string, []byte)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case o := <-d.offers:
			handle(o[0], []byte(o[1]))
		}
	}
}

func (d *fakeDocs) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	if err := d.reach(ctx); err != nil {
		return nil, 0, err
	}
	if page, ok := d.pages.Load(key); ok {
		return page.([]byte), 1, nil
	}
	return nil, 0, nil
}

func (d *fakeDocs) Current(ctx context.Context) error {
	d.doubts.Add(1)
	if d.behind.Load() {
		return wire.ErrDown
	}
	return d.reach(ctx)
}

// parent plays the regional of one edge: it does the handshake, answers every report, and sends the grants of a test.
type parent struct {
	t    testing.TB
	bus  *bus
	mu   sync.Mutex
	term wire.Term
	seq  uint64
	last wire.Report
	held map[room.ID]*wire.RoomGrant

	lease time.Duration
	mute  bool // hears and says nothing

	standing wire.Standing
}

func newParent(t testing.TB, b *bus, rooms ...room.ID) *parent {
	p := &parent{t: t, bus: b, term: wire.Term{N: 1, Nonce: 7}, held: map[room.ID]*wire.RoomGrant{}, lease: time.Hour}
	for _, id := range rooms {
		p.held[id] = &wire.RoomGrant{
			Room: id, Life: wire.Life(5 * time.Minute), RenewCeil: 1 << 40,
			Permits: wire.Permits{Sessions: wire.Allocation{Keep: 1 << 30}, Rate: wire.Allocation{Keep: 1 << 30}},
		}
	}
	testkit.Must(b.Subscribe(wire.Reports(dc), p.hear))(t)
	return p
}

func (p *parent) hear(_ string, data []byte) {
	r, err := wire.DecodeReport(data)
	if err != nil {
		p.t.Errorf("report: %v", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mute {
		for _, o := range r.Rooms { // keep the line that the edge follows
			if g := p.held[o.Room]; g != nil && len(o.Copied) > 0 {
				g.Lines = o.Copied
			}
		}
		p.last = *r
		p.say()
	}
}

// say answers the last report with everything that is granted.
func (p *parent) say() {
	g := wire.Grant{
		To: p.last.From, Instance: p.last.Instance, LeaseEpoch: p.last.LeaseEpoch, From: p.term, Seq: p.seq + 1, Parts: 1,
		Acked: p.last.Seq, Echo: max(p.last.Sent, 1), At: fleettime.TimeOf(time.Now()), Lease: p.lease,
		Standing: p.standing,
	}
	switch {
	case p.last.Seen != p.term:
		g.Handshake, g.Lease = wire.Promise, 0
	case p.last.Final:
		g.LeaseEpoch++ // a new lease epoch at once
		g.Lease = 0
	}
	if g.Handshake == wire.Adopted {
		for _, r := range p.held {
			g.Rooms = append(g.Rooms, *r)
		}
	}
	p.seq++
	if err := p.bus.Publish(wire.GrantSubject(dc, p.last.From), wire.EncodeGrant(&g)); err != nil {
		p.t.Errorf("grant: %v", err)
	}
}

// grant grants permits of T and R in a room, and returns once the edge has them.
func (p *parent) grant(id room.ID, credit, rate uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.held[id]
	r.Permits.Sessions.Granted, r.Permits.Rate.Granted = r.Permits.Sessions.Granted+credit, r.Permits.Rate.Granted+rate
	p.say()
}

// queue closes a room with n visitors in front of a newcomer and mu admissions per second.
func (p *parent) queue(id room.ID, n, mu float64) { p.view(id, n, mu, 1, 0) }

// view sends a view of the line: visitors that joined before cutoff may enter, those before park may be held.
func (p *parent) view(id room.ID, n, mu float64, cutoff, park fleettime.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := fleettime.TimeOf(time.Now())
	p.held[id].View = &wire.View{
		Version: p.seq + 1, At: at, Since: at - 120_000, Cutoff: cutoff, Park: park, Mu: mu, Paces: []estimate.Pace{{Mu: mu}},
		Line: estimate.NewDigest(estimate.Histogram{{Start: at - 120_000, Width: 60_000, N: n}}),
	}
	p.say()
}

func (p *parent) stand(s wire.Standing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.standing = s
	p.say()
}

func (p *parent) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

const auditHeader = "X-Vestibule-Decision"

const dc = "nairobi"

var (
	sale = room.IDOf("sale")
	vip  = room.IDOf("vip")
)

// document is the room set of these tests: sale covers a host, vip one path of another host.
func document(origin string) room.Document {
	r := func(name, host, path string, status int) room.Settings {
		return room.Settings{
			Name: name, Host: host, Path: path, TotalActiveUsers: 1000, NewUsersPerMinute: 1000, Origin: origin,
			QueueingStatus: status,
			Probation:      time.Hour, // none: see TestAFirstStampIsShort
		}
	}
	return room.Document{Rooms: []room.Settings{r("sale", "sale.example", "/", 0), r("vip", "shop.example", "/vip", 429)}}
}

func roomsDocument(t testing.TB, version uint64, d room.Document) []byte {
	t.Helper()
	return testkit.Must(roomdoc.EncodeRooms(version, d.WithDefaults()))(t)
}

func keyring(t testing.TB) ticket.Keyring {
	t.Helper()
	ring, err := ticket.Keyring{}.Rotate(fleettime.TimeOf(time.Now().Add(-time.Hour)), 24*time.Hour, crand.Reader)
	testkit.NoError(t, err)
	return ring
}

func keysDocument(t testing.TB, ring ticket.Keyring) []byte {
	t.Helper()
	return testkit.Must(ticket.EncodeKeyring(ring))(t)
}

// stage is an edge with everything around it.
type stage struct {
	t      testing.TB
	server *Server
	bus    *bus
	docs   *fakeDocs
	up     *parent // nil if a test brings its own
	origin *auditor
	keys   keys
	door   door
	reg    *prometheus.Registry
	cfg    Config
	params wire.Params
	log    *slog.Logger

	maxFiles   int
	dialOrigin func(ctx context.Context, network, addr string) (net.Conn, error) // of the fast front
	castEvery  time.Duration
	chance     rand.Source
	own        *node.Listeners
	pushes     func(ctx context.Context, room, visitor uint64, record []byte) error

	cancel context.CancelCauseFunc
	ended  chan error
}

// params returns times that keep tests short: a permit is never awaited for long.
func params() wire.Params {
	p := wire.DefaultParams()
	p.Knock, p.Hold = 5*time.Millisecond, 20*time.Millisecond
	p.ReportFast, p.ReportGap = 20*time.Millisecond, time.Millisecond
	return p
}

// newStage builds an edge that does not run yet; change may alter it.
func newStage(t testing.TB, change func(*stage)) *stage {
	t.Helper()
	st := &stage{
		t: t, bus: &bus{}, docs: newFakeDocs(), keys: keys{t, keyring(t)}, reg: prometheus.NewRegistry(),
		cfg: DefaultConfig(), params: params(), log: slog.New(slog.DiscardHandler),
	}
	st.origin = newOrigin(t)
	t.Cleanup(st.origin.Close)
	st.cfg.Reader = *frontFlag
	st.cfg.DataDir, st.cfg.DataCenter, st.cfg.Name, st.cfg.Listen = t.TempDir(), dc, "edge-1", "127.0.0.1:0"
	if change != nil {
		change(st)
	}
	st.server = testkit.Must(New(Options{
		Config: st.cfg, Params: st.params, Bus: st.bus, Docs: st.docs, Reg: st.reg, Log: st.log, MaxFiles: st.maxFiles,
		EventsEvery: st.castEvery, Rand: st.chance, Own: st.own, Pushes: st.pushes,
	}))(t)
	st.door.TB, st.door.server = t, st.server
	st.audit(st.origin)
	return st
}

// start runs the edge until the test ends.
func (st *stage) start() *stage {
	st.t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	st.cancel, st.ended = cancel, make(chan error, 1)
	go func() { st.ended <- st.server.Run(ctx) }()
	st.t.Cleanup(func() {
		if err := st.stop(); err != nil {
			st.t.Errorf("the edge ended with %v", err)
		}
		for _, name := range []string{
			"vestibule_edge_connections", "vestibule_edge_origin_connections",
			"vestibule_edge_event_streams",
		} {
			eventually(st.t, name+" is 0 after the end", func() bool { return metric(st.t, st, name) == 0 })
		}
	})
	return st
}

// engine has do use the engine of the edge.
func (st *stage) engine(do func(now fleettime.Mono, eng *admission.Engine)) {
	st.server.gate.Engine.With(do)
}

// fill sends n newcomers into a room; they take the available permits.
func (st *stage) fill(id room.ID, n int) {
	for range n {
		eventually(st.t, "a newcomer takes a permit", func() (done bool) {
			st.engine(func(now fleettime.Mono, eng *admission.Engine) {
				d := eng.Arrive(now, id, ticket.Ticket{})
				done = d.Verdict == admission.Admit || eng.Ledger(now, id).Stampable != 0
			})
			return done
		})
	}
}

// stop stops the edge, once, and returns the result of Run.
func (st *stage) stop() error {
	st.cancel(nil)
	err := <-st.ended
	st.ended <- nil
	return err
}

// serve starts the edge with rooms, keys, and a regional that grants no permits yet.
func (st *stage) serve(d room.Document) {
	st.t.Helper()
	st.up = newParent(st.t, st.bus, sale, vip)
	st.docs.offer(node.RoomsDocument, roomsDocument(st.t, 1, d))
	st.docs.offer(node.KeysDocument, keysDocument(st.t, st.keys.ring))
	st.start()
	st.adopted()
}

// openRooms starts an edge with the rooms of document, which edit may alter, and a regional that grants no permits yet.
func openRooms(t testing.TB, change func(*stage), edit func(*room.Document)) *stage {
	t.Helper()
	st := newStage(t, change)
	d := document(st.origin.URL)
	if edit != nil {
		edit(&d)
	}
	st.serve(d)
	return st
}

// open starts an edge with the rooms of document, keys, a regional, and plenty of permits.
func open(t testing.TB, change func(*stage)) *stage {
	t.Helper()
	st := openRooms(t, change, nil)
	st.up.grant(sale, 1000, 1000)
	st.up.grant(vip, 1000, 1000)
	st.covered(100, sale, vip)
	return st
}

// covered waits until the data folder has snapshots under which each room may stamp more than the given tickets.
func (st *stage) covered(least int64, rooms ...room.ID) {
	st.t.Helper()
	eventually(st.t, "the rooms are in a snapshot", func() bool {
		ok := true
		st.engine(func(now fleettime.Mono, eng *admission.Engine) {
			for _, id := range rooms {
				ok = ok && eng.Ledger(now, id).Stampable > least
			}
		})
		return ok
	})
}

// adopted waits until the edge is ready and has a lease.
func (st *stage) adopted() {
	st.t.Helper()
	eventually(st.t, "the edge is adopted", func() bool {
		r := st.server.Ready()
		return r.Ready && !r.Isolated
	})
}

var eventually = testkit.Eventually

// visitor is a browser that resolves every host to the edge.
type visitor struct {
	*http.Client
	t testing.TB
}

// door is the way to the edge.
type door struct {
	testing.TB
	server  *Server
	instead string // another address for visitors, if not the edge's own
	sent    int    // raw requests
	envoy   any    // its client of the decision service: see authorization
}

// keys seal and open tickets.
type keys struct {
	testing.TB
	ring ticket.Keyring
}

func (d *door) addr(i int) string { return d.server.listeners[i].Addr().String() }

// entrance returns the address for visitors.
func (d *door) entrance() string {
	if d.instead != "" {
		return d.instead
	}
	return d.addr(0)
}

// trusting returns the configuration of a client that takes any certificate.
func trusting(name string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: name} //nolint:gosec // the test's own certificate
}

func (d *door) visitor() *visitor {
	jar := testkit.Must(cookiejar.New(nil))(d)
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", d.entrance())
		},
		DisableCompression: true,
	}
	d.Cleanup(tr.CloseIdleConnections)
	return &visitor{&http.Client{
		Transport: tr, Jar: jar, Timeout: testkit.Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, d.TB}
}

// answer is a response read to its end.
type answer struct {
	*http.Response
	body string
}

// enters fails if the answer is not the site's; the format describes its visitor.
func (a answer) enters(t testing.TB, format string, args ...any) {
	t.Helper()
	a.says(t, "the site", format, args...)
}

// says fails if the answer has another body.
func (a answer) says(t testing.TB, body, format string, args ...any) {
	t.Helper()
	if a.body != body {
		t.Errorf("%s: %d %v %.80q, want %q", fmt.Sprintf(format, args...), a.StatusCode, a.Header, a.body, body)
	}
}

// stays fails if the answer is the site's.
func (a answer) stays(t testing.TB, format string, args ...any) {
	t.Helper()
	if a.body == "the site" {
		t.Errorf("%s enters the site", fmt.Sprintf(format, args...))
	}
}

// has fails if the answer has another status.
func (a answer) has(t testing.TB, status int, format string, args ...any) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("%s: %d %.80q, want %d", fmt.Sprintf(format, args...), a.StatusCode, a.body, status)
	}
}

func (v *visitor) ask(method, url, body string, header ...string) answer {
	v.t.Helper()
	r := testkit.Must(http.NewRequest(method, url, strings.NewReader(body)))(v.t)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return v.do(r)
}

// fails returns the error of a request that must get no answer.
func (v *visitor) fails(url string, header ...string) error {
	v.t.Helper()
	r := testkit.Must(http.NewRequest(http.MethodGet, url, http.NoBody))(v.t)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	res, err := v.Do(r)
	if err == nil {
		v.t.Fatalf("%s: %s, want no answer (%v)", url, res.Status, res.Body.Close())
	}
	return err
}

func (v *visitor) do(r *http.Request) answer {
	v.t.Helper()
	res := testkit.Must(v.Do(r))(v.t)
	data := testkit.Must(io.ReadAll(res.Body))(v.t)
	testkit.NoError(v.t, res.Body.Close())
	return answer{res, string(data)}
}

func (v *visitor) get(url string, header ...string) answer {
	v.t.Helper()
	return v.ask(http.MethodGet, url, "", header...)
}

// seal returns a ticket as the Cookie header of a room's visitor without TLS.
func (k *keys) seal(name string, t ticket.Ticket) string {
	k.Helper()
	return ticket.CookieName(name, false) + "=" + k.value(name, t)
}

// sealTLS is seal for a visitor with TLS.
func (k *keys) sealTLS(name string, t ticket.Ticket) string {
	k.Helper()
	return ticket.CookieName(name, true) + "=" + k.valueOver(name, true, t)
}

func (k *keys) value(name string, t ticket.Ticket) string { return k.valueOver(name, false, t) }

func (k *keys) valueOver(name string, secure bool, t ticket.Ticket) string {
	k.Helper()
	codec := testkit.Must(ticket.NewCodec(k.ring, room.IDOf(name), ticket.CookieName(name, secure)))(k)
	return string(codec.Seal(nil, fleettime.TimeOf(time.Now()), &t, ticket.NewScratch([32]byte{1})))
}

// session returns a ticket with a valid session.
func session(id uint64) ticket.Ticket {
	now := fleettime.TimeOf(time.Now())
	return ticket.Ticket{
		ID: id, Joined: now.Add(-time.Minute), Seen: uint32(now.Second()), Admitted: uint32(now.Second()),
		Until: uint32(now.Second()) + 330, Home: ticket.DCOf(dc),
	}
}

// cookieOf returns the cookie of a session or a place that an answer sets, nil for none. name is that of the session's.
func cookieOf(a answer, name string) *http.Cookie {
	for _, c := range a.Cookies() {
		if c.Name == name || c.Name == ticket.PlaceCookieName(name) && c.MaxAge >= 0 {
			return c
		}
	}
	return nil
}
