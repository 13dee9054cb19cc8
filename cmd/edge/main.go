// Command edge is one edge of a waiting room: it admits or queues the visitors
// of its rooms and hands those who are in to the site.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/edge"
	"vestibule/internal/natsbus"
	"vestibule/internal/node"
	"vestibule/internal/wire"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	cfg := edge.DefaultConfig()
	return node.Main("edge", &cfg, &cfg.Base, args, stdout, stderr, func(ctx context.Context, log *slog.Logger) error {
		return serve(ctx, cfg, stdout, log)
	})
}

func serve(ctx context.Context, cfg edge.Config, stdout io.Writer, log *slog.Logger) error {
	var closer node.Closer
	defer closer.Close(log)
	conn, err := natsbus.Connect(cfg.NATS.Options(cfg.DataCenter+"-"+cfg.Name, natsbus.NodeInbox(natsbus.RoleEdge, cfg.DataCenter, cfg.Name), log))
	if err != nil {
		return err
	}
	closer.Add("connection", conn.Close)
	var s *edge.Server
	dbg, err := node.NewDebug(cfg.Metrics.Listen, "Vestibule edge "+cfg.DataCenter+" "+cfg.Name, log,
		func() node.Readiness { return s.Ready() }, func() any { return s.Status() })
	if err != nil {
		return err
	}
	dbg.Links.Add("nats", conn)
	s, err = edge.New(edge.Options{
		Config: cfg, Params: wire.DefaultParams(), Bus: conn, Reg: dbg.Registry, Log: log,
		Docs: natsbus.NewDocuments(conn, 0, node.RoomsDocument, node.KeysDocument),
	})
	if err != nil {
		return err
	}
	if err := node.Announce(stdout, fmt.Sprintf("edge %s of %s: visitors %s, metrics %s", cfg.Name, cfg.DataCenter, s.URL(), dbg.URL()), map[string]string{
		"tier": "edge", "dc": cfg.DataCenter, "name": cfg.Name, "url": s.URL(), "front": s.FrontURL(), "metrics": dbg.URL(),
	}); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	watched, unwatch := context.WithCancel(context.Background()) // while it drains, too: it is not ready then
	defer unwatch()
	g.Go(func() error { return dbg.Run(watched) })
	g.Go(func() error {
		defer unwatch()
		return s.Run(ctx)
	})
	return g.Wait()
}
