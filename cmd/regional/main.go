// Command regional is the aggregator of one data centre: it counts the sessions of its edges, divides the permits of
// the data centre among them, and syncs with global. Any number may run for one data centre; one leads.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
	"vestibule/internal/regional"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	cfg := regional.DefaultConfig()
	return node.Main("regional", &cfg, &cfg.Base, args, stdout, stderr, func(ctx context.Context, log *slog.Logger) error {
		return serve(ctx, cfg, stdout, log)
	})
}

func serve(ctx context.Context, cfg regional.Config, stdout io.Writer, log *slog.Logger) error {
	var closer node.Closer
	defer closer.Close(log)
	name := cfg.DataCenter + "-" + cfg.Name
	inbox := natsbus.NodeInbox(natsbus.RoleRegional, cfg.DataCenter, cfg.Name)
	edges, server, err := embedded.Join(name, inbox, cfg.DataDir, &cfg.NATS, &closer, log)
	if err != nil {
		return err
	}
	up := edges
	switch {
	case cfg.Upstream.URL == "" && cfg.Upstream.Domain != "":
		up = edges.WithDomain(cfg.Upstream.Domain)
	case cfg.Upstream.URL != "":
		opts := cfg.Upstream.Options(name+"-up", inbox, log)
		opts.Stream = natsbus.DocumentsStream
		if up, err = natsbus.Connect(opts); err != nil {
			return err
		}
		closer.Add("connection to global", up.Close)
	}
	n, err := regional.NewNode(cfg, wire.DefaultParams(), edges, up, nil, log)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("regional %s of %s: metrics %s", cfg.Name, cfg.DataCenter, n.Debug.URL())
	err = node.Announce(stdout, line, map[string]string{
		"tier": "regional", "dc": cfg.DataCenter, "name": cfg.Name, "metrics": n.Debug.URL(), "nats": server.URL(),
	})
	if err != nil {
		return err
	}
	return n.Run(ctx)
}
