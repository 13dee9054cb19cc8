// Package natsconf writes the configuration of NATS servers in which every node is a user, identified by a client
// certificate, with only the permissions of its role (natsbus.Allow).
//
// Global has its own servers, the hub, and so has every data centre, whose servers join the hub as leaf nodes with
// a separate JetStream domain. So an isolated data centre continues to work, and its users do not exist elsewhere.
package natsconf

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/wire"
)

// Plan lists the servers and users. In texts {place} stands for "global" or a data centre's name, and {n} for the
// number of a server, from 0.
type Plan struct {
	DataCenters []string
	Globals     []string // names of nodes, the same in every place
	Regionals   []string
	Edges       []string
	Notifiers   []string // at global

	Servers int      // in every place: 1, 3 or 5
	Routes  string   // host of server {n}, for the cluster routes
	Names   []string // hosts and addresses in the servers' certificates
	Hub     []string // host:port of the hub for leaf nodes

	CertDir  string // folder with the server's certificates
	StoreDir string // folder of JetStream
	Monitor  string // host:port of health and metrics

	// Ports have the port for clients of places that do not take 4222. The other ports of these places differ as much from
	// the usual ones, so that the servers of two places can share a machine.
	Ports map[string]int

	Valid time.Duration // validity of the certificates
}

// The usual ports of a server.
const (
	clientPort = 4222
	routePort  = 6222
	leafPort   = 7422
)

// port returns the port of a place that usually is the given one.
func (p *Plan) port(place string, usual int) int {
	if at, own := p.Ports[place]; own {
		return usual + at - clientPort
	}
	return usual
}

// monitor returns host:port of health and metrics of a place.
func (p *Plan) monitor(place string) string {
	host, port, err := net.SplitHostPort(p.Monitor)
	n, digits := strconv.Atoi(port)
	if err != nil || digits != nil {
		return p.Monitor
	}
	return net.JoinHostPort(host, strconv.Itoa(p.port(place, n)))
}

// maxUsers bounds the users of a place: their list is one file.
const maxUsers = 10_000

// Validate returns all faults in the plan.
func (p *Plan) Validate() []error {
	var errs []error
	if len(p.DataCenters) == 0 {
		errs = append(errs, errors.New("data_centers: at least one must be named"))
	}
	for _, list := range []struct {
		key   string
		names []string
	}{
		{"data_centers", p.DataCenters},
		{"globals", p.Globals},
		{"regionals", p.Regionals},
		{"edges", p.Edges},
		{"notifiers", p.Notifiers},
	} {
		for i, name := range list.names {
			if err := wire.CheckName(name); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", list.key, err))
			}
			if slices.Contains(list.names[:i], name) {
				errs = append(errs, fmt.Errorf("%s: %q is named twice", list.key, name))
			}
		}
		if len(list.names) > maxUsers {
			errs = append(errs, fmt.Errorf("%s: must be %d names at most, got %d", list.key, maxUsers, len(list.names)))
		}
	}
	if p.Servers != 1 && p.Servers != 3 && p.Servers != 5 {
		errs = append(errs, fmt.Errorf("servers: must be 1, 3 or 5, got %d", p.Servers))
	}
	if p.Servers > 1 && !strings.Contains(p.Routes, "{n}") {
		errs = append(errs, fmt.Errorf("routes: must have {n} for the number of a server, got %q", p.Routes))
	}
	if len(p.Hub) == 0 {
		errs = append(errs, errors.New("hub: at least one address must be given"))
	}
	for _, h := range p.Hub {
		if host, port, err := net.SplitHostPort(h); err != nil || host == "" {
			errs = append(errs, fmt.Errorf("hub: must be host:port, got %q", h))
		} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			errs = append(errs, fmt.Errorf("hub: port must be 0 to 65535, got %q", h))
		}
	}
	if len(p.Names) == 0 {
		errs = append(errs, errors.New("server_names: at least one must be given"))
	}
	for key, dir := range map[string]string{"cert_dir": p.CertDir, "store_dir": p.StoreDir} {
		if dir == "" {
			errs = append(errs, fmt.Errorf("%s: must not be empty", key))
		}
	}
	ports := []int{clientPort, routePort, leafPort}
	if _, port, err := net.SplitHostPort(p.Monitor); err != nil || port == "" {
		errs = append(errs, fmt.Errorf("monitor: must be host:port, got %q", p.Monitor))
	} else if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		ports = append(ports, int(n))
	} else if len(p.Ports) > 0 {
		errs = append(errs, fmt.Errorf("monitor: must have a port in digits beside ports, got %q", p.Monitor))
	}
	lowest, highest := 1-slices.Min(ports)+clientPort, 65535-slices.Max(ports)+clientPort
	for _, place := range slices.Sorted(maps.Keys(p.Ports)) {
		if !slices.Contains(p.places(), place) {
			errs = append(errs, fmt.Errorf("ports: %q is not global and no data centre", place))
		}
		if n := p.Ports[place]; n < lowest || n > highest {
			errs = append(errs, fmt.Errorf("ports: must be %d to %d for %s, so that its other ports exist, got %d", lowest, highest,
				place, n))
		}
	}
	if p.Valid < time.Hour || p.Valid > maxValid {
		errs = append(errs, fmt.Errorf("valid: must be 1h to %v, got %v", maxValid, p.Valid))
	}
	return errs
}

// maxValid is the maximum validity of a certificate.
const maxValid = 10 * 365 * 24 * time.Hour

// Expand expands ranges in a list of names: "edge-0..9" becomes ten.
func Expand(list []string) ([]string, error) {
	var out []string
	for _, s := range list {
		from, to, many := strings.Cut(s, "..")
		if !many {
			out = append(out, s)
			continue
		}
		stem := strings.TrimRight(from, "0123456789")
		first, err := strconv.Atoi(from[len(stem):])
		last, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || last < first || last-first >= maxUsers {
			return nil, fmt.Errorf("must be a name, or a range such as edge-0..9, got %q", s)
		}
		for n := first; n <= last; n++ {
			out = append(out, stem+strconv.Itoa(n))
		}
	}
	return out, nil
}

// places lists global and the data centres.
func (p *Plan) places() []string { return append([]string{wire.Root}, p.DataCenters...) }
