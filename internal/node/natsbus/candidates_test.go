package natsbus_test

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
)

// court is three candidates, each with a separate network path.
type court struct {
	*tenure
	all   map[string]*candidate
	paths map[string]*link
}

func newCourt(t *testing.T, replicas int, urls ...string) *court {
	t.Helper()
	c := &court{tenure: &tenure{t: t}, all: map[string]*candidate{}, paths: map[string]*link{}}
	for i, name := range []string{"a", "b", "c"} {
		c.paths[name] = newLink(t, urls[i%len(urls)])
		c.all[name] = standWith(t, c.tenure, c.paths[name].url(), name, replicas)
	}
	eventually(t, "somebody leads", func() bool { return c.now() != "" })
	return c
}

// another waits until another candidate than name leads.
func (c *court) another(name string) {
	c.t.Helper()
	eventually(c.t, "another than "+name+" leads", func() bool { next := c.now(); return next != "" && next != name })
}

// settles waits until a candidate has led for longer than a lease without interruption, and returns it. A pause of
// the machine may bring another one first.
func (c *court) settles() (leader string) {
	c.t.Helper()
	tenure, from := 0, int64(0)
	eventually(c.t, "somebody leads for longer than a lease", func() bool {
		c.mu.Lock()
		now, n := c.leader, len(c.leaders)
		c.mu.Unlock()
		switch {
		case now == "":
			tenure = 0
		case n != tenure || now != leader:
			tenure, leader, from = n, now, c.all[now].renewed.Load()
		default:
			return c.all[now].renewed.Load() >= from+4
		}
		return false
	})
	return leader
}

// bucket opens the store as an operator.
func (s *site) bucket(name string) (jetstream.JetStream, jetstream.KeyValue) {
	s.t.Helper()
	js := testkit.JetStream(s.t, s.URL())
	kv := testkit.Must(js.KeyValue(within(s.t), name))(s.t)
	return js, kv
}

// A lock with one standby is easy. Several wake up together when the leader is silent, one may take the lease just
// taken by another, and the leader may come back in between. Round after round the leader is suspended beyond its
// lease, wakes up, and stands again behind the others.
func TestThreeCandidatesAndALeaderThatComesAndGoes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := newCourt(t, 1, s.URL())
	for range 3 {
		leader := c.settles()
		path := c.paths[leader]
		path.up.hold()
		path.down.hold()
		c.another(leader)
		path.up.free()
		path.down.free()
		c.settles()
	}
	for name, one := range c.all {
		if one.behind.Load() != 0 {
			t.Errorf("%s takes the store for one that has forgotten", name)
		}
	}
}

// A leader that dies, again and again, until the last candidate leads.
func TestTheLastOfThreeLeads(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := newCourt(t, 1, s.URL())
	for range 2 {
		leader := c.settles()
		c.paths[leader].up.hold() // dead, not stopped: nothing is released
		c.paths[leader].cut()
		c.all[leader].conn.Close()
		c.another(leader)
	}
	c.settles()
}

// A candidate with a stale view of the key wrongly finds the leader silent: its compare-and-set fails.
func TestAStaleViewTakesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := newCourt(t, 1, s.URL())
	tries(t, func() string {
		leader := c.settles()
		n, from := c.count(), c.all[leader].renewed.Load()
		for name, path := range c.paths {
			if name != leader {
				path.down.hold() // its writes arrive; its reads are stale
			}
		}
		eventually(t, leader+" renews, or lost its lease",
			func() bool { return c.all[leader].renewed.Load() >= from+5 || c.count() > n })
		for _, path := range c.paths {
			path.down.free()
		}
		if c.settles() != leader || c.count() != n {
			return fmt.Sprintf("%s led, and then %v", leader, c.leaders[n:])
		}
		return ""
	})
}

// The write that takes a lease succeeds and its response is lost: the candidate finds its nonce in the key, and
// leads by that write.
func TestALeaseThatWasTakenWithoutAnAnswerIsLedBy(t *testing.T) {
	t.Parallel()
	tries(t, func() string {
		s := newSite(t)
		r := &tenure{t: t}
		first := newLink(t, s.URL())
		a := stand(t, r, first.url(), "a")
		defer a.stop()
		r.leads("a")
		path := newLink(t, s.URL())
		b := stand(t, r, path.url(), "b")
		defer b.stop()
		eventually(t, "b is connected", b.conn.Connected)
		a.renews(t, 2) // b watches
		_, kv := s.bucket("vestibule_leases")
		holder := func() (v struct {
			Leader string
			Term   uint64
		},
		) {
			e := testkit.Must(kv.Get(within(t), "tenure"))(t)
			testkit.NoError(t, json.Unmarshal(e.Value(), &v))
			return v
		}
		first.up.hold()
		holder() // the write of a is in the store
		echo := make(chan struct{}, 1)
		testkit.Must(b.conn.Subscribe("vestibule.v1.echo", func(string, []byte) { echo <- struct{}{} }))(t)
		testkit.NoError(t, b.conn.Publish("vestibule.v1.echo", nil))
		testkit.Receive(t, "the newest beat has reached b, and then its own word", echo)
		path.down.hold()
		eventually(t, "b has taken the lease", func() bool { return holder().Leader == "b" })
		taken := holder().Term
		timer := time.NewTimer(natsbus.LeaseLength / 2) // b waits for its response for a third
		<-timer.C
		path.down.free()
		r.leads("b")
		if r.term != taken {
			return fmt.Sprintf("b leads by term %d; it had taken the lease by term %d", r.term, taken)
		}
		b.renews(t, 2)
		first.up.free()
		return ""
	})
}

// Whatever happens to the store, no two lead at a time, terms increase, and the next leader knows that the store
// lost data. All three are disconnected from it.
func TestTermsGrowOverAStoreThatForgets(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, s *site, old []byte){
		"the key is deleted": func(t *testing.T, s *site, _ []byte) {
			_, kv := s.bucket("vestibule_leases")
			testkit.NoError(t, kv.Delete(within(t), "tenure"))
		},
		"the stream is purged": func(t *testing.T, s *site, _ []byte) {
			js, _ := s.bucket("vestibule_leases")
			stream := testkit.Must(js.Stream(within(t), "KV_vestibule_leases"))(t)
			testkit.NoError(t, stream.Purge(within(t)))
		},
		"the bucket is deleted": func(t *testing.T, s *site, _ []byte) {
			js, _ := s.bucket("vestibule_leases")
			testkit.NoError(t, js.DeleteKeyValue(within(t), "vestibule_leases"))
		},
		"an older version comes back": func(t *testing.T, s *site, old []byte) {
			js, _ := s.bucket("vestibule_leases")
			testkit.NoError(t, js.DeleteKeyValue(within(t), "vestibule_leases"))
			kv := testkit.Must(js.CreateOrUpdateKeyValue(within(t), jetstream.KeyValueConfig{
				Bucket: "vestibule_leases", History: 1,
				Storage: jetstream.FileStorage,
			}))(t)
			testkit.Must(kv.Put(within(t), "tenure", old))(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			c := newCourt(t, 1, s.URL())
			_, kv := s.bucket("vestibule_leases")
			e := testkit.Must(kv.Get(within(t), "tenure"))(t)
			n := c.count()
			c.all[c.settles()].resign <- struct{}{} // so that the last read is of an older term
			eventually(t, "somebody leads again", func() bool { return c.count() > n && c.now() != "" })
			c.settles()
			n = c.count()
			spoil(t, s, e.Value())
			eventually(t, "somebody leads after all", func() bool { return c.count() > n && c.now() != "" })
			c.settles()
			noticed := int64(0)
			for _, one := range c.all {
				noticed += one.behind.Load()
			}
			if noticed == 0 {
				t.Error("nobody noticed")
			}
		})
	}
}

// A new candidate waits even if the store lost its data and the leader does not know that yet.
func TestANewcomerWaitsForALeaderThatTheStoreHasForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := newLink(t, s.URL())
	r := &tenure{t: t}
	a := stand(t, r, path.url(), "a")
	r.leads("a")
	a.renews(t, 1)
	path.up.hold() // it receives nothing; its lease continues
	js, _ := s.bucket("vestibule_leases")
	testkit.NoError(t, js.DeleteKeyValue(within(t), "vestibule_leases"))
	stand(t, r, s.URL(), "b") // tenure checks that a has stepped down
	r.leads("b")
	path.up.free()
}

// cluster starts three servers with a common JetStream.
func cluster(t *testing.T) []*server.Server {
	t.Helper()
	var all []*server.Server
	var addrs []string
	for range 3 {
		addrs = append(addrs, testkit.FreeAddr(t))
	}
	routes := "nats://" + strings.Join(addrs, ",nats://")
	for i, addr := range addrs {
		_, port, err := net.SplitHostPort(addr)
		testkit.NoError(t, err)
		n := testkit.Must(strconv.Atoi(port))(t)
		s := testkit.Must(server.NewServer(&server.Options{
			ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: true,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: n}, Routes: server.RoutesFromStr(routes),
		}))(t)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		all = append(all, s)
	}
	eventually(t, "the servers have a leader", func() bool {
		for _, s := range all {
			if s.JetStreamIsLeader() {
				return len(s.JetStreamClusterPeers()) == 3
			}
		}
		return false
	})
	return all
}

// Three candidates at three servers with a common store: one server dies, the leader's or another, and with it the
// store's leader if it was there. One candidate continues to lead, and only one.
func TestLeadershipOutlivesOneServerOfThree(t *testing.T) {
	t.Parallel()
	servers := cluster(t)
	c := newCourt(t, 3, servers[0].ClientURL(), servers[1].ClientURL(), servers[2].ClientURL())
	leader := c.settles()
	servers[leader[0]-'a'].Shutdown()
	c.settles()
}
