package allinone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/global"
	"vestibule/internal/node"
)

// Options configure a tree.
type Options struct {
	DataCenters []string
	Edges       int    // per data centre
	Listen      string // host:port of the first edge; the others use the following ports
	TLS         edge.TLSConfig
	Proxies     []string // trusted for X-Forwarded-For by the edges
	Control     string   // host:port of the API, "" for [Options.followingPorts]
	Metrics     string   // host:port of the metrics of all nodes, "" for [Options.followingPorts]
	NATS        bool     // open the nats-server to other processes, at a port of [Options.followingPorts]
	DataDir     string
	Sockets     *node.Sockets // passed to this process; for one edge
	Params      wire.Params
	Log         *slog.Logger

	RoomsFile         string   // of the operator; "" for one that is made of the following
	StoreRooms        bool     // there is no rooms file: the API makes the rooms
	Room              string   // its name, "" for demo
	Hosts             []string // for visitors, besides localhost and the address of Listen
	TotalActiveUsers  int
	NewUsersPerMinute int
	SessionDuration   time.Duration
	Origin            string   // the site, "" for the demo's own
	Notify            string   // contact for push services: run a notifier; "" for none
	PushServices      []string // hosts of push services; nil for those of the browsers
	Networks          []string // private, that webhooks may reach
	Busy              bool     // add a second room, at [BusyPath], for [Tree.Crowd]

	uninitialized bool // a new fleet admits nobody until an operator initializes it
}

// Validate returns all faults in the options.
func (o *Options) Validate() []error {
	var errs []error
	if len(o.DataCenters) == 0 {
		errs = append(errs, errors.New("data-centers: at least one must be named"))
	}
	if why := push.Services(o.PushServices).Check(); why != "" {
		errs = append(errs, errors.New("notify-services: "+why))
	}
	seen := map[string]bool{}
	for _, dc := range o.DataCenters {
		if err := wire.CheckName(dc); err != nil {
			errs = append(errs, fmt.Errorf("data-centers: %w", err))
		}
		if seen[dc] {
			errs = append(errs, fmt.Errorf("data-centers: %q is named twice", dc))
		}
		seen[dc] = true
	}
	if o.Edges < 1 || o.Edges > 100 {
		errs = append(errs, fmt.Errorf("edges: must be 1 to 100, got %d", o.Edges))
	}
	errs = append(errs, o.checkListeners()...)
	if o.DataDir == "" {
		errs = append(errs, errors.New("data-dir: must not be empty"))
	}
	return append(errs, o.checkRooms()...)
}

// checkListeners validates the addresses.
func (o *Options) checkListeners() []error {
	errs := node.CheckAddr("listen", o.Listen)
	if _, port, err := net.SplitHostPort(o.Listen); err == nil {
		n, err := strconv.Atoi(port)
		last := n + o.Edges*len(o.DataCenters) - 1
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("listen: port must be a number, got %q", port))
		case n > 0 && n <= 65535 && last > 65535:
			errs = append(errs, fmt.Errorf("listen: the ports of all edges must end at 65535, got %d to %d", n, last))
		}
	}
	if o.Control != "" {
		faults := node.CheckAddr("control", o.Control)
		if len(faults) == 0 && !node.Loopback(o.Control) {
			faults = append(faults, fmt.Errorf("control: must be an address of this machine (127.0.0.1), got %q", o.Control))
		}
		errs = append(errs, faults...)
	}
	if o.Metrics != "" {
		errs = append(errs, node.CheckAddr("metrics", o.Metrics)...)
	}
	notices := global.NoticesConfig{Networks: o.Networks}
	for _, err := range notices.Validate() {
		errs = append(errs, errors.New(strings.Replace(err.Error(), ".", "-", 1))) // the flag's name
	}
	if _, err := clientaddr.ParseProxies(o.Proxies); err != nil {
		errs = append(errs, fmt.Errorf("trusted-proxies: %w", err))
	}
	if o.TLS.Listen == "" && len(o.TLS.Cert)+len(o.TLS.Key) > 0 {
		errs = append(errs, errors.New("tls-listen: must be given with tls-cert and tls-key"))
	}
	return append(errs, o.TLS.Faults("tls-")...)
}

// checkRooms validates the room. Global validates a file.
func (o *Options) checkRooms() (errs []error) {
	if o.StoreRooms {
		if rule := room.CheckOrigin(o.Origin); o.Origin != "" && rule != "" {
			errs = append(errs, fmt.Errorf("origin: %s", rule))
		}
		return append(errs, o.checkSite()...)
	}
	if o.RoomsFile != "" {
		return node.CheckFile("rooms", o.RoomsFile)
	}
	errs = o.checkSite()
	for _, f := range o.settings("http://127.0.0.1:1").Validate() {
		f.Field = strings.ReplaceAll(f.Field, "_", "-")
		errs = append(errs, f)
	}
	if o.SessionDuration == 0 {
		errs = append(errs, errors.New("session-duration: must be 5s to 1h in whole seconds, got 0s"))
	}
	return errs
}

// checkSite refuses a site that is a listener of this process.
func (o *Options) checkSite() []error {
	listen := []string{o.Listen, o.TLS.Listen, o.Control, o.Metrics}
	for i := 1; i < o.Edges*len(o.DataCenters); i++ {
		if next, err := after(o.Listen, i); err == nil {
			listen = append(listen, next)
		}
	}
	own := node.OwnSites(context.Background(), []string{o.Origin}, node.Configured(listen...), net.DefaultResolver.LookupNetIP)
	if at := own[o.Origin]; at != "" {
		return []error{fmt.Errorf("origin: must not be a listener of this process, and %s is one, got %q", at, o.Origin)}
	}
	return nil
}

// settings returns the room for the rooms file.
func (o *Options) settings(origin string) room.Settings {
	if o.Origin != "" {
		origin = o.Origin
	}
	return room.Settings{
		Name: cmp.Or(o.Room, "demo"), Host: append(slices.Clone(o.Hosts), "localhost")[0], Origin: origin,
		TotalActiveUsers: o.TotalActiveUsers, NewUsersPerMinute: o.NewUsersPerMinute, SessionDuration: o.SessionDuration,
	}
}

// BusyPath is the path of the room that [Tree.Crowd] fills.
const BusyPath = "/busy"

// busySession is short, so that the queue of the busy room moves: nobody there leaves explicitly.
const busySession = 10 * time.Second

// hosts returns all hosts of the rooms: those of the site, and the names of this machine.
func (o *Options) hosts() (out []string) {
	all := append(slices.Clone(o.Hosts), "localhost", "127.0.0.1", "::1")
	if host, _, err := net.SplitHostPort(o.Listen); err == nil {
		if ip, err := netip.ParseAddr(host); host != "" && (err != nil || !ip.IsUnspecified()) {
			all = append(all, host)
		}
	}
	for _, h := range all {
		if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// writeRooms writes the rooms file, which may be edited while the tree runs.
func writeRooms(file string, o *Options, origin string) error {
	rooms := []room.Settings{o.settings(origin)}
	if o.Busy {
		rooms = append(rooms, room.Settings{
			Name: "busy", Host: rooms[0].Host, Path: BusyPath, Origin: rooms[0].Origin, TotalActiveUsers: 8,
			NewUsersPerMinute: 600, SessionDuration: busySession,
		})
	}
	var b strings.Builder
	b.WriteString(`# Edit this while it runs: every edge follows within two seconds. A mistake is refused with
# its line, and the last good version stays. The next start writes it anew from its flags.
rooms:
`)
	for _, r := range rooms {
		fmt.Fprintf(&b, "  - name: %s\n    host: %q\n    path: %s\n    additional_routes:\n", r.Name, r.Host,
			"/"+strings.TrimPrefix(r.Path, "/"))
		for _, h := range o.hosts()[1:] {
			fmt.Fprintf(&b, "      - {host: %q, path: /%s}\n", h, strings.TrimPrefix(r.Path, "/"))
		}
		fmt.Fprintf(&b,
			"    total_active_users: %d\n    new_users_per_minute: %d\n    session_duration: %s\n    origin: %s\n",
			r.TotalActiveUsers, r.NewUsersPerMinute, r.SessionDuration, r.Origin)
		if o.Notify != "" {
			b.WriteString("    web_push: true\n")
		}
	}
	return os.WriteFile(file, []byte(b.String()), 0o600)
}

// anyFree is an address of this machine with a free port.
const anyFree = "127.0.0.1:0"

// ports hands out addresses of this machine with consecutive ports; next is 0 for any free port.
type ports struct{ next int }

// followingPorts returns the ports from ten after that of the first edge: addresses that stay the same between starts.
func (o *Options) followingPorts() *ports {
	_, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return &ports{}
	}
	first, err := strconv.Atoi(port)
	if err != nil || first == 0 {
		return &ports{}
	}
	return &ports{first + max(10, o.Edges*len(o.DataCenters))}
}

// nextAddr returns the next address, with another port if it is in use.
func (p *ports) nextAddr() string {
	if p.next == 0 || p.next > 65535 {
		return anyFree
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(p.next))
	p.next++
	if !Free(addr) {
		return anyFree
	}
	return addr
}

// Free reports whether an address is not in use.
func Free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return !errors.Is(err, syscall.EADDRINUSE) // for example without IPv6; the following listen reports it
	}
	return l.Close() == nil
}

// after returns the n-th address after first, with any port for one beyond the last.
func after(first string, n int) (string, error) {
	host, port, err := net.SplitHostPort(first)
	if err != nil {
		return "", err
	}
	p, err := strconv.Atoi(port)
	if err != nil {
		return "", err
	}
	if p != 0 {
		p += n
	}
	if p > 65535 {
		p = 0 // any
	}
	return net.JoinHostPort(host, strconv.Itoa(p)), nil
}

// splitFolder is the folder of configuration files below the data folder.
const splitFolder = "split"

// splitNATS is the nats-server's address if the nodes run as separate processes.
const splitNATS = "127.0.0.1:4222"

// absolute returns an absolute path below the data folder.
func (o *Options) absolute(names ...string) (string, error) {
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return "", fmt.Errorf("data-dir: %w", err)
	}
	return filepath.Join(append([]string{dir}, names...)...), nil
}
