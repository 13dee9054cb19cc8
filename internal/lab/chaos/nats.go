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

// embedNATS sets the address of global's embedded server.
func (d *deployment) embedNATS(context.Context) error {
	port, err := d.net.port(places[0], 0)
	if err != nil {
		return err
	}
	at := join(d.net.addr(places[0]), port)
	d.nats, d.urls = []*natsServer{{place: places[0], client: at}}, "nats://"+at
	return nil
}

// planNATS sets the number and addresses of the servers: three in a cluster, one per place and, with credentials, one
// for every data centre that can exist.
func (d *deployment) planNATS(context.Context) error {
	ports := 0
	var err error
	at := func(place string) string {
		port, err2 := d.net.port(place, ports)
		err = errors.Join(err, err2)
		ports++
		return join(d.net.addr(place), port)
	}
	var urls []string
	for i, place := range places {
		s := &natsServer{name: fmt.Sprintf("nats-%d", i+1), place: place, client: at(place), route: at(place)}
		scheme := "nats://"
		if d.o.credentials {
			s.domain, s.leaf, s.monitor, scheme = wire.Root, at(place), at(place), "tls://"
		}
		d.nats = append(d.nats, s)
		urls = append(urls, scheme+s.client)
	}
	d.urls = strings.Join(urls, ",")
	if d.o.credentials {
		for _, dc := range d.where() {
			d.nats = append(d.nats, &natsServer{name: "nats-" + dc, place: dc, domain: dc, client: at(dc), monitor: at(dc)})
		}
	}
	return err
}

// startNATS starts the servers, creates their users with credentials, and waits until all accept connections.
func (d *deployment) startNATS(ctx context.Context) error {
	if d.o.credentials {
		if err := d.writeUsers(ctx); err != nil {
			return err
		}
	}
	size := 48 // enough for the data of a run, and quickly full
	if d.o.credentials {
		size = 512 // buckets and the audit stream reserve their maximum size
	}
	for _, s := range d.nats {
		if err := d.net.disk(filepath.Join(d.o.dir, s.name), size); err != nil {
			return err
		}
		config, err := d.natsConfig(s)
		if err != nil {
			return err
		}
		if err := d.add(&node{name: s.name, role: "nats", place: s.place, argv: []string{filepath.Join(d.o.dir, "bin", "nats-server"), "--config", config}}); err != nil {
			return err
		}
	}
	if err := d.wait(20*time.Second, d.natsUp); err != nil {
		return err
	}
	return d.provision(ctx)
}

// natsConfig writes the configuration of a server.
func (d *deployment) natsConfig(s *natsServer) (string, error) {
	store, cluster := filepath.Join(d.o.dir, s.name), ""
	if s.route != "" {
		var routes []string
		for _, o := range d.nats {
			if o.route != "" {
				routes = append(routes, fmt.Sprintf("%q", "nats://"+o.route))
			}
		}
		cluster = fmt.Sprintf("cluster { name: chaos, listen: %q, routes: [%s], no_advertise: true }\n", s.route, strings.Join(routes, ", "))
	}
	if s.domain == "" {
		return write(d.o.dir, s.name+".conf", "server_name: %s\nlisten: %q\nmax_payload: 2MB\njetstream { store_dir: %q, sync_interval: always }\n%s",
			s.name, s.client, store, cluster)
	}
	text, err := os.ReadFile(filepath.Join(d.users(), s.domain, "nats.conf"))
	if err != nil {
		return "", err
	}
	own := []string{"$NATS_SERVER_NAME", s.name, "0.0.0.0:4222", s.client, "0.0.0.0:8222", s.monitor, storeOf(s.domain), store, "0.0.0.0:7422", s.leaf}
	for _, o := range d.nats {
		if o.leaf != "" && s.domain != wire.Root {
			own = append(own, "tls://"+o.leaf, "tls://"+d.through(s.place, o.leaf))
		}
	}
	return write(d.o.dir, s.name+".conf", "%s%s", strings.NewReplacer(own...).Replace(string(text)), cluster)
}

// storeOf returns the placeholder for a server's folder in a written configuration.
func storeOf(domain string) string { return "/store/" + domain }

// users is the folder of the servers' and nodes' certificates.
func (d *deployment) users() string { return filepath.Join(d.o.dir, "nats") }

// certificate returns the paths of the certificate of a user, and of its key.
func (d *deployment) certificate(domain, folder, name string) (cert, key string) {
	cert = filepath.Join(d.users(), domain, folder, name)
	return cert + ".crt", cert + ".key"
}

// writeUsers makes the vestibule command write the servers' configurations and certificates, as an operator does.
func (d *deployment) writeUsers(ctx context.Context) error {
	var leafs, hosts []string
	for _, s := range d.nats {
		host, _, err := net.SplitHostPort(s.client)
		if err != nil {
			return err
		}
		hosts = append(hosts, host)
		if s.leaf != "" {
			leafs = append(leafs, s.leaf)
		}
	}
	return d.natsConfigure(ctx, "write", "--out", d.users(), "--data-centers", strings.Join(d.where(), ","), "--globals", "global-1..3", "--regionals", "regional-1..2",
		"--edges", "edge-1..200", "--servers", "1", "--server-names", strings.Join(slices.Compact(append(hosts, "127.0.0.1")), ","), "--hub", strings.Join(leafs, ","), "--store-dir", storeOf("{place}"))
}

func (d *deployment) natsConfigure(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if text, err := exec.CommandContext(ctx, filepath.Join(d.o.dir, "bin", "vestibule"), append([]string{"nats-config"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("nats-config %s: %w: %s", args[0], err, text)
	}
	return nil
}

// provision creates buckets and streams, which nodes may not do with credentials.
func (d *deployment) provision(ctx context.Context) error {
	if !d.o.credentials {
		return nil
	}
	for _, domain := range append([]string{wire.Root}, d.where()...) {
		cert, key := d.certificate(domain, "provision", "provision")
		err := d.natsConfigure(ctx, "provision", "--place", domain, "--nats-url", d.natsURLs(domain, ""), "--nats-ca", d.authority(), "--nats-cert", cert, "--nats-key", key)
		if err != nil {
			return fmt.Errorf("%s: %w", domain, err)
		}
	}
	return nil
}

func (d *deployment) authority() string { return filepath.Join(d.users(), "ca.crt") }

// natsURLs returns the addresses of the servers of global or of a data centre, or of the shared servers, through the
// gateway of the place if it has one.
func (d *deployment) natsURLs(domain, from string) string {
	var urls []string
	for _, s := range d.nats {
		switch s.domain {
		case "":
			urls = append(urls, "nats://"+d.through(from, s.client))
		case domain:
			urls = append(urls, "tls://"+d.through(from, s.client))
		}
	}
	return strings.Join(urls, ",")
}

// through returns the address of a NATS server's port as seen from a place.
func (d *deployment) through(place, at string) string {
	if g := d.gates[place]; g != nil && g.through[at] != "" {
		return g.through[at]
	}
	return at
}

// natsFor returns the NATS section of a node's configuration.
func (d *deployment) natsFor(place, role, name string) string {
	if !d.o.credentials {
		return fmt.Sprintf("nats: {url: %q}\n", d.natsURLs("", place))
	}
	domain, more := place, ""
	switch role {
	case "global":
		domain = wire.Root
	case "edge":
		more = ", domain: " + natsbus.DocumentsDomain
	}
	cert, key := d.certificate(domain, role+"s", name)
	text := fmt.Sprintf("nats: {url: %q, ca: %q, cert: %q, key: %q%s}\n", d.natsURLs(domain, place), d.authority(), cert, key, more)
	if role == "regional" {
		text += "upstream: {domain: " + natsbus.DocumentsDomain + "}\n"
	}
	return text
}

// operatorOf returns the NATS flags of the vestibule command: of the data centre that the command is about, if it has
// its own NATS.
func (d *deployment) operatorOf(args []string) []string {
	if !d.o.credentials {
		return []string{"--nats-url", d.urls}
	}
	domain, more := wire.Root, []string{"--nats-domain", natsbus.DocumentsDomain}
	if i := slices.Index(args, "--dc"); i >= 0 {
		domain, more = args[i+1], nil
	}
	cert, key := d.certificate(domain, "operator", "operator")
	return append(more, "--nats-url", d.natsURLs(domain, ""), "--nats-ca", d.authority(), "--nats-cert", cert, "--nats-key", key)
}

// natsUp returns an error unless every server accepts connections.
func (d *deployment) natsUp() error {
	for _, s := range d.nats {
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
