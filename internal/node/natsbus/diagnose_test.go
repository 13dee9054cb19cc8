package natsbus_test

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsconf"
)

// pki writes certificates of two authorities.
type pki struct {
	t   *testing.T
	dir string
}

func (p pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p pki) authority(name string) *natsconf.Authority {
	p.t.Helper()
	ca := testkit.Must(natsconf.NewAuthority(rand.Reader, time.Now()))(p.t)
	p.write(name, ca.CertPEM())
	return ca
}

func (p pki) write(name string, data []byte) {
	p.t.Helper()
	testkit.NoError(p.t, os.WriteFile(p.path(name), data, 0o600))
}

func (p pki) issue(ca *natsconf.Authority, name string, valid time.Duration, names ...string) {
	p.t.Helper()
	from := time.Now()
	if name == "later" {
		from = from.Add(24 * time.Hour)
	}
	cert, key, err := ca.Issue(rand.Reader, from, valid, names)
	testkit.NoError(p.t, err)
	p.write(name+".crt", cert)
	p.write(name+".key", key)
}

// run runs a nats-server with a configuration, and returns its address with a scheme.
func (p pki) run(scheme, config string) string {
	p.t.Helper()
	if config == "silent" {
		l := testkit.Must((&net.ListenConfig{}).Listen(p.t.Context(), "tcp", "127.0.0.1:0"))(p.t)
		p.t.Cleanup(func() { _ = l.Close() })
		return "nats://" + l.Addr().String()
	}
	config = strings.NewReplacer("DIR", p.dir, "STORE", p.t.TempDir()).Replace(config)
	p.write("nats.conf", []byte(config))
	o := testkit.Must(server.ProcessConfigFile(p.path("nats.conf")))(p.t)
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	if o.HTTPPort != 0 {
		o.HTTPHost, o.HTTPPort = "127.0.0.1", server.RANDOM_PORT
	}
	s := testkit.Must(server.NewServer(o))(p.t)
	s.Start()
	p.t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		p.t.Fatal("no server")
	}
	switch scheme {
	case "monitor":
		return "nats://" + s.MonitorAddr().String()
	case "leaf":
		return fmt.Sprintf("nats://127.0.0.1:%d", o.LeafNode.Port)
	}
	u := &url.URL{Scheme: scheme, Host: s.Addr().String()}
	return u.String()
}

// Each fault between a node and a server is reported with its cause, the server and the next step, by Diagnose
// (--check-config), in the log, and by Fault (/readyz). Once it is mended, nothing is reported.
func TestFaultsOfNATSAreExplained(t *testing.T) {
	const (
		jetstream = "jetstream { store_dir: 'STORE', domain: hub }\n"
		tls       = "tls { cert_file: 'DIR/server.crt', key_file: 'DIR/server.key', ca_file: 'DIR/ca.crt', " +
			"verify_and_map: true }\n"
		users = `accounts { A { jetstream: enabled, users: [
			{ user: "edge-0.edge.nairobi", permissions: { publish: ["$JS.API.STREAM.INFO.KV_vestibule_documents"], subscribe: ["_INBOX.>"] } },
			{ user: "regional-0.regional.nairobi", permissions: { publish: [">"], subscribe: ["_INBOX.>"] } } ] } }
		`
	)
	plain := func(o *natsbus.Options, _ pki) { o.CA, o.Cert, o.Key = "", "", "" }
	for _, c := range []struct {
		name   string
		scheme string // of the address
		config string // of the server, "" for none
		node   func(o *natsbus.Options, p pki)
		cause  string
		step   string
	}{
		{"nothing wrong", "tls", jetstream + tls + users, nil, "", ""},
		{"wrong port", "nats", "", nil, "nothing listens there", "clients use 4222"},
		{
			"the port of the monitor", "monitor", "http: 8222\n", nil, "does not speak as a NATS server to clients",
			"clients use 4222",
		},
		{
			"the port of leaf nodes", "leaf", "leafnodes: { listen: '127.0.0.1:-1' }\n", plain,
			"this is not the port of NATS clients", "clients use 4222",
		},
		{
			"a port that says nothing", "silent", "silent", nil, "does not speak as a NATS server to clients",
			"clients use 4222",
		},
		{
			"no such machine", "nats", jetstream, func(o *natsbus.Options, _ pki) { o.URL = "nats://nats.invalid:4222" },
			"no machine is called nats.invalid", "correct the host",
		},
		{
			"no certificate", "tls", jetstream + tls + users, func(o *natsbus.Options, _ pki) { o.Cert, o.Key = "", "" },
			"the server asks for a certificate, and this node has none", "set cert and key",
		},
		{"a certificate that ended", "tls", jetstream + tls + users, func(o *natsbus.Options, p pki) {
			o.Cert, o.Key = p.path("ended.crt"), p.path("ended.key")
		}, "the certificate of this node (cert) ended on", "nats-config write"},
		{"a certificate of another authority", "tls", jetstream + tls + users, func(o *natsbus.Options, p pki) {
			o.Cert, o.Key = p.path("foreign.crt"), p.path("foreign.key")
		}, "the server does not trust the certificate of this node", "authority"},
		{"a user that the server does not know", "tls", jetstream + tls + users, func(o *natsbus.Options, p pki) {
			o.Cert, o.Key = p.path("stranger.crt"), p.path("stranger.key")
		}, "does not know the user of this node as edge-9.edge.nairobi", "reload the server"},
		{
			"no ca", "tls", jetstream + tls + users, func(o *natsbus.Options, _ pki) { o.CA = "" },
			`the server's certificate is of "vestibule NATS", which this machine does not trust`, "set ca",
		},
		{
			"another ca", "tls", jetstream + tls + users, func(o *natsbus.Options, p pki) { o.CA = p.path("other.crt") },
			"the server's certificate is of", "one authority",
		},
		{
			"a server certificate that ended", "tls", strings.ReplaceAll(jetstream+tls+users, "server.", "old."), nil,
			"the server's certificate is not valid now", "renew it",
		},
		{
			"wrong server name", "tls", strings.ReplaceAll(jetstream+tls+users, "server.", "elsewhere."), nil,
			"the server's certificate is not for 127.0.0.1, but for elsewhere.example", "server_names",
		},
		{"TLS against a plain server", "tls", jetstream, nil, "the server speaks no TLS, and this node wants it", "nats://"},
		{
			"plain against TLS", "nats", jetstream + tls + users, plain, `the server's certificate is of "vestibule NATS"`,
			"set ca",
		},
		{
			"no password", "nats", jetstream + "authorization { user: a, password: b }\n", plain,
			"the server asks for a password or certificate, and this node has none", "put user and password into url",
		},
		{"another password", "nats", jetstream + "authorization { user: a, password: b }\n", func(o *natsbus.Options, _ pki) {
			o.URL, o.CA, o.Cert, o.Key = strings.Replace(o.URL, "//", "//a:c@", 1), "", "", ""
		}, "the server does not know the user of this node", "correct the password"},
		{
			"too many connections", "nats", jetstream + "max_connections: -1\n", plain, "maximum connections exceeded",
			"max_connections",
		},
		{
			"a server certificate for later", "tls", strings.ReplaceAll(jetstream+tls+users, "server.", "later."), nil,
			"the server's certificate is not valid now, but from ", "the clock",
		},
		{"a server that shakes hands first", "tls", strings.Replace(jetstream+tls+users, "tls {",
			"tls { handshake_first: true,", 1), nil, "does not speak as a NATS server to clients", "handshake_first"},
		{
			"no majority of servers", "nats",
			jetstream + "server_name: a\ncluster: { name: c, listen: '127.0.0.1:-1', routes: ['nats://127.0.0.1:1'] }\n", plain,
			"JetStream", "majority",
		},
		{"wrong domain", "tls", jetstream + tls + users, func(o *natsbus.Options, p pki) {
			o.Domain, o.Cert, o.Key = "documents", p.path("regional.crt"), p.path("regional.key")
		}, `the JetStream domain "documents" (domain)`, "correct domain"},
		{"a domain that the user may not use", "tls", jetstream + tls + users, func(o *natsbus.Options, _ pki) {
			o.Domain = "nairobi"
		}, `not to KV_vestibule_documents in the JetStream domain "nairobi" (domain)`, "correct domain"},
		{"JetStream is off", "nats", "http: 8222\n", plain, "JetStream is off", "turn it on"},
		{"an edge's certificate at a regional", "tls", jetstream + tls + users, func(o *natsbus.Options, _ pki) {
			o.Stream = natsbus.LeasesStream
		}, "lets this node in as edge-0.edge.nairobi, but not to KV_vestibule_leases", "of its own name and role"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := pki{t, t.TempDir()}
			ca, other := p.authority("ca.crt"), p.authority("other.crt")
			p.issue(ca, "server", time.Hour, "127.0.0.1")
			p.issue(ca, "old", -time.Second, "127.0.0.1")
			p.issue(ca, "later", time.Hour, "127.0.0.1")
			p.issue(ca, "elsewhere", time.Hour, "elsewhere.example")
			p.issue(ca, "edge", time.Hour, "edge-0.edge.nairobi")
			p.issue(ca, "regional", time.Hour, "regional-0.regional.nairobi")
			p.issue(ca, "stranger", time.Hour, "edge-9.edge.nairobi")
			p.issue(ca, "ended", -time.Second, "edge-0.edge.nairobi")
			p.issue(other, "foreign", time.Hour, "edge-0.edge.nairobi")
			var log testkit.Log
			o := natsbus.Options{
				URL: "nats://" + testkit.FreeAddr(t), Name: "edge", CA: p.path("ca.crt"), Cert: p.path("edge.crt"),
				Key:    p.path("edge.key"),
				Stream: natsbus.DocumentsStream, Log: slog.New(slog.NewTextHandler(&log, nil)),
			}
			if c.config != "" {
				o.URL = p.run(c.scheme, c.config)
			}
			if c.node != nil {
				c.node(&o, p)
			}
			err := natsbus.Diagnose(t.Context(), o, o.Stream)
			if c.cause == "" {
				testkit.NoError(t, err)
				return
			}
			u, _ := url.Parse(o.URL)
			host, _, _ := net.SplitHostPort(u.Host)
			if err == nil || !strings.Contains(err.Error(), c.cause) || !strings.Contains(err.Error(), c.step) ||
				!strings.Contains(err.Error(), host) {
				t.Fatalf("reported %v\nwant %s … %s", err, c.cause, c.step)
			}
			conn := testkit.Must(natsbus.Connect(o))(t)
			defer conn.Close()
			eventually(t, "the fault is logged", func() bool { return strings.Contains(conn.Fault(), c.cause) })
			eventually(t, "the fault is logged",
				func() bool { return log.Has("NATS cannot be used") && log.Has("next_step=") })
		})
	}
}

// TestDiagnoseOfADistantServer: a server that is too far away to lead by is a fault of the configuration.
func TestDiagnoseOfADistantServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := newLink(t, s.URL())
	path.delay.Store(int64(600 * time.Millisecond))
	err := natsbus.Diagnose(t.Context(), natsbus.Options{URL: path.url(), Name: "far", Log: quiet}, natsbus.LeasesStream)
	if err == nil || !strings.Contains(err.Error(), "slow: a way there and back takes 1.2") {
		t.Errorf("a way of 600 ms: %v", err)
	}
	path.delay.Store(int64(100 * time.Millisecond))
	if err := natsbus.Diagnose(t.Context(), natsbus.Options{URL: path.url(), Name: "near", Log: quiet}, ""); err != nil {
		t.Errorf("a way of 100 ms: %v", err)
	}
}
