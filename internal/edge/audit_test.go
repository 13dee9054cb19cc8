package edge

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// tree is the regional and the coordinator above one edge: the real ones, in
// one goroutine, over the bus in memory.
type tree struct {
	t     testing.TB
	bus   *bus
	clock *node.Clock
	agg   *region.Aggregator
	alloc *root.Allocator
}

func newTree(t testing.TB, b *bus, p wire.Params, d room.Document) *tree {
	t.Helper()
	set := testkit.Must(room.NewSet(d, 1))(t)
	x := &tree{t: t, bus: b, clock: node.NewClock()}
	now := x.clock.Now()
	x.agg = region.New(now, region.Config{
		DC: dc, Term: wire.Term{N: 1, Nonce: 1}, Params: p, Bootstrap: true,
		ClusterID: 1,
	}, wire.Durable{})
	x.alloc = root.New(now, root.Config{
		Term: wire.Term{N: 1, Nonce: 2}, Centres: []string{dc}, Params: p,
		Bootstrap: true,
	})
	x.agg.SetLease(math.MaxInt64)
	x.alloc.SetLease(math.MaxInt64)
	x.agg.SetRooms(now, node.LedgerRooms(set))
	x.alloc.SetRooms(now, node.LedgerRooms(set))
	return x
}

// run drives the tree until the test ends.
func (x *tree) run() {
	inbox := make(chan *wire.Report, 1024)
	stop := testkit.Must(x.bus.Subscribe(wire.Reports(dc), func(_ string, data []byte) {
		r, err := wire.DecodeReport(data)
		if err != nil {
			x.t.Errorf("report: %v", err)
			return
		}
		inbox <- r
	}))(x.t)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case r := <-inbox:
				x.agg.Observe(x.clock.Now(), *r)
			case <-tick.C:
			}
			x.step()
		}
	})
	x.t.Cleanup(func() {
		stop()
		cancel()
		done.Wait()
	})
}

func (x *tree) step() {
	now, wall := x.clock.Read()
	x.alloc.SetTime(now, fleettime.TimeOf(wall))
	if x.agg.ReportDue() <= now {
		for _, r := range x.agg.Report(now) {
			x.alloc.Observe(now, r)
		}
	}
	if x.alloc.GrantsDue() <= now {
		for _, g := range x.alloc.Grants(now) {
			x.agg.Apply(now, g)
		}
	}
	if d, ok := x.agg.Unsaved(); ok {
		x.agg.Saved(now, d.Version)
	}
	if x.agg.GrantsDue() > now {
		return
	}
	for _, g := range x.agg.Grants(now) {
		if err := x.bus.Publish(wire.GrantSubject(dc, g.To), wire.EncodeGrant(&g)); err != nil {
			x.t.Errorf("grant: %v", err)
		}
	}
}

// The site counts admitted visitors itself. Several hundred visitors send all requests of a page in parallel, the
// oldest ticket again, or no ticket: the count never exceeds the room's limit, and reaches it in the end.
func TestNeverMoreThanTheLimit(t *testing.T) {
	const limit, visitors, pages, atOnce = 40, 300, 3, 3
	var mu sync.Mutex
	inside := map[string]bool{}
	st := newStage(t, func(st *stage) {
		st.params.ReportFast, st.params.SyncFast = 50*time.Millisecond,
			100*time.Millisecond
	})
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		who := r.Header.Get("X-Who")
		if inside[who] = true; len(inside) == limit+1 {
			t.Errorf("%s is one too many", who)
		}
		w.Write([]byte("the site")) //nolint:errcheck // the status is looked at
	})
	d := document(st.origin.URL)
	d.Rooms = d.Rooms[:1]
	d.Rooms[0].TotalActiveUsers, d.Rooms[0].NewUsersPerMinute = limit, 1_000_000
	newTree(t, st.bus, st.params, d).run()
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 1, d))
	st.docs.offer(node.KeysDocument, keysDocument(t, st.keys.ring))
	st.start()
	st.adopted()

	// One connection pool for all: the test is about tickets, not sockets.
	shared := st.door.visitor()
	shared.Transport.(*http.Transport).MaxIdleConnsPerHost = visitors
	shared.Jar = nil
	var crowd sync.WaitGroup
	begin := make(chan struct{})
	var cookies [visitors]string
	for i := range visitors {
		crowd.Go(func() {
			<-begin
			cookies[i] = st.visits(shared, fmt.Sprintf("visitor-%d", i), "", pages, atOnce)
		})
	}
	close(begin)
	crowd.Wait()
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(inside)
	}
	eventually(t, "the room is full", func() bool {
		for i := range cookies { // they still wait: newcomers would come behind them
			if count() >= limit {
				return true
			}
			cookies[i] = st.visits(shared, fmt.Sprintf("visitor-%d", i), cookies[i], 0, 0)
		}
		return false
	})
	if n := count(); n != limit {
		t.Errorf("the site counted %d visitors, the room holds %d", n, limit)
	}
	if r := st.server.Status().Rooms["sale"]; r.Admitted > limit || r.Sessions > limit {
		t.Errorf("the edge admitted %d, with %d sessions", r.Admitted, r.Sessions)
	}
}

// visits asks for pages: the first alone, as a browser does, then several
// requests side by side with the newest ticket and the first one again. It returns the newest one.
func (st *stage) visits(v *visitor, who, cookie string, pages, atOnce int) (newest string) {
	first := ""
	ask := func(cookie string) string {
		header := []string{"X-Who", who}
		if cookie != "" {
			header = append(header, "Cookie", cookie)
		}
		a := v.get("http://sale.example/", header...)
		if a.StatusCode != http.StatusOK {
			st.t.Errorf("%s: %d", who, a.StatusCode)
		}
		if c := cookieOf(a, "vestibule-sale"); c != nil {
			return c.Name + "=" + c.Value
		}
		return cookie
	}
	first = ask(cookie)
	newest = first
	for range pages {
		var page sync.WaitGroup
		got := make([]string, atOnce)
		for i := range got {
			page.Go(func() {
				if i%2 == 0 {
					got[i] = ask(newest)
				} else {
					ask(first)
				}
			})
		}
		page.Wait()
		newest = got[0]
	}
	return newest
}
