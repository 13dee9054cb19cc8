package natsbus_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

// replicas returns the number of replicas of the documents bucket.
func replicas(t *testing.T, url string) int {
	t.Helper()
	s := testkit.Must(testkit.JetStream(t, url).Stream(t.Context(), "KV_vestibule_documents"))(t)
	return s.CachedInfo().Config.Replicas
}

// leaf is a single server that joins another one as a leaf node.
func leaf(t *testing.T) *embedded.Server {
	t.Helper()
	start := func(o embedded.Options) *embedded.Server {
		o.Dir, o.Listen, o.Log = t.TempDir(), "127.0.0.1:0", quiet
		s := testkit.Must(embedded.Start(o))(t)
		t.Cleanup(s.Stop)
		return s
	}
	leafs := testkit.FreeAddr(t)
	start(embedded.Options{Name: "hub", Domain: "hub", Leafs: leafs})
	return start(embedded.Options{Name: "leaf", Domain: "leaf", Hubs: []string{"nats-leaf://" + leafs}})
}

// The number of replicas is chosen automatically.
func TestReplicasAreAsTheServersAllow(t *testing.T) {
	for name, c := range map[string]struct {
		url  string
		want int
	}{
		"single":  {newSite(t).URL(), 1},
		"a leaf":  {leaf(t).URL(), 1}, // of a server with a cluster name for it
		"cluster": {cluster(t)[0].ClientURL(), 3},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, c.url, "global")
			eventually(t, "a document is stored", func() bool {
				try, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := natsbus.NewDocuments(conn, natsbus.Auto).Put(try, "rooms", []byte("r"), 0)
				return err == nil
			})
			if got := replicas(t, c.url); got != c.want {
				t.Errorf("%d replicas, want %d", got, c.want)
			}
		})
	}
}

// More replicas than servers are reported, not retried silently for ever.
func TestTooManyReplicasAreReported(t *testing.T) {
	s := newSite(t)
	var log testkit.Log
	conn := testkit.Must(natsbus.Connect(natsbus.Options{
		URL: s.URL(), Name: "global",
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}))(t)
	t.Cleanup(conn.Close)
	clock := node.NewClock()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		l := natsbus.NewLease(conn, "global", "global-1", 3, clock.Now)
		done <- l.Run(ctx, func() uint64 { return 0 }, func(context.Context, wire.Leading) { t.Error("it leads") })
	}()
	eventually(t, "it is reported",
		func() bool { return log.Has("no process can campaign for leadership yet") && log.Has("replicas > 1") })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
}

// Any server with a replica answers reads. So a read is certain only if the leader of the store has heard from
// every replica.
func TestReadingIsCertainWhereNoCopyIsBehind(t *testing.T) {
	alone := natsbus.NewDocuments(connect(t, newSite(t).URL(), "edge"), 1)
	if err := alone.Current(t.Context()); err == nil {
		t.Error("there is no bucket")
	}
	testkit.Must(alone.Put(t.Context(), "keys", []byte("k"), 0))(t)
	if err := alone.Current(t.Context()); err != nil {
		t.Error(err)
	}
	all := cluster(t)
	docs := natsbus.NewDocuments(connect(t, all[0].ClientURL(), "edge"), 3)
	current := func() error {
		try, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return docs.Current(try)
	}
	eventually(t, "a document is stored", func() bool {
		try, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := docs.Put(try, "keys", []byte("k"), 0)
		return err == nil
	})
	eventually(t, "every copy is there", func() bool { return current() == nil })
	all[2].Shutdown()
	all[2].WaitForShutdown()
	eventually(t, "a copy is not heard", func() bool { return current() != nil })
	eventually(t, "the others answer", func() bool {
		try, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		data, _, err := docs.Get(try, "keys")
		return err == nil && string(data) == "k"
	})
}
