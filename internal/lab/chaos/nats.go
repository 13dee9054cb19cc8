//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// natsServer is one NATS server: one of three shared by all nodes, or, with credentials, one of three of global or the
// one of a data centre, which joins those of global as a leaf.
type natsServer struct {
	name, place string
	domain      string // "global" or the data centre; empty if shared

	client, monitor string // host and port
	route           string // empty for none
	leaf            string // address for leaf nodes, empty for none
}

// reached reports whether nodes of a place use the server.
func (s *natsServer) reached(place string) bool {
	return s.domain == "" || s.domain == wire.Root || s.domain == place
}

// bus is the NATS servers of a fleet, and the gateways to them.
type bus struct {
	*fleet
	dcs   []string
	urls  string // of the servers, or of global's with one per data centre
	nats  []*natsServer
	gates map[string]*gateway
}

// embedNATS sets the address of global's embedded server.
func (b *bus) embedNATS(context.Context) error {
	port, err := b.net.port(places[0], 0)
	if err != nil {
		return err
	}
	at := join(b.net.addr(places[0]), port)
	b.nats, b.urls = []*natsServer{{place: places[0], client: at}}, "nats://"+at
	return nil
}

// planNATS sets the number and addresses of the servers: three in a cluster, one per place and, with credentials, one
// for every data centre that can exist.
func (b *bus) planNATS(context.Context) error {
	ports := 0
	var err error
	at := func(place string) string {
		port, err2 := b.net.port(place, ports)
		err = errors.Join(err, err2)
		ports++
		return join(b.net.addr(place), port)
	}
	var urls []string
	for i, place := range places {
		s := &natsServer{name: fmt.Sprintf("nats-%d", i+1), place: place, client: at(place), route: at(place)}
		scheme := "nats://"
		if b.o.credentials {
			s.domain, s.leaf, s.monitor, scheme = wire.Root, at(place), at(place), "tls://"
		}
		b.nats = append(b.nats, s)
		urls = append(urls, scheme+s.client)
	}
	b.urls = strings.Join(urls, ",")
	if b.o.credentials {
		for _, dc := range b.where() {
			b.nats = append(b.nats, &natsServer{name: "nats-" + dc, place: dc, domain: dc, client: at(dc), monitor: at(dc)})
		}
	}
	return err
}

// startNATS starts the servers, creates their users with credentials, and waits until all accept connections.
func (b *bus) startNATS(ctx context.Context) error {
	if b.o.credentials {
		if err := b.writeUsers(ctx); err != nil {
			return err
		}
	}
	size := 48 // enough for the data of a run, and quickly full
	if b.o.credentials {
		size = 512 // buckets and the audit stream reserve their maximum size
	}
	for _, s := range b.nats {
		if err := b.net.disk(filepath.Join(b.o.dir, s.name), size); err != nil {
			return err
		}
		config, err := b.natsConfig(s)
		if err != nil {
			return err
		}
		if err := b.add(&node{name: s.name, role: "nats", place: s.place, argv: []string{filepath.Join(b.o.dir, "bin", "nats-server"), "--config", config}}); err != nil {
			return err
		}
	}
	if err := b.wait(20*time.Second, b.natsUp); err != nil {
		return err
	}
	return b.provision(ctx)
}

// natsConfig writes the configuration of a server.
func (b *bus) natsConfig(s *natsServer) (string, error) {
	store, cluster := filepath.Join(b.o.dir, s.name), ""
	if s.route != "" {
		var routes []string
		for _, o := range b.nats {
			if o.route != "" {
				routes = append(routes, fmt.Sprintf("%q", "nats://"+o.route))
			}
		}
		cluster = fmt.Sprintf("cluster { name: chaos, listen: %q, routes: [%s], no_advertise: true }\n", s.route, strings.Join(routes, ", "))
	}
	if s.domain == "" {
		return write(b.o.dir, s.name+".conf", "server_name: %s\nlisten: %q\nmax_payload: 2MB\njetstream { store_dir: %q, sync_interval: always }\n%s",
			s.name, s.client, store, cluster)
	}
	text, err := os.ReadFile(filepath.Join(b.users(), s.domain, "nats.conf"))
	if err != nil {
		return "", err
	}
	own := []string{"$NATS_SERVER_NAME", s.name, "0.0.0.0:4222", s.client, "0.0.0.0:8222", s.monitor, storeOf(s.domain), store, "0.0.0.0:7422", s.leaf}
	for _, o := range b.nats {
		if o.leaf != "" && s.domain != wire.Root {
			own = append(own, "tls://"+o.leaf, "tls://"+b.through(s.place, o.leaf))
		}
	}
	return write(b.o.dir, s.name+".conf", "%s%s", strings.NewReplacer(own...).Replace(string(text)), cluster)
}

// storeOf returns the placeholder for a server's folder in a written configuration.
func storeOf(domain string) string { return "/store/" + domain }

// users is the folder of the servers' and nodes' certificates.
func (b *bus) users() string { return filepath.Join(b.o.dir, "nats") }

// certificate returns the paths of the certificate of a user, and of its key.
func (b *bus) certificate(domain, folder, name string) (cert, key string) {
	cert = filepath.Join(b.users(), domain, folder, name)
	return cert + ".crt", cert + ".key"
}

// writeUsers makes the vestibule command write the servers' configurations and certificates, as an operator does.
func (b *bus) writeUsers(ctx context.Context) error {
	var leafs, hosts []string
	for _, s := range b.nats {
		host, _, err := net.SplitHostPort(s.client)
		if err != nil {
			return err
		}
		hosts = append(hosts, host)
		if s.leaf != "" {
			leafs = append(leafs, s.leaf)
		}
	}
	return b.natsConfigure(ctx, "write", "--out", b.users(), "--data-centers", strings.Join(b.where(), ","), "--globals", "global-1..3", "--regionals", "regional-1..2",
		"--edges", "edge-1..200", "--servers", "1", "--server-names", strings.Join(slices.Compact(append(hosts, "127.0.0.1")), ","), "--hub", strings.Join(leafs, ","), "--store-dir", storeOf("{place}"))
}

func (b *bus) natsConfigure(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if text, err := exec.CommandContext(ctx, filepath.Join(b.o.dir, "bin", "vestibule"), append([]string{"nats-config"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("nats-config %s: %w: %s", args[0], err, text)
	}
	return nil
}

// provision creates buckets and streams, which nodes may not do with credentials.
func (b *bus) provision(ctx context.Context) error {
	if !b.o.credentials {
		return nil
	}
	for _, domain := range append([]string{wire.Root}, b.where()...) {
		cert, key := b.certificate(domain, "provision", "provision")
		err := b.natsConfigure(ctx, "provision", "--place", domain, "--nats-url", b.natsURLs(domain, ""), "--nats-ca", b.authority(), "--nats-cert", cert, "--nats-key", key)
		if err != nil {
			return fmt.Errorf("%s: %w", domain, err)
		}
	}
	return nil
}

func (b *bus) authority() string { return filepath.Join(b.users(), "ca.crt") }

// natsURLs returns the addresses of the servers of global or of a data centre, or of the shared servers, through the
// gateway of the place if it has one.
func (b *bus) natsURLs(domain, from string) string {
	var urls []string
	for _, s := range b.nats {
		switch s.domain {
		case "":
			urls = append(urls, "nats://"+b.through(from, s.client))
		case domain:
			urls = append(urls, "tls://"+b.through(from, s.client))
		}
	}
	return strings.Join(urls, ",")
}

// through returns the address of a NATS server's port as seen from a place.
func (b *bus) through(place, at string) string {
	if g := b.gates[place]; g != nil && g.through[at] != "" {
		return g.through[at]
	}
	return at
}

// natsFor returns the NATS section of a node's configuration.
func (b *bus) natsFor(place, role, name string) string {
	if !b.o.credentials {
		return fmt.Sprintf("nats: {url: %q}\n", b.natsURLs("", place))
	}
	domain, more := place, ""
	switch role {
	case "global":
		domain = wire.Root
	case "edge":
		more = ", domain: " + natsbus.DocumentsDomain
	}
	cert, key := b.certificate(domain, role+"s", name)
	text := fmt.Sprintf("nats: {url: %q, ca: %q, cert: %q, key: %q%s}\n", b.natsURLs(domain, place), b.authority(), cert, key, more)
	if role == "regional" {
		text += "upstream: {domain: " + natsbus.DocumentsDomain + "}\n"
	}
	return text
}

// operatorOf returns the NATS flags of the vestibule command: of the data centre that the command is about, if it has
// its own NATS.
func (b *bus) operatorOf(args []string) []string {
	if !b.o.credentials {
		return []string{"--nats-url", b.urls}
	}
	domain, more := wire.Root, []string{"--nats-domain", natsbus.DocumentsDomain}
	if i := slices.Index(args, "--dc"); i >= 0 {
		domain, more = args[i+1], nil
	}
	cert, key := b.certificate(domain, "operator", "operator")
	return append(more, "--nats-url", b.natsURLs(domain, ""), "--nats-ca", b.authority(), "--nats-cert", cert, "--nats-key", key)
}

// natsUp returns an error unless every server accepts connections.
func (b *bus) natsUp() error {
	for _, s := range b.nats {
		c, err := net.DialTimeout("tcp", s.client, time.Second)
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}
