package roomstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
)

var allChanges = flag.Int("changes", 40, "changes that writers make while servers are killed")

// trio is three nats-servers that keep the store together.
type trio struct {
	testing.TB
	opts []*server.Options
	now  []*server.Server
	urls string
}

// newTrio runs them. With sync they write to the disk before they answer, as in production.
func newTrio(t testing.TB, sync bool) *trio {
	t.Helper()
	x := &trio{TB: t, now: make([]*server.Server, 3)}
	var clients, routes []string
	for range 3 {
		clients, routes = append(clients, testkit.FreeAddr(t)), append(routes, "nats://"+testkit.FreeAddr(t))
	}
	x.urls = "nats://" + strings.Join(clients, ",nats://")
	port := func(addr string) int {
		_, p, err := net.SplitHostPort(addr)
		testkit.NoError(t, err)
		return testkit.Must(strconv.Atoi(p))(t)
	}
	for i := range 3 {
		x.opts = append(x.opts, &server.Options{
			ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: port(clients[i]), NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: sync,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port(strings.TrimPrefix(routes[i], "nats://"))},
			Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
		})
		x.start(i)
	}
	t.Cleanup(func() {
		for _, s := range x.now {
			s.Shutdown()
			s.WaitForShutdown()
		}
	})
	testkit.Eventually(t, "the servers have a leader",
		func() bool { return x.leader() >= 0 && len(x.now[x.leader()].JetStreamClusterPeers()) == 3 })
	return x
}

func (x *trio) start(i int) {
	x.Helper()
	s := testkit.Must(server.NewServer(x.opts[i].Clone()))(x)
	s.Start()
	x.now[i] = s
}

// leader returns which server leads JetStream, below 0 for none.
func (x *trio) leader() int {
	return slices.IndexFunc(x.now, func(s *server.Server) bool { return s.JetStreamIsLeader() })
}

// current reports whether every server has all of the store again.
func (x *trio) current() bool {
	return x.leader() >= 0 && !slices.ContainsFunc(x.now, func(s *server.Server) bool { return !s.JetStreamIsCurrent() })
}

// candidacy is a candidate's store of rooms over three servers, with the audit stream, until it is killed: then its
// operations are cut off, and its memory is lost.
type candidacy struct {
	context.Context // ends with it
	*roomstore.Store
	docs   *natsbus.Documents
	stream *natsbus.Audit
	kill   func()
}

func (x *trio) candidacy(name string) (*candidacy, error) {
	c, err := natsbus.Connect(natsbus.Options{URL: x.urls, Name: name, Log: quiet})
	if err != nil {
		return nil, err
	}
	m := &candidacy{docs: natsbus.NewDocuments(c, 3, roomstore.OwnedDocument), stream: natsbus.NewAudit(c, 3)}
	m.Store = roomstore.New(roomstore.Options{
		Docs: m.docs, Log: quiet, Floor: func() uint64 { return 0 },
		Keep: func(string, []byte) error { return nil }, Journal: audit.NewJournal(m.stream),
	})
	ctx, cancel := context.WithCancel(context.Background())
	m.Context = ctx
	var g sync.WaitGroup
	g.Go(func() { _ = m.Run(ctx) })
	g.Go(func() { _ = m.docs.Watch(ctx, func(_ string, data []byte) { m.Offer(data) }) })
	m.kill = sync.OnceFunc(func() { cancel(); c.Close(); g.Wait() })
	x.Cleanup(m.kill)
	return m, nil
}

// member is a candidacy that nobody kills.
func (x *trio) member(name string) *candidacy {
	x.Helper()
	return testkit.Must(x.candidacy(name))(x)
}

// Eight writers change rooms while the three servers are killed in turn and come back, each time one that leads. A
// writer is killed with it, and the candidate that repairs their remains, as the leading global does. No acknowledged
// change is lost, none is made twice, the store is a valid set at every moment, and each change has its entry.
func TestChangesWhileServersAreKilled(t *testing.T) {
	const writers = 8
	each := max(1, *allChanges/writers)
	x := newTrio(t, false) // no test stops the machine
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Duration(*allChanges)*200*time.Millisecond)
	defer cancel()
	first := x.member("judge")
	docs, stream := first.docs, first.stream
	var lives [writers + 1]atomic.Pointer[candidacy] // the last one leads
	for i := range lives {
		lives[i].Store(x.member(fmt.Sprint("candidate-", i)))
	}
	// again restarts a killed candidacy.
	again := func(i int) {
		m, err := x.candidacy(fmt.Sprint("candidate-", i))
		if err != nil {
			t.Error(err)
			cancel()
			return
		}
		lives[i].Store(m)
	}
	change := func(s *candidacy, who string, names ...string) error {
		ctx, cancel := context.WithCancel(ctx)
		defer context.AfterFunc(s, cancel)()
		defer cancel()
		_, err := s.Change(roomstore.By(ctx, audit.By{Name: who, Operation: "test"}), func(d *roomstore.Draft) error {
			for _, name := range names {
				r := shop(name, 0)
				if have := d.Room(name); have != nil {
					r = have.Settings
				}
				r.TotalActiveUsers++
				d.Put(r)
			}
			return nil
		})
		return err
	}
	testkit.Eventually(t, "the store takes a change", func() bool { return change(first, "first", "shared") == nil })
	mend := func(ctx context.Context, s *candidacy) bool {
		_, err := s.Publish(ctx, false, func(*roomstore.Draft) error { return nil })
		return err == nil && s.AuditFault() == ""
	}
	testkit.Eventually(t, "the audit stream takes its entry", func() bool { return mend(ctx, first) })

	acked, unknown, refused := make([]int, writers), make([]int, writers), make([]int, writers)
	var total atomic.Int64
	var g sync.WaitGroup
	for i := range writers {
		g.Go(func() {
			name := fmt.Sprint("own-", i)
			for acked[i]+unknown[i] < each && ctx.Err() == nil {
				s := lives[i].Load()
				switch err := change(s, name, name, "shared"); {
				case err == nil:
					acked[i]++
					total.Add(1)
				case errors.Is(err, roomstore.ErrUnknown) || s.Err() != nil: // a killed candidacy answers nobody
					unknown[i]++
				default:
					refused[i]++ // no server took it: nothing was changed
				}
				if s.Err() != nil {
					again(i)
				}
			}
		})
	}
	leading, stop := context.WithCancel(ctx)
	var leader sync.WaitGroup
	leader.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-leading.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			s := lives[writers].Load()
			if s.Err() != nil {
				again(writers)
				continue
			}
			term, end := context.WithCancel(leading)
			free := context.AfterFunc(s, end)
			mend(term, s)
			free()
			end()
		}
	})
	defer leader.Wait()
	defer stop()
	over := make(chan struct{})
	go func() { g.Wait(); close(over) }()
	kills, broken, looks := 0, 0, 0
	for done, next := false, int64(each); !done; {
		select {
		case <-over:
			done = true
		case <-time.After(20 * time.Millisecond):
		}
		// The store holds a set that nodes accept at this moment.
		look, cancel := context.WithTimeout(ctx, time.Second) // a question to a server that was killed is not answered
		head, _, err := docs.Get(look, roomdoc.RoomsDocument)
		if cancel(); err == nil {
			looks++
			if version, doc, err := roomdoc.DecodeRooms(head); err != nil {
				broken++
			} else if _, err := room.NewSet(doc, version); err != nil {
				broken++
			}
		}
		if !done && total.Load() >= next && x.current() { // never two at once: writes need a majority
			victim := max(0, x.leader())
			x.now[victim].Shutdown()
			x.now[victim].WaitForShutdown()
			lives[kills%writers].Load().kill()
			lives[writers].Load().kill()
			kills++
			after := total.Load()
			next = after + int64(min(max(each, 30), 500))
			testkit.Eventually(t, "changes go on with two servers", func() bool {
				select {
				case <-over:
					return true
				default:
					return total.Load() > after+2
				}
			})
			x.start(victim)
		}
	}
	if ctx.Err() != nil {
		t.Fatalf("%d changes of %d", total.Load(), each*writers)
	}
	if kills == 0 {
		t.Error("no server was killed")
	}
	stop()
	leader.Wait()
	testkit.Eventually(t, "every server is whole again", x.current)
	// The leader repairs the remains of a writer that got no answer.
	testkit.Eventually(t, "the store takes what is left", func() bool { return mend(ctx, first) })
	state := testkit.Must(first.Read(ctx))(t)
	lost, twice, maybe, all := 0, 0, 0, 0
	for i := range writers {
		have := 0
		if r := state.Room(fmt.Sprint("own-", i)); r != nil {
			have = r.TotalActiveUsers
		}
		lost, twice = lost+max(0, acked[i]-have), twice+max(0, have-acked[i]-unknown[i])
		maybe, all = maybe+unknown[i], all+have
	}
	if lost+twice+broken > 0 || state.Room("shared").TotalActiveUsers != all+1 {
		t.Errorf("%d lost, %d made twice, %d sets broken of %d; shared was changed %d times, the others %d", lost, twice,
			broken, looks, state.Room("shared").TotalActiveUsers, all)
	}
	var chain audit.Chain
	logged := map[string]int{}
	last, entries := uint64(0), 0
	for from := uint64(1); ; {
		some := testkit.Must(stream.Read(ctx, from, 500, ""))(t)
		if len(some) == 0 {
			break
		}
		for _, s := range some {
			e, gap, err := chain.Next(s.Data)
			if err != nil || gap != "" || e.Version <= last {
				t.Fatalf("%s: %v %s, after version %d", s.Data, err, gap, last)
			}
			for _, r := range e.Rooms {
				if r.Name == e.By.Name {
					logged[r.Name]++
				}
			}
			last, entries, from = e.Version, entries+1, s.Sequence+1
		}
	}
	for i := range writers {
		name := fmt.Sprint("own-", i)
		if r := state.Room(name); r != nil && logged[name] != r.TotalActiveUsers {
			t.Errorf("%s was changed %d times, and has %d entries", name, r.TotalActiveUsers, logged[name])
		}
	}
	out := testkit.Must(json.Marshal(map[string]any{
		"changes": total.Load(), "unknown": maybe, "kills": kills, "candidates_killed": 2 * kills, "lost": lost,
		"twice": twice, "broken": broken, "looks": looks, "entries": entries,
	}))(t)
	t.Logf("%s", out)
}

// BenchmarkChangeOverThreeServers measures one candidate's changes per second over three servers that write to disk
// before they answer.
func BenchmarkChangeOverThreeServers(b *testing.B) {
	x := newTrio(b, true)
	s := x.member("one")
	n := 0
	put := func() error {
		n++
		_, err := s.Change(b.Context(), func(d *roomstore.Draft) error { d.Put(shop("room", 1+n)); return nil })
		return err
	}
	testkit.Eventually(b, "the store takes a change", func() bool { return put() == nil })
	for b.Loop() {
		testkit.NoError(b, put())
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
}
