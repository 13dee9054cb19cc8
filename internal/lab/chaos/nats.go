//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// natsServer is one of three NATS servers of global, or the one of a data centre, which joins those of global as a leaf.
type natsServer struct {
	name, place string
	domain      string // wire.Root or the data centre

	client, monitor string // host and port
	route, leaf     string // of a server of global
}

// bus is the NATS servers of a fleet with their users, as `vestibule nats-config` writes them, and the gateways to
// them. Pods have their own.
type bus struct {
	*fleet
	dcs   []string
	nats  []*natsServer
	gates map[string]*gateway
}

// where returns the data centres that can exist.
func (b *bus) where() []string {
	if b.o.changes {
		return places
	}
	return b.dcs
}

// startNATS starts the servers and the gateways to them, and creates users, buckets and streams.
func (b *bus) startNATS(ctx context.Context) error {
	port := 4222 // a namespace has no other processes
	at := func(place string) string {
		port++
		return join(addrOf(place), port)
	}
	for i, place := range places {
		b.nats = append(b.nats, &natsServer{
			name: fmt.Sprintf("nats-%d", i+1), place: place, domain: wire.Root,
			client: at(place), monitor: at(place), route: at(place), leaf: at(place),
		})
	}
	for _, dc := range b.where() {
		b.nats = append(b.nats, &natsServer{name: "nats-" + dc, place: dc, domain: dc, client: at(dc), monitor: at(dc)})
	}
	if err := errors.Join(b.startGateways(), b.writeUsers(ctx)); err != nil {
		return err
	}
	for _, s := range b.nats {
		// Buckets and the audit stream reserve their maximum size.
		if err := disk(b.path(s.name), 2048); err != nil {
			return err
		}
		config, err := b.natsConfig(s)
		if err != nil {
			return err
		}
		argv := []string{b.path("bin", "nats-server"), "--config", config}
		if err := b.add(&node{name: s.name, role: "nats", place: s.place, argv: argv}); err != nil {
			return err
		}
	}
	if err := b.wait(ctx, 20*time.Second, b.natsUp); err != nil {
		return err
	}
	return b.provision(ctx)
}

// cutEdge is the gateway of the first edge alone, which a closure cuts off.
const cutEdge = "the first edge"

// startGateways starts the gateway of each place to the servers that its nodes and its leaf use.
func (b *bus) startGateways() error {
	b.gates = map[string]*gateway{}
	for _, place := range places {
		var servers []string
		for _, s := range b.nats {
			switch s.domain {
			case wire.Root:
				servers = append(servers, s.client, s.leaf)
			case place:
				servers = append(servers, s.client)
			}
		}
		var err error
		if b.gates[place], err = newGateway(place, servers); err != nil {
			return err
		}
		if place != places[0] {
			continue
		}
		if b.gates[cutEdge], err = newGateway(place, servers); err != nil {
			return err
		}
	}
	return nil
}

// natsConfig writes the configuration of a server.
func (b *bus) natsConfig(s *natsServer) (string, error) {
	text, err := os.ReadFile(b.path("nats", s.domain, "nats.conf"))
	if err != nil {
		return "", err
	}
	own := []string{
		"$NATS_SERVER_NAME", s.name, "0.0.0.0:4222", s.client, "127.0.0.1:8222", s.monitor,
		storeOf(s.domain), b.path(s.name), "0.0.0.0:7422", s.leaf,
	}
	var routes []string
	if s.domain != wire.Root { // the leaf begins at another place, which faults cut off
		own = append(own, "    urls: [", "    no_randomize: true\n    urls: [")
	}
	global := slices.DeleteFunc(slices.Clone(b.nats), func(o *natsServer) bool { return o.domain != wire.Root })
	for i, o := range global {
		if s.domain == wire.Root {
			routes = append(routes, fmt.Sprintf("%q", "nats://"+o.route))
			continue
		}
		to := global[(i+slices.Index(places, s.place)+1)%len(global)]
		own = append(own, "tls://"+o.leaf, "tls://"+b.gates[s.place].through[to.leaf])
	}
	config := strings.NewReplacer(own...).Replace(string(text))
	if s.domain == wire.Root {
		config += fmt.Sprintf("cluster { name: chaos, listen: %q, routes: [%s], no_advertise: true }\n", s.route,
			strings.Join(routes, ", "))
	}
	return write(b.o.dir, s.name+".conf", "%s", config)
}

// storeOf returns the placeholder for a server's folder in a written configuration.
func storeOf(domain string) string { return "/store/" + domain }

// writeUsers makes the vestibule command write the servers' configurations and certificates, as an operator does.
func (b *bus) writeUsers(ctx context.Context) error {
	leafs, hosts := []string(nil), []string{"127.0.0.1"}
	for _, s := range b.nats {
		hosts = append(hosts, addrOf(s.place))
		if s.leaf != "" {
			leafs = append(leafs, s.leaf)
		}
	}
	slices.Sort(hosts)
	return b.natsConfigure(ctx, "write", "--out", b.path("nats"), "--data-centers", strings.Join(b.where(), ","),
		"--globals", "global-1..3", "--regionals", "regional-1..2", "--edges", "edge-1..200", "--servers", "1",
		"--server-names", strings.Join(slices.Compact(hosts), ","), "--hub", strings.Join(leafs, ","), "--store-dir",
		storeOf("{place}"))
}

func (b *bus) natsConfigure(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := output(ctx, "", append([]string{b.path("bin", "vestibule"), "nats-config"}, args...)...)
	return err
}

// provision creates buckets and streams, which nodes may not do.
func (b *bus) provision(ctx context.Context) error {
	for _, domain := range append([]string{wire.Root}, b.where()...) {
		args := append([]string{"provision", "--place", domain}, b.natsFlags(domain, "provision/provision")...)
		if err := b.natsConfigure(ctx, args...); err != nil {
			return fmt.Errorf("%s: %w", domain, err)
		}
	}
	return nil
}

// natsURLs returns the addresses of the servers of global or of a data centre, through the gateway of a place if one is
// given.
func (b *bus) natsURLs(domain, from string) string {
	var urls []string
	for _, s := range b.nats {
		if s.domain != domain {
			continue
		}
		at := s.client
		if from != "" {
			at = b.gates[from].through[at]
		}
		urls = append(urls, "tls://"+at)
	}
	return strings.Join(urls, ",")
}

// natsFlags returns the NATS flags of the vestibule command for a user of a domain.
func (b *bus) natsFlags(domain, user string) []string {
	cert := b.path("nats", domain, user)
	return []string{
		"--nats-url", b.natsURLs(domain, ""), "--nats-ca", b.path("nats", "ca.crt"),
		"--nats-cert", cert + ".crt", "--nats-key", cert + ".key",
	}
}

// operatorFlags returns those of an operator: of the data centre that the command is about, or of global.
func (b *bus) operatorFlags(args []string) []string {
	if i := slices.Index(args, "--dc"); i >= 0 {
		return b.natsFlags(args[i+1], "operator/operator")
	}
	return append(b.natsFlags(wire.Root, "operator/operator"), "--nats-domain", natsbus.DocumentsDomain)
}

// natsFor returns the NATS section of a node's configuration.
func (b *bus) natsFor(place, role, name string) string {
	domain, more, gate := place, "", place
	switch role {
	case "global":
		domain = wire.Root
	case "edge":
		more = ", domain: " + natsbus.DocumentsDomain
		if isFirstEdge(place, name) {
			gate = cutEdge
		}
	}
	cert := b.path("nats", domain, role+"s", name)
	text := fmt.Sprintf("nats: {url: %q, ca: %q, cert: %q, key: %q%s}\n",
		b.natsURLs(domain, gate), b.path("nats", "ca.crt"), cert+".crt", cert+".key", more)
	if role == "regional" {
		text += "upstream: {domain: " + natsbus.DocumentsDomain + "}\n"
	}
	return text
}

// connect connects to the servers of a domain as one of its nodes.
func (b *bus) connect(domain string, role natsbus.Role, name string) (*natsbus.Conn, error) {
	cert := b.path("nats", domain, string(role)+"s", name)
	return natsbus.Connect(natsbus.Options{
		URL: b.natsURLs(domain, ""), Name: "chaos", Log: slog.New(slog.DiscardHandler), CA: b.path("nats", "ca.crt"),
		Inbox: natsbus.NodeInbox(role, domain, name), Cert: cert + ".crt", Key: cert + ".key",
	})
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
