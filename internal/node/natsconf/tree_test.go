package natsconf_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/wire"
	"vestibule/internal/edge"
	"vestibule/internal/global"
	"vestibule/internal/global/members"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsconf"
	"vestibule/internal/regional"
)

// linesOf returns the lines of a log with a word.
func linesOf(l *testkit.Log, word string) (out []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(strings.ToLower(line), word) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// fleet is NATS servers with the written configuration, and a tree of nodes on them.
type fleet struct {
	global  *global.Server // once there is a tree
	t       *testing.T
	dir     string
	plan    *natsconf.Plan
	ca      *natsconf.Authority
	servers map[string]*server.Server
	urls    map[string]string
	log     testkit.Log
	logger  *slog.Logger
	edges   map[string]*edge.Server // by data centre and name
}

// inside is the response of the site.
const inside = "8d3f: you are inside"

// witness is a test user with all permissions in every main account.
const witness = "witness"

func testPlan(dir string) *natsconf.Plan {
	return &natsconf.Plan{
		DataCenters: []string{"nairobi", "dublin"}, Globals: []string{"global-0"}, Regionals: []string{"regional-0"},
		Edges: []string{"edge-0", "edge-1"}, Notifiers: []string{"notifier-0"},
		Servers: 1, Names: []string{"localhost", "127.0.0.1"}, Hub: []string{"127.0.0.1:7422"},
		CertDir: filepath.Join(dir, "{place}", "servers"), StoreDir: filepath.Join(dir, "store-{place}"),
		Monitor: "127.0.0.1:8222", Valid: time.Hour,
	}
}

// TestObjectsFitTheirPods: whatever the flags say of machines, the objects have the folders and the port of deploy/k8s.
func TestObjectsFitTheirPods(t *testing.T) {
	ca := testkit.Must(natsconf.NewAuthority(rand.Reader, time.Now()))(t)
	files := testkit.Must(testPlan(t.TempDir()).Files(time.Now(), ca))(t)
	pods := testkit.Must(os.ReadFile("../../../deploy/k8s/base/nats/nats.yaml"))(t)
	n := 0
	for _, f := range files {
		if filepath.Base(f.Path) != "kubernetes.yaml" {
			continue
		}
		n++
		for in, of := range map[string]string{
			`"/etc/vestibule/nats/tls.crt"`: "mountPath: /etc/vestibule/nats,", `store_dir: "/data"`: "mountPath: /data}",
			`http: "0.0.0.0:8222"`: "containerPort: 8222}",
		} {
			if !strings.Contains(string(f.Data), in) || !strings.Contains(string(pods), of) {
				t.Errorf("%s: %s, and the pods %s", f.Path, in, of)
			}
		}
	}
	if n != 3 {
		t.Errorf("%d places", n)
	}
}

// TestServersOfOneMachine: each place can have ports of its own, all of them.
func TestServersOfOneMachine(t *testing.T) {
	p := testPlan(t.TempDir())
	p.Servers, p.Routes, p.Ports = 3, "nats-{n}.example", map[string]int{"nairobi": 5222, "global": 4322}
	if errs := p.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	ca := testkit.Must(natsconf.NewAuthority(rand.Reader, time.Now()))(t)
	files := map[string]string{}
	for _, f := range testkit.Must(p.Files(time.Now(), ca))(t) {
		files[f.Path] = string(f.Data)
	}
	listen := regexp.MustCompile(`(?m)^ *(?:listen|http): "[0-9.]+:(\d+)"`)
	for place, want := range map[string]string{
		"global": "4322 8322 6322 7522", "nairobi": "5222 9222 7222", "dublin": "4222 8222 6222",
	} {
		var got []string
		for _, m := range listen.FindAllStringSubmatch(files[place+"/nats.conf"], -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s listens on %v, want %s", place, got, want)
		}
		if pods := files[place+"/kubernetes.yaml"]; !strings.Contains(pods, `listen: "0.0.0.0:4222"`) {
			t.Errorf("the pods of %s do not have the ports of their services", place)
		}
	}
	if !strings.Contains(files["nairobi/nats.conf"], `"tls://nats-2.example:7222"`) {
		t.Error("the routes of nairobi lack its port")
	}
	p.Ports = map[string]int{"lima": 4222, "dublin": 65000, "nairobi": 0}
	if errs := p.Validate(); len(errs) != 3 {
		t.Errorf("%v", errs)
	}
	p.Monitor, p.Ports = "127.0.0.1:60000", map[string]int{"nairobi": 10_222}
	if errs := p.Validate(); len(errs) != 1 {
		t.Errorf("the monitor of nairobi would be at port 66000: %v", errs)
	}
}

// start writes the configuration, runs the servers with it, and creates the buckets.
func start(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{
		t: t, dir: t.TempDir(), servers: map[string]*server.Server{}, urls: map[string]string{},
		edges: map[string]*edge.Server{},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("what nodes logged:\n" + strings.Join(linesOf(&f.log, ""), "\n"))
		}
	})
	f.logger = slog.New(slog.NewTextHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	f.plan = testPlan(f.dir)
	if errs := f.plan.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	var err error
	f.ca = testkit.Must(natsconf.NewAuthority(rand.Reader, time.Now()))(t)
	files := testkit.Must(f.plan.Files(time.Now(), f.ca))(t)
	for _, file := range files {
		f.write(file.Path, file.Data)
	}
	cert, key, err := f.ca.Issue(rand.Reader, time.Now(), time.Hour, []string{witness})
	testkit.NoError(t, err)
	f.write("witness.crt", cert)
	f.write("witness.key", key)
	hub := f.serve(wire.Root, nil)
	for _, dc := range f.plan.DataCenters {
		f.serve(dc, hub)
	}
	testkit.Eventually(t, "data centres join global's servers",
		func() bool { return f.servers[wire.Root].NumLeafNodes() == len(f.plan.DataCenters) })
	for place := range f.servers {
		conn := f.node(natsbus.RoleProvision, place, "provision", "")
		made, err := conn.Provision(t.Context(), place, natsbus.Auto)
		if err != nil || len(made) != len(natsbus.Streams(place)) {
			t.Fatalf("buckets of %s: made %v: %v", place, made, err)
		}
	}
	return f
}

func (f *fleet) write(name string, data []byte) {
	f.t.Helper()
	name = filepath.Join(f.dir, name)
	testkit.NoError(f.t, os.MkdirAll(filepath.Dir(name), 0o700))
	testkit.NoError(f.t, os.WriteFile(name, data, 0o600))
}

// options returns the written configuration of a place, on free ports, with the witness.
func (f *fleet) options(place string, hub *url.URL) *server.Options {
	f.t.Helper()
	f.t.Setenv("NATS_SERVER_NAME", "nats-"+place)
	o := testkit.Must(server.ProcessConfigFile(filepath.Join(f.dir, place, "nats.conf")))(f.t)
	o.Host, o.Port, o.HTTPHost, o.HTTPPort, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, "127.0.0.1",
		server.RANDOM_PORT, true, true
	o.SyncAlways = false // no test stops the machine, and three servers on one slow disk lose leases
	if hub == nil {
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
	} else {
		o.LeafNode.Remotes[0].URLs = []*url.URL{hub}
	}
	var main *server.Account
	for _, a := range o.Accounts {
		if a.Name == "VESTIBULE" {
			main = a
		}
	}
	o.Users = append(o.Users, &server.User{Username: witness, Account: main})
	return o
}

// serve runs the server of a place on free ports, and returns its address for leaf nodes.
func (f *fleet) serve(place string, hub *url.URL) *url.URL {
	f.t.Helper()
	o := f.options(place, hub)
	s := testkit.Must(server.NewServer(o))(f.t)
	s.Start()
	f.t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		f.t.Fatalf("server of %s is not ready", place)
	}
	f.servers[place], f.urls[place] = s, "tls://"+s.Addr().String()
	if hub != nil {
		return nil
	}
	return f.leafs()
}

// leafs returns the address of global's servers for leaf nodes.
func (f *fleet) leafs() *url.URL {
	f.t.Helper()
	v := testkit.Must(f.servers[wire.Root].Varz(nil))(f.t)
	return &url.URL{Scheme: "tls", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(v.LeafNode.Port))}
}

// credentials returns the files of a user.
func (f *fleet) credentials(role natsbus.Role, place, name string) (cert, key, ca string) {
	dir := string(role)
	switch role {
	case natsbus.RoleEdge, natsbus.RoleRegional, natsbus.RoleGlobal, natsbus.RoleNotifier:
		dir += "s"
	case natsbus.RoleLeaf:
		dir, name = "servers", "leaf"
	case natsbus.RoleOperator, natsbus.RoleProvision:
	}
	return filepath.Join(f.dir, place, dir, name+".crt"), filepath.Join(f.dir, place, dir, name+".key"),
		filepath.Join(f.dir, "ca.crt")
}

// node returns the connection of a node, made like in the programs.
func (f *fleet) node(role natsbus.Role, place, name, domain string) *natsbus.Conn {
	f.t.Helper()
	cert, key, ca := f.credentials(role, place, name)
	inbox := natsbus.NodeInbox(role, place, name)
	if role == natsbus.RoleOperator {
		inbox = natsbus.OperatorInbox
	}
	c := testkit.Must(natsbus.Connect(natsbus.Options{
		URL: f.urls[place], Name: name, Inbox: inbox, Cert: cert, Key: key, CA: ca,
		Domain: domain, Log: f.logger,
	}))(f.t)
	f.t.Cleanup(c.Close)
	testkit.Eventually(f.t, name+" of "+place+" is let in", c.Connected)
	return c
}

// run runs a node until the test ends.
func (f *fleet) run(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	})
}

// tree runs global, a regional in each data centre and its edges, in front of a site.
func (f *fleet) tree(total int) {
	t := f.t
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, inside) }))
	t.Cleanup(site.Close)
	f.write("rooms.yaml", fmt.Appendf(nil, `rooms:
  - {name: shop, host: 127.0.0.1, path: /, total_active_users: %d, new_users_per_minute: 600, session_duration: 5m, origin: "%s"}
`, total, site.URL))

	gc := global.DefaultConfig()
	gc.Name, gc.DataDir, gc.Rooms, gc.DataCenters, gc.Bootstrap = "global-0", t.TempDir(),
		filepath.Join(f.dir, "rooms.yaml"), f.plan.DataCenters, true
	conn, clock := f.node(natsbus.RoleGlobal, wire.Root, gc.Name, ""), node.NewClock()
	g := testkit.Must(global.New(global.Options{
		Config: gc, Params: wire.DefaultParams(), Bus: conn, Clock: clock, Reg: prometheus.NewRegistry(), Log: f.logger,
		Docs:  natsbus.NewDocuments(conn, natsbus.Auto, global.Watched...),
		Lease: natsbus.NewLease(conn, wire.Root, gc.Name, natsbus.Auto, clock.Now).Bootstrap(true),
	}))(t)
	f.global = g
	f.run(g.Run)

	for _, dc := range f.plan.DataCenters {
		rc := regional.DefaultConfig()
		rc.Name, rc.DataCenter, rc.DataDir, rc.Bootstrap = "regional-0", dc, t.TempDir(), true
		conn, clock := f.node(natsbus.RoleRegional, dc, rc.Name, ""), node.NewClock()
		up := conn.WithDomain(natsbus.DocumentsDomain)
		r := testkit.Must(regional.New(regional.Options{
			Config: rc, Params: wire.DefaultParams(), Edges: conn, Global: up, Desk: conn, Clock: clock,
			Reg: prometheus.NewRegistry(), Log: f.logger,
			Docs:     natsbus.NewDocuments(up, 0, node.RoomsDocument, node.KeysDocument, node.MembersDocument),
			Lease:    natsbus.NewLease(conn, "regional."+dc, rc.Name, natsbus.Auto, clock.Now).Bootstrap(true),
			Promises: natsbus.NewPromises(conn, dc, natsbus.Auto),
		}))(t)
		f.run(r.Run)
		for _, name := range f.plan.Edges {
			ec := edge.DefaultConfig()
			ec.Name, ec.DataCenter, ec.DataDir, ec.Listen = name, dc, t.TempDir(), "127.0.0.1:0"
			conn := f.node(natsbus.RoleEdge, dc, name, natsbus.DocumentsDomain)
			e := testkit.Must(edge.New(edge.Options{
				Config: ec, Params: wire.DefaultParams(), Bus: conn, Reg: prometheus.NewRegistry(), Log: f.logger,
				Docs: natsbus.NewDocuments(conn, 0, node.RoomsDocument, node.KeysDocument),
			}))(t)
			f.run(e.Run)
			f.edges[dc+" "+name] = e
		}
	}
	for name, e := range f.edges {
		testkit.Eventually(t, "edge "+name+" is ready", func() bool { r := e.Ready(); return r.Ready && !r.Isolated })
	}
}

// visit returns the response to a newcomer at an edge.
func (f *fleet) visit(edge string) string {
	f.t.Helper()
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	a := testkit.Must(c.Get(f.edges[edge].URL() + "/"))(f.t)
	defer a.Body.Close()
	return string(testkit.Must(io.ReadAll(a.Body))(f.t))
}

// dial returns a plain connection with the certificate of a user, and the server's errors.
func (f *fleet) dial(place, cert, key string) (*nats.Conn, chan error, error) {
	complaints := make(chan error, 1000)
	c, err := nats.Connect(f.urls[place], nats.ClientCert(cert, key), nats.RootCAs(filepath.Join(f.dir, "ca.crt")),
		nats.NoReconnect(), nats.Timeout(10*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { complaints <- err }))
	if err == nil {
		f.t.Cleanup(c.Close)
	}
	return c, complaints, err
}

func TestATreeRunsWithCredentials(t *testing.T) {
	f := start(t)
	// An unreferenced section of promises: the regional removes it.
	w, _, err := f.dial("nairobi", filepath.Join(f.dir, "witness.crt"), filepath.Join(f.dir, "witness.key"))
	testkit.NoError(t, err)
	js := testkit.Must(w.JetStream())(t)
	promises := testkit.Must(js.KeyValue("vestibule_promises"))(t)
	testkit.Must(promises.Put("nairobi.1-0000000000000001.1", []byte("left")))(t)

	f.tree(4)
	for name := range f.edges {
		testkit.Eventually(t, "a visitor is let in at "+name, func() bool { return strings.Contains(f.visit(name), inside) })
	}
	testkit.Eventually(t, "a visitor waits when the site is full",
		func() bool { return !strings.Contains(f.visit("dublin edge-0"), inside) })
	testkit.Eventually(t, "the section is removed", func() bool {
		_, err := promises.Get("nairobi.1-0000000000000001.1")
		return err == nats.ErrKeyNotFound //nolint:errorlint // what Get returns
	})

	// Changed rooms reach every edge.
	data := testkit.Must(os.ReadFile(filepath.Join(f.dir, "rooms.yaml")))(t)
	f.write("rooms.yaml", bytes.Replace(data, []byte("total_active_users: 4"), []byte("total_active_users: 40"), 1))
	for name := range f.edges {
		testkit.Eventually(t, "there is room again at "+name, func() bool { return strings.Contains(f.visit(name), inside) })
	}

	// An operator reads and writes the list of data centres, and asks a regional.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	docs := natsbus.NewDocuments(f.node(natsbus.RoleOperator, wire.Root, "operator", natsbus.DocumentsDomain), 0)
	var list []byte
	var revision uint64
	testkit.Eventually(t, "the list of data centres is there", func() bool {
		list, revision, err = docs.Get(ctx, node.MembersDocument)
		return err == nil && list != nil
	})
	testkit.Must(docs.Put(ctx, node.MembersDocument, list, revision))(t)
	testkit.Must(docs.Put(ctx, node.InitDocument, []byte(`{"done":"before"}`), 0))(t)
	if _, err := (&members.List{Docs: docs}).Init(ctx); !errors.Is(err, members.ErrInitialized) {
		t.Errorf("an old fleet is initialized: %v", err)
	}
	answer, err := f.node(natsbus.RoleOperator, "dublin", "operator", "").Ask(ctx, wire.ForgetSubject("dublin"),
		[]byte(`{"edge":"nobody"}`))
	if err != nil || !bytes.Contains(answer, []byte("error")) {
		t.Fatalf("answer of the regional: %q, %v", answer, err)
	}
	if answer, err := f.global.Orders.Forget(ctx, "dublin", wire.ForgetAsk{Edge: "nobody"}); err != nil ||
		answer.Error == "" {
		t.Fatalf("answer of the regional to global: %+v, %v", answer, err)
	}

	if got := linesOf(&f.log, "permissions violation"); len(got) > 0 {
		t.Errorf("nodes asked for what they may not: %d, the first: %s", len(got), got[0])
	}
}
