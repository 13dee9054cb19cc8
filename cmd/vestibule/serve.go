package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/allinone"
	"vestibule/internal/core/push"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge"
	"vestibule/internal/global"
	"vestibule/internal/node"
)

// serveConfig is the configuration of serve. Its keys are those of the nodes where these have them.
type serveConfig struct {
	Origin            string        `mapstructure:"origin" doc:"the site, such as http://127.0.0.1:3000"`
	Host              []string      `mapstructure:"host" doc:"names of the site, beside localhost and the address of --listen"`
	TotalActiveUsers  int           `mapstructure:"total_active_users" doc:"sessions that may be valid at any moment"`
	NewUsersPerMinute int           `mapstructure:"new_users_per_minute" doc:"admissions in any 60 seconds"`
	SessionDuration   time.Duration `mapstructure:"session_duration" doc:"how long a session lasts after the last request"`
	Rooms             string        `mapstructure:"rooms" doc:"rooms file in place of --origin, --host and the limits; \"\": rooms of the API, with --origin as their site"`

	Listen string         `mapstructure:"listen" doc:"host:port for visitors without TLS"`
	TLS    edge.TLSConfig `mapstructure:"tls"`

	TrustedProxies []string             `mapstructure:"trusted_proxies" doc:"addresses or prefixes of load balancers with believed X-Forwarded-For and X-Forwarded-Proto"`
	Notify         serveNotify          `mapstructure:"notify"`
	Control        string               `mapstructure:"control" doc:"host:port of the API, on this machine"`
	Notices        global.NoticesConfig `mapstructure:"notices"`
	Metrics        string               `mapstructure:"metrics" doc:"host:port of metrics, health and status"`
	DataDir        string               `mapstructure:"data_dir" doc:"data folder: keep it"`
	DataCenter     string               `mapstructure:"data_center" doc:"name of this data centre"`
	Log            node.LogConfig       `mapstructure:"log"`

	given map[string]bool // keys that are set
}

type serveNotify struct {
	Contact  string   `mapstructure:"contact" doc:"contact of notify, which then runs inside"`
	Services []string `mapstructure:"services" doc:"push services"`
}

// Given receives the keys that are set.
func (c *serveConfig) Given(keys map[string]bool) { c.given = keys }

// options returns the options of the tree.
func (c *serveConfig) options() *allinone.Options {
	return &allinone.Options{
		Params: wire.DefaultParams(), Edges: 1, Room: "site", DataCenters: []string{c.DataCenter}, Listen: c.Listen, TLS: c.TLS,
		Proxies: c.TrustedProxies, Control: c.Control, Metrics: c.Metrics, DataDir: c.DataDir,
		RoomsFile: c.Rooms, StoreRooms: c.storeRooms(), Hosts: c.Host, Origin: c.Origin, TotalActiveUsers: c.TotalActiveUsers,
		NewUsersPerMinute: c.NewUsersPerMinute, SessionDuration: c.SessionDuration, Notify: c.Notify.Contact,
		PushServices: c.Notify.Services, Networks: c.Notices.Networks,
	}
}

// storeRooms reports whether the rooms are those of the API.
func (c *serveConfig) storeRooms() bool { return c.given["rooms"] && c.Rooms == "" }

// Validate returns all faults.
func (c *serveConfig) Validate() []error {
	faults := c.contradictions()
	keys := map[string]string{"data-centers": "data_center"}
	for _, s := range node.Settings(c) {
		keys[strings.NewReplacer(".", "-", "_", "-").Replace(s.Key)] = s.Key
	}
	for _, err := range c.options().Validate() { // named as flags are
		name, rule, _ := strings.Cut(err.Error(), ":")
		words := strings.Split(name, ", ")
		for i, word := range words {
			flag, element, list := strings.Cut(word, "[")
			if words[i] = cmp.Or(keys[flag], keys[strings.ReplaceAll(flag, "_", "-")], flag); list {
				words[i] += "[" + element
			}
		}
		faults = append(faults, errors.New(strings.Join(words, ", ")+":"+rule))
	}
	return append(faults, c.Log.Validate()...)
}

// contradictions returns the faults of combinations.
func (c *serveConfig) contradictions() (faults []error) {
	switch {
	case c.Rooms != "" || c.Origin != "":
	case c.storeRooms():
		faults = append(faults, errors.New("origin: must be given: it is the site of rooms of the API"))
	default:
		faults = append(faults, errors.New("origin: must be given, or rooms"))
	}
	if !c.given["rooms"] {
		return faults
	}
	from := "file"
	if c.storeRooms() {
		from = "API"
	}
	for _, key := range []string{"origin", "host", "total_active_users", "new_users_per_minute", "session_duration"} {
		if c.given[key] && (key != "origin" || !c.storeRooms()) {
			faults = append(faults, fmt.Errorf("%s: must not be given with rooms: the %s says it", key, from))
		}
	}
	return faults
}

func newServeCmd() *cobra.Command {
	cfg := serveConfig{
		TotalActiveUsers: 100, NewUsersPerMinute: 100, SessionDuration: 5 * time.Minute, Listen: ":8080",
		TLS: edge.DefaultConfig().TLS, Control: "127.0.0.1:8090", Metrics: "127.0.0.1:9100", DataDir: "./vestibule",
		Notify: serveNotify{Services: push.DefaultServices}, DataCenter: "main", Log: node.LogConfig{Level: "info", Format: "text"},
	}
	return configured(&cobra.Command{
		Use: "serve", Short: "Run a waiting room in one process, with its data on disk, in front of a site",
	}, &cfg, func(cmd *cobra.Command, _ []string) error {
		o := cfg.options()
		o.Log = node.NewLogger(cmd.ErrOrStderr(), cfg.Log)
		return serve(cmd, o)
	})
}

// serve runs global, a regional and an edge until the context ends.
func serve(cmd *cobra.Command, o *allinone.Options) (err error) {
	if o.Sockets, err = node.PassedSockets(); err != nil {
		return err
	}
	defer o.Sockets.Close() // the edge has reported the sockets that it did not take
	return grow(cmd.Context(), o, func(ctx context.Context, tree *allinone.Tree) error {
		if o.StoreRooms { // an empty store is not ready before its first room
			return announceServe(cmd.OutOrStdout(), tree, o)
		}
		if err := tree.WaitReady(ctx); err != nil { // it may wait for earlier sessions, and serves them meanwhile
			return err
		}
		return announceServe(cmd.OutOrStdout(), tree, o)
	})
}

// announceServe prints all addresses. The token stays in its file, since the output of a service is logged.
func announceServe(w io.Writer, t *allinone.Tree, o *allinone.Options) error {
	var b strings.Builder
	switch {
	case o.StoreRooms:
		fmt.Fprintf(&b, "The waiting rooms that the API makes.\n\n  Visitors  %s\n", t.Info.Edges[0].URL)
	case o.RoomsFile == "":
		fmt.Fprintf(&b, "A waiting room in front of %s: %d at a time, %d new per minute, sessions of %s.\n\n", o.Origin,
			o.TotalActiveUsers, o.NewUsersPerMinute, short(o.SessionDuration))
		for i, h := range append(o.Hosts, "localhost") {
			fmt.Fprintf(&b, "%s http://%s\n", []string{"  Visitors ", "           "}[min(i, 1)],
				withPort(h, t.Info.Edges[0].URL))
		}
	default:
		fmt.Fprintf(&b, "The waiting rooms of %s.\n\n  Visitors  %s\n", o.RoomsFile, t.Info.Edges[0].URL)
	}
	if t.Info.Rooms != "" {
		fmt.Fprintf(&b, "  Rooms     %s\n", t.Info.Rooms)
	}
	fmt.Fprintf(&b, "  API       VESTIBULE_SERVER=%s VESTIBULE_TOKEN=$(cat %s) %s rooms list\n", t.Info.Control.URL,
		shellWord(t.Info.Control.TokenFile), program())
	fmt.Fprintf(&b, "  Console   the same variables with %s login --console print a link to it\n", program())
	fmt.Fprintf(&b, "  Health    %s/readyz\n", t.Info.Metrics)
	fmt.Fprintf(&b, "  Split     %s: the same as separate processes, when one is not enough\n\n", t.Info.Split)
	return ready(w, &b, &t.Info)
}

// withPort returns a host with the port of a URL, unless it is the default port of its scheme.
func withPort(host, url string) string {
	port := url[strings.LastIndexByte(url, ':')+1:]
	if port == "80" {
		return host
	}
	return host + ":" + port
}
