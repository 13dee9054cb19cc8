package natsconf_test

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsconf"
)

// rewrite writes the configuration of the plan anew, in place of removed users.
func (f *fleet) rewrite() {
	f.t.Helper()
	gone := testkit.Must(f.plan.Unnamed(f.dir))(f.t)
	files := testkit.Must(f.plan.Files(time.Now(), f.ca))(f.t)
	for _, file := range files {
		f.write(file.Path, file.Data)
	}
	testkit.NoError(f.t, natsconf.Remove(f.dir, gone))
}

// reload makes the server of a place read its configuration, as SIGHUP does.
func (f *fleet) reload(place string, hub *url.URL) {
	f.t.Helper()
	s, o := f.servers[place], f.options(place, hub)
	v := testkit.Must(s.Varz(nil))(f.t)
	o.Port, o.HTTPPort = v.Port, v.HTTPPort
	if hub == nil {
		o.LeafNode.Port = v.LeafNode.Port
	}
	testkit.NoError(f.t, s.ReloadOptions(o))
}

// A data centre is added, and users are removed, while the servers run: verify says when the servers know it.
func TestVerifySaysWhatAReloadDid(t *testing.T) {
	f := start(t)
	verify := func(place string) (natsconf.Verified, string) {
		n, err := natsconf.Verify(t.Context(), f.dir, place, f.urls[place])
		if err != nil {
			return n, err.Error()
		}
		return n, ""
	}
	// The documents of global are where data centres read them.
	f.tree(40)
	testkit.Eventually(t, "a visitor is let in",
		func() bool { return strings.Contains(f.visit("nairobi edge-0"), inside) })
	for _, place := range []string{wire.Root, "nairobi", "dublin"} {
		if n, why := verify(place); why != "" || n.Users < 3 {
			t.Errorf("%s: %+v %s", place, n, why)
		}
	}
	f.plan.DataCenters = []string{"nairobi", "dublin", "lima"}
	f.plan.Edges = []string{"edge-0", "edge-2"}
	f.rewrite()
	if _, why := verify("nairobi"); !strings.Contains(why, "nairobi/edges/edge-2: ") ||
		!strings.Contains(why, "nairobi/edges/edge-1: was removed, and is still let in") {
		t.Errorf("before the reload: %s", why)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "nairobi", "edges", "edge-1.key")); !os.IsNotExist(err) {
		t.Errorf("the removed user's key is still among the others: %v", err)
	}
	f.reload(wire.Root, nil)
	hub := f.leafs()
	f.reload("nairobi", hub)
	if n, why := verify("nairobi"); why != "" || n.Removed != 1 {
		t.Errorf("after the reload: %+v %s", n, why)
	}
	f.serve("lima", hub)
	conn := f.node(natsbus.RoleProvision, "lima", "provision", "")
	testkit.Must(conn.Provision(t.Context(), "lima", natsbus.Auto))(t)
	_, err := conn.Provision(t.Context(), "lima", 3)
	if differ, ok := errors.AsType[*natsbus.ReplicasError](err); !ok || len(differ.Streams) != 2 ||
		!strings.Contains(err.Error(), "nats stream edit KV_vestibule_leases --replicas 3") {
		t.Errorf("streams with one replica, when three are asked for: %v", err)
	}
	// nats-server 2.15 connects a new account with the buckets only at the second reload: verify must say so.
	_, why := verify("lima")
	t.Logf("after one reload: %s", why)
	for n := 0; why != "" && n < 5; n++ {
		if n == 0 {
			f.reload(wire.Root, nil)
		}
		_, why = verify("lima")
	}
	if why != "" {
		t.Errorf("lima: %s", why)
	}
	if _, why := verify(wire.Root); why != "" {
		t.Errorf("global: %s", why)
	}
}

// What is wrong before a server is asked is said as such: a reload would not help.
func TestVerifyNamesThePlaces(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{
		"nairobi/edges/edge-0.crt", "nairobi/edges/edge-0.key", "global/globals/global-0.crt",
		"ca.crt",
	} {
		name := filepath.Join(dir, filepath.FromSlash(file))
		testkit.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		testkit.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	for _, c := range []struct{ dir, place, want string }{
		{
			dir, "niarobi", `no users of a place "niarobi" are written there, did you mean "nairobi"? (places: global, nairobi)`,
		},
		{dir, "mars", `no users of a place "mars" are written there (places: global, nairobi)`},
		{filepath.Join(dir, "ca"), "nairobi", "no users are written there: see nats-config write"},
	} {
		_, err := natsconf.Verify(t.Context(), c.dir, c.place, "tls://127.0.0.1:4222")
		if err == nil || !strings.HasSuffix(err.Error(), c.want) || natsconf.Advice(err) != "" {
			t.Errorf("%s: %v, %q", c.place, err, natsconf.Advice(err))
		}
	}
	for err, want := range map[error]string{
		nats.ErrNoServers:            "no server answers there: start it, or correct the address",
		nats.ErrAuthorization:        "reload the server (SIGHUP), of global before those of data centres, and verify again",
		&net.OpError{Op: "dial"}:     "no server answers there: start it, or correct the address",
		&url.Error{Err: os.ErrExist}: "",
	} {
		if got := natsconf.Advice(err); got != want {
			t.Errorf("%v: %q", err, got)
		}
	}
}
