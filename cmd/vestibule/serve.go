package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vestibule/internal/allinone"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

func newServeCmd() *cobra.Command {
	o := &allinone.Options{Params: wire.DefaultParams(), Edges: 1, Room: "site"}
	dc, level := "", (*string)(nil)
	cmd := &cobra.Command{
		Use: "serve", Short: "Run a waiting room in one process, with its data on disk, in front of a site",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.DataCenters = []string{dc}
			faults := checkServe(cmd.Flags(), o)
			for _, err := range o.Validate() {
				faults = append(faults, errors.New(strings.Replace(err.Error(), "data-centers:", "data-center:", 1)))
			}
			if err := refuse(append(faults, checkLevel(*level)...)); err != nil {
				return err
			}
			o.Log = node.NewLogger(cmd.ErrOrStderr(), node.LogConfig{Level: *level, Format: "text"})
			return serve(cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Origin, "origin", "", "the site, such as http://127.0.0.1:3000")
	f.StringSliceVar(&o.Hosts, "host", nil,
		"names of the site, beside localhost and the address of --listen")
	limitFlags(f, o, 100, 100, 5*time.Minute)
	f.StringVar(&o.RoomsFile, "rooms", "",
		"rooms file in place of --origin, --host and the limits; \"\": rooms of the API, with --origin as their site")
	f.StringVar(&o.Listen, "listen", ":8080", "host:port for visitors without TLS")
	f.StringVar(&o.TLS.Listen, "tls-listen", "", "host:port for visitors with TLS")
	f.StringSliceVar(&o.TLS.Cert, "tls-cert", nil, "certificate files (PEM), read again when they change")
	f.StringSliceVar(&o.TLS.Key, "tls-key", nil, "key files (PEM), one for each certificate")
	f.StringVar(&o.TLS.Least, "tls-min-version", "1.2", "lowest version of TLS: 1.2 or 1.3")
	f.StringSliceVar(&o.TLS.HSTS, "tls-hsts", nil, "HOST=POLICY by host: Strict-Transport-Security over TLS")
	f.BoolVar(&o.TLS.Redirect, "tls-redirect", false, "send requests without TLS on to https, before the line")
	f.StringSliceVar(&o.Proxies, "trusted-proxies", nil,
		"addresses or prefixes of load balancers with believed X-Forwarded-For and X-Forwarded-Proto")
	f.StringVar(&o.Notify, "notify-contact", "", "contact of notify, which then runs inside")
	f.StringVar(&o.Control, "control", "127.0.0.1:8090", "host:port of the API, an address of this machine")
	f.StringSliceVar(&o.Networks, "notices-networks", nil,
		"private networks that webhooks may reach, such as 10.1.0.0/16, beside public addresses")
	f.StringVar(&o.Metrics, "metrics", "127.0.0.1:9100", "host:port of metrics, health and status of all nodes")
	f.StringVar(&o.DataDir, "data-dir", "./vestibule", "folder of all data: keep it")
	f.StringVar(&dc, "data-center", "main", "name of this data centre")
	level = logLevel(cmd, "info")
	return cmd
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

// checkServe returns the faults of flag combinations.
func checkServe(f *pflag.FlagSet, o *allinone.Options) (faults []error) {
	o.StoreRooms = f.Changed("rooms") && o.RoomsFile == ""
	switch {
	case o.RoomsFile != "" || o.Origin != "":
	case o.StoreRooms:
		faults = append(faults, errors.New("origin: must be given: it is the site of rooms of the API"))
	default:
		faults = append(faults, errors.New("origin: must be given, or rooms"))
	}
	if !f.Changed("rooms") {
		return faults
	}
	from := "file"
	if o.StoreRooms {
		from = "API"
	}
	for _, name := range []string{"origin", "host", "total-active-users", "new-users-per-minute", "session-duration"} {
		if f.Changed(name) && (name != "origin" || !o.StoreRooms) {
			faults = append(faults, fmt.Errorf("%s: must not be given with rooms: the %s says it", name, from))
		}
	}
	return faults
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
