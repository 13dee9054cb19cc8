package global_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/global"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/leak"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

func TestMain(m *testing.M) { leak.WithNATS(m) }

var quiet = slog.New(slog.DiscardHandler)

func serve(t testing.TB) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Name: "test", Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: quiet})
	testkit.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

func connect(t testing.TB, s nats.InProcessConnProvider, name string) *natsbus.Conn {
	t.Helper()
	c := testkit.Must(natsbus.Connect(natsbus.Options{InProcess: s, Name: name, Log: quiet}))(t)
	t.Cleanup(c.Close)
	return c
}

var eventually = testkit.Eventually

// candidate is a global that runs until the test ends, or it is stopped.
type candidate struct {
	*global.Server
	reg  *prometheus.Registry
	stop func()
}

func stand(t *testing.T, s nats.InProcessConnProvider, name, rooms string, change func(*global.Config)) *candidate {
	t.Helper()
	return standOver(t, s, name, rooms, change, func(*global.Options) {})
}

// standOver is stand with other options.
func standOver(t *testing.T, s nats.InProcessConnProvider, name, rooms string, change func(*global.Config),
	over func(*global.Options),
) *candidate {
	t.Helper()
	cfg := global.DefaultConfig()
	cfg.Name, cfg.DataDir, cfg.Rooms, cfg.DataCenters, cfg.Bootstrap = name, t.TempDir(), rooms, []string{"dublin"}, true
	if change != nil {
		change(&cfg)
	}
	if errs := cfg.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	conn, clock, reg := connect(t, s, name), node.NewClock(), prometheus.NewPedanticRegistry()
	o := global.Options{
		Config: cfg, Params: wire.DefaultParams(), Bus: conn, Clock: clock, Reg: reg, Log: quiet,
		Docs:  natsbus.NewDocuments(conn, 1, global.Watched...),
		Lease: natsbus.NewLease(conn, wire.Root, name, 1, clock.Now).Bootstrap(cfg.Bootstrap),
	}
	over(&o)
	srv := testkit.Must(global.New(o))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	c := &candidate{Server: srv, reg: reg}
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	t.Cleanup(c.stop)
	return c
}

func (c *candidate) leads() bool { return c.Status().Leading }

// reader is a node that follows the published documents.
func reader(t *testing.T, s *embedded.Server) *node.Fleet {
	t.Helper()
	return follow(t, connect(t, s, "reader"), t.TempDir(), node.RoomsDocument, node.KeysDocument)
}

// regional is a node of Dublin with a folder, that offers its documents to global.
func regional(t *testing.T, s *embedded.Server, dir string) *node.Fleet {
	t.Helper()
	conn := connect(t, s, "regional")
	f := follow(t, conn, dir, node.RoomsDocument, node.KeysDocument, node.MembersDocument, node.ControlsDocument,
		node.DrawsDocument)
	hand(t, conn, f, node.Holder{DC: "dublin", Name: "regional"})
	return f
}

// edgeNode is an edge of Dublin with a folder, that offers its documents to global.
func edgeNode(t *testing.T, s *embedded.Server, dir string) *node.Fleet {
	t.Helper()
	conn := connect(t, s, "edge")
	f := follow(t, conn, dir, node.RoomsDocument, node.KeysDocument, node.ControlsDocument, node.DrawsDocument)
	hand(t, conn, f, node.Holder{DC: "dublin", Name: "edge", Edge: true})
	return f
}

func hand(t *testing.T, conn *natsbus.Conn, f *node.Fleet, h node.Holder) {
	t.Helper()
	stop, err := f.Hand(conn, h, node.KeysDocument, node.MembersDocument, node.RoomsDocument, node.ControlsDocument,
		node.DrawsDocument)
	testkit.NoError(t, err)
	t.Cleanup(stop)
}

func follow(t *testing.T, conn *natsbus.Conn, dir string, docs ...string) *node.Fleet {
	t.Helper()
	f, err := node.NewFleet(dir, natsbus.NewDocuments(conn, 0, docs...), quiet, prometheus.NewRegistry(), func() {})
	testkit.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.Run(ctx); ctx.Err() == nil {
			t.Errorf("reader: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return f
}

func roomsFile(t *testing.T, total int, page string, names ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rooms.yaml")
	writeRooms(t, name, total, page, names...)
	return name
}

func writeRooms(t *testing.T, file string, total int, page string, names ...string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("rooms:\n")
	if page != "" {
		page = ", waiting_page: " + page
	}
	for _, name := range names {
		fmt.Fprintf(&b,
			"  - {name: %s, host: %s.example, total_active_users: %d, new_users_per_minute: 6, session_duration: 1m, origin: "+
				"\"http://127.0.0.1:1\"%s}\n", name, name, total, page)
	}
	overwrite(t, file, b.String())
}

func overwrite(t *testing.T, file, text string) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

func total(set *room.Set, name string) int {
	for _, r := range set.Rooms() {
		if r.Name == name {
			return r.TotalActiveUsers
		}
	}
	return -1
}

func value(t *testing.T, c *candidate, name string) float64 {
	t.Helper()
	families := testkit.Must(c.reg.Gather())(t)
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// More rooms than fit one message are published in sections; those that are not
// named any more are deleted in the end.
func TestManyRoomsReachEverybody(t *testing.T) {
	s := serve(t)
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprint("a-room-with-a-name-", i))
	}
	file := roomsFile(t, 5, "", names...)
	standOver(t, s, "one", file, nil, func(o *global.Options) { o.Docs = narrow{o.Docs, 2000} })
	f := reader(t, s)
	eventually(t, "all rooms are known", func() bool { return len(f.Set().Rooms()) == 300 })
	writeRooms(t, file, 7, "", names...)
	eventually(t, "the change is known", func() bool { return total(f.Set(), names[0]) == 7 })
	if alarms := f.Alarms(); len(alarms) > 0 {
		t.Error(alarms)
	}
	stored, err := natsbus.NewDocuments(connect(t, s, "looker"), 0).List(within(t), "section.*")
	if err != nil || len(stored) < 2 {
		t.Errorf("sections in the store: %v, %v", stored, err)
	}
}

// narrow is a store with a small limit on values.
type narrow struct {
	wire.Documents
	limit int // bytes
}

func (n narrow) Limit() int { return n.limit }

// deafOnce fails at the first subscription of a subject.
type deafOnce struct {
	wire.Bus
	subject string
	tried   atomic.Int64
}

func (d *deafOnce) Subscribe(subject string, handle func(string, []byte)) (func(), error) {
	if subject == d.subject && d.tried.Add(1) == 1 {
		return nil, wire.ErrDown
	}
	return d.Bus.Subscribe(subject, handle)
}

// A leader that cannot hear all that it needs gives up its term, and the next term begins whole.
func TestALeaderThatCannotListenGivesUpItsTerm(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{wire.Reports(wire.Root), wire.Copies} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			f := reader(t, s)
			deaf := &deafOnce{subject: subject}
			c := standOver(t, s, "one", roomsFile(t, 5, "", "a"), nil, func(o *global.Options) {
				deaf.Bus = o.Bus
				o.Bus = deaf
			})
			eventually(t, "the rooms are published", func() bool { return total(f.Set(), "a") == 5 && c.leads() })
			if n := deaf.tried.Load(); n < 2 {
				t.Errorf("subscribed %d times, want once in each term", n)
			}
		})
	}
}

// Rooms that cannot be stored are reported with their size, by the metric and by an alarm.
func TestRoomsThatCannotBeStoredRaiseAnAlarm(t *testing.T) {
	t.Parallel()
	s := serve(t)
	file := roomsFile(t, 5, "", "a", "b", "c", "d", "e")
	c := standOver(t, s, "one", file, nil, func(o *global.Options) { o.Docs = narrow{o.Docs, 200} })
	eventually(t, "the file is not in force",
		func() bool { return value(t, c, "vestibule_global_rooms_file_valid") == 0 && c.leads() })
	eventually(t, "there is an alarm with size and limit", func() bool {
		return slices.ContainsFunc(c.Ready().Alarms, func(text string) bool {
			return strings.Contains(text, "rooms cannot be published") && strings.Contains(text, "at most 200 can be stored")
		})
	})
	overwrite(t, file, "rooms: []\n")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("valid %v, %+v", value(t, c, "vestibule_global_rooms_file_valid"), c.Ready())
		}
	})
	eventually(t, "a file that fits is in force", func() bool {
		return value(t, c, "vestibule_global_rooms_file_valid") == 1 && c.Ready().Ready && len(c.Ready().Alarms) == 0
	})
}

func TestAChangeOfTheRoomsFileReachesEverybody(t *testing.T) {
	s := serve(t)
	file := roomsFile(t, 5, "", "a", "b")
	c, f := stand(t, s, "one", file, nil), reader(t, s)
	eventually(t, "the rooms are known", func() bool { return total(f.Set(), "a") == 5 && len(f.Ring().Keys) == 2 })
	eventually(t, "global is ready and lends", func() bool { return c.Ready().Ready && c.Status().Rooms["a"].Total == 5 })

	writeRooms(t, file, 7, "", "a")
	took := eventually(t, "the change is known",
		func() bool { return total(f.Set(), "a") == 7 && total(f.Set(), "b") == -1 })
	t.Logf("the change took %v (goal 2 s)", took.Round(time.Millisecond))
	version := f.Set().Version()

	// With faults: refused with all of them, and the last good one stays.
	overwrite(t, file, "rooms:\n  - {name: a, colour: blue, total_active_users: 0}\n")
	eventually(t, "the file is refused", func() bool { return value(t, c, "vestibule_global_rooms_file_valid") == 0 })
	if a := c.Ready().Alarms; len(a) != 1 ||
		!strings.HasPrefix(a[0], "the rooms file is refused, the last good rooms stay: "+file+": ") {
		t.Errorf("alarms %q", a)
	}
	if n := value(t, c, "vestibule_global_rooms_refused_total"); n != 1 {
		t.Errorf("refused %v times", n)
	}
	testkit.NoError(t, os.Remove(file))
	eventually(t, "a file that is gone is refused too",
		func() bool { return value(t, c, "vestibule_global_rooms_refused_total") == 2 })
	if f.Set().Version() != version || total(f.Set(), "a") != 7 {
		t.Error("the last good rooms did not stay")
	}
	writeRooms(t, file, 8, "", "a")
	eventually(t, "the repaired file is in force", func() bool { return total(f.Set(), "a") == 8 })
	if a := c.Ready().Alarms; len(a) > 0 {
		t.Errorf("alarms %q of a file that is good again", a)
	}
	if value(t, c, "vestibule_global_rooms_file_valid") != 1 || f.Set().Version() <= version {
		t.Errorf("version %d after %d", f.Set().Version(), version)
	}
	problems, err := testutil.GatherAndLint(c.reg)
	if err != nil || len(problems) > 0 {
		t.Error(err, problems)
	}
}

// A listener of the fleet is no site of the rooms file either. One that is in use stays, with an alarm.
func TestAFileCannotMakeAListenerOfTheFleetASite(t *testing.T) {
	s := serve(t)
	file := roomsFile(t, 5, "", "a")
	c, f := stand(t, s, "one", file, nil), reader(t, s)
	eventually(t, "the rooms are known", func() bool { return total(f.Set(), "a") == 5 && c.Ready().Ready })
	c.Listeners.Add(&net.TCPAddr{IP: net.IPv4zero, Port: 8090})
	text := string(testkit.Must(os.ReadFile(file))(t))
	overwrite(t, file, strings.Replace(text, "127.0.0.1:1", "localhost:8090", 1))
	eventually(t, "the file is refused", func() bool {
		return value(t, c, "vestibule_global_rooms_file_valid") == 0 &&
			strings.Contains(strings.Join(c.Ready().Alarms, "\n"), `rooms[0] "a": origin: must not be a listener of the fleet, and 127.0.0.1:8090 is one`)
	})
	if r := f.Set().Rooms(); r[0].Origin != "http://127.0.0.1:1" {
		t.Errorf("the site is %s", r[0].Origin)
	}
	overwrite(t, file, strings.Replace(text, ": 5", ": 6", 1))
	eventually(t, "the repaired file is in force", func() bool { return total(f.Set(), "a") == 6 && len(c.Ready().Alarms) == 0 })
	c.Listeners.Add(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1})
	writeRooms(t, file, 7, "", "a")
	eventually(t, "a site in use stays", func() bool { return total(f.Set(), "a") == 7 })
}

func TestAWaitingPageFollowsItsFile(t *testing.T) {
	s := serve(t)
	file := roomsFile(t, 5, "page.html", "a")
	page := filepath.Join(filepath.Dir(file), "page.html")
	overwrite(t, page, "<html>one</html>")
	c, f := stand(t, s, "one", file, nil), reader(t, s)
	shows := func(text string) func() bool {
		return func() bool {
			rooms := f.Set().Rooms()
			return len(rooms) == 1 && strings.Contains(string(f.Page(rooms[0].WaitingPage)), text)
		}
	}
	eventually(t, "the page is known", shows("one"))
	overwrite(t, page, "<html>another</html>")
	took := eventually(t, "the new page is known", shows("another"))
	t.Logf("the change took %v (goal 2 s)", took.Round(time.Millisecond))
	overwrite(t, page, "<html>{{#broken}}</html>")
	eventually(t, "a broken page is refused", func() bool { return value(t, c, "vestibule_global_rooms_file_valid") == 0 })
	if !shows("another")() {
		t.Error("the last good page did not stay")
	}
}

func TestKeysAreMadeOnceThoughTwoRace(t *testing.T) {
	s := serve(t)
	file := roomsFile(t, 5, "", "a")
	a, b := stand(t, s, "a", file, nil), stand(t, s, "b", file, nil)
	f := reader(t, s)
	eventually(t, "there are keys", func() bool { return len(f.Ring().Keys) == 2 && f.Set() != nil })
	first := f.Ring()
	leader, standby := a, b
	eventually(t, "one of them leads", func() bool { return a.leads() != b.leads() })
	if b.leads() {
		leader, standby = b, a
	}
	eventually(t, "the standby is ready", func() bool { return standby.Ready().Ready })
	term := leader.Status().Term.N
	leader.stop()
	took := eventually(t, "the standby leads", standby.leads)
	t.Logf("the takeover took %v (goal 2 s)", took.Round(time.Millisecond))
	if got := standby.Status().Term.N; got <= term {
		t.Errorf("term %d after %d", got, term)
	}
	writeRooms(t, file, 9, "", "a")
	eventually(t, "the new leader publishes", func() bool { return total(f.Set(), "a") == 9 })
	if got := f.Ring(); got.Version != 1 || got.Keys[0] != first.Keys[0] {
		t.Errorf("keys were made again: version %d", got.Version)
	}
}

// A key that comes into use is followed by the next, which seals nothing for a whole rotation.
func TestKeysAreRotated(t *testing.T) {
	s := serve(t)
	conn := connect(t, s, "operator")
	now := fleettime.TimeOf(time.Now())
	old, err := (ticket.Keyring{}).Rotate(now.Add(-time.Hour), 0, strings.NewReader(strings.Repeat("o", 32)))
	testkit.NoError(t, err)
	data := testkit.Must(ticket.EncodeKeyring(old))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	eventually(t, "connected", conn.Connected)
	testkit.Must(natsbus.NewDocuments(conn, 1).Put(ctx, node.KeysDocument, data, 0))(t)
	stand(t, s, "one", roomsFile(t, 5, "", "a"), func(c *global.Config) { c.KeyRotation = ticket.MinRotation })
	f := reader(t, s)
	eventually(t, "a second key is there", func() bool { return len(f.Ring().Keys) == 2 })
	ring := f.Ring()
	if ring.Keys[0] != old.Keys[0] || ring.Version != 2 || ring.Keys[1].SealFrom < now.Add(ticket.MinRotation) {
		t.Errorf("rotated to version %d, sealing from %v", ring.Version, ring.Keys[1].SealFrom)
	}
}

// Bootstrap is believed once: a later leader ignores it.
func TestBootstrapIsBelievedOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	file := roomsFile(t, 5, "", "a")
	first := stand(t, s, "one", file, nil)
	complete := func(c *candidate) bool { return c.Status().Rooms["a"].Complete }
	eventually(t, "nobody has to be waited for", func() bool { return complete(first) })
	dir := t.TempDir()
	for _, name := range []string{"two", "three"} { // in one folder
		first.stop()
		first = stand(t, s, name, file, func(c *global.Config) { c.DataDir = dir })
		eventually(t, name+" leads and knows the rooms",
			func() bool { return first.leads() && first.Status().Rooms["a"].Total == 5 })
		if complete(first) {
			t.Errorf("%s takes a data centre that it has not heard for one that holds nothing", name)
		}
	}
}

// An unlisted data centre hears so, is counted, and raises an alarm.
func TestADataCentreThatNobodyListed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := stand(t, s, "one", roomsFile(t, 5, "", "a"), nil)
	conn := connect(t, s, "stranger")
	eventually(t, "it leads", c.leads)
	var standing atomic.Int64
	standing.Store(-1)
	cancel := testkit.Must(conn.Subscribe(wire.GrantSubject(wire.Root, "lima"), func(_ string, data []byte) {
		g, err := wire.DecodeGrant(data)
		if err != nil {
			t.Error(err)
			return
		}
		standing.Store(int64(g.Standing))
	}))(t)
	defer cancel()
	seq := uint64(0)
	eventually(t, "it is told that it is not listed", func() bool {
		seq++
		data := wire.EncodeReport(&wire.Report{From: "lima", Instance: 1, Seq: seq, Parts: 1, Sent: 1, Join: true})
		return conn.Publish(wire.ReportSubject(wire.Root, "lima"), data) == nil && standing.Load() == int64(wire.Unlisted)
	})
	const alarm = "data centre lima reports but is not listed, it admits no visitor: vestibule fleet add lima"
	if alarms := c.Ready().Alarms; !slices.Contains(alarms, alarm) {
		t.Errorf("alarms: %q", alarms)
	}
	if n := value(t, c, "vestibule_global_unlisted_data_centers"); n != 1 {
		t.Errorf("the metric says %v", n)
	}
}

// The list holds the sites of its first data centres. Another data centre with a listed name hears that it is not
// listed, raises an alarm, and does not replace the listed one.
func TestADataCentreThatBearsAnothersName(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := stand(t, s, "one", roomsFile(t, 5, "", "a"), func(cfg *global.Config) { cfg.DataCenters = []string{"lima"} })
	conn := connect(t, s, "lima")
	eventually(t, "it leads", c.leads)
	var term atomic.Pointer[wire.Term]
	var standings [2]atomic.Int64 // of instances 1 and 2
	cancel := testkit.Must(conn.Subscribe(wire.GrantSubject(wire.Root, "lima"), func(_ string, data []byte) {
		g, err := wire.DecodeGrant(data)
		if err != nil {
			t.Error(err)
			return
		}
		term.Store(&g.From)
		standings[g.Instance-1].Store(1 + int64(g.Standing))
	}))(t)
	defer cancel()
	seq := uint64(0)
	report := func(instance, site uint64) {
		seq++
		m := wire.Report{From: "lima", Instance: instance, ClusterID: site, Seq: seq, Parts: 1, Sent: 1, Join: true}
		if seen := term.Load(); seen != nil {
			m.Seen = *seen
		}
		data := wire.EncodeReport(&m)
		testkit.NoError(t, conn.Publish(wire.ReportSubject(wire.Root, "lima"), data))
	}
	docs := natsbus.NewDocuments(conn, 0)
	eventually(t, "the list holds its site", func() bool {
		report(1, 7)
		data, _, err := docs.Get(t.Context(), node.MembersDocument)
		if err != nil || data == nil {
			return false
		}
		m, err := node.DecodeMembers(data)
		return err == nil && m.List[0].ClusterID == 7
	})
	const alarm = "another data centre is named lima (cluster ID 0000000000000008), it admits no visitor"
	eventually(t, "an alarm", func() bool {
		report(1, 7)
		report(2, 8)
		return slices.ContainsFunc(c.Ready().Alarms, func(a string) bool { return strings.HasPrefix(a, alarm) })
	})
	eventually(t, "both are told", func() bool {
		report(1, 7)
		report(2, 8)
		return standings[0].Load() == 1+int64(wire.Listed) && standings[1].Load() == 1+int64(wire.Unlisted)
	})
	if n := value(t, c, "vestibule_global_unlisted_data_centers"); n != 1 {
		t.Errorf("the metric says %v", n)
	}
	other := stand(t, s, "two", "",
		func(cfg *global.Config) { cfg.DataCenters, cfg.Bootstrap = []string{"lima", "oslo"}, false })
	eventually(t, "a global with another list raises an alarm", func() bool {
		return slices.Contains(other.Ready().Alarms,
			"data_centers of this global names oslo, which the fleet's list does not: correct it")
	})
}

// An invalid report is refused and counted.
func TestNonsenseIsRefused(t *testing.T) {
	s := serve(t)
	c := stand(t, s, "one", roomsFile(t, 5, "", "a"), nil)
	conn := connect(t, s, "stranger")
	eventually(t, "it leads", c.leads)
	eventually(t, "nonsense is counted", func() bool {
		if err := conn.Publish(wire.ReportSubject(wire.Root, "dublin"), []byte("nonsense")); err != nil {
			return false
		}
		return value(t, c, "vestibule_global_reports_refused_total") > 0
	})
}
