// Command global is the coordinator of a waiting room: it lends slots to the
// data centres and publishes rooms and keys. Any number may run; one leads.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/global"
	"vestibule/internal/natsbus"
	"vestibule/internal/natsbus/embedded"
	"vestibule/internal/node"
	"vestibule/internal/wire"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	cfg := global.DefaultConfig()
	return node.Main("global", &cfg, &cfg.Base, args, stdout, stderr, func(ctx context.Context, log *slog.Logger) error {
		return serve(ctx, cfg, stdout, log)
	})
}

func serve(ctx context.Context, cfg global.Config, stdout io.Writer, log *slog.Logger) error {
	var closer node.Closer
	defer closer.Close(log)
	conn, server, err := embedded.Join(cfg.Name, natsbus.NodeInbox(natsbus.RoleGlobal, wire.Root, cfg.Name), cfg.DataDir, &cfg.NATS, &closer, log)
	if err != nil {
		return err
	}
	clock := node.NewClock()
	var s *global.Server
	dbg, err := node.NewDebug(cfg.Metrics.Listen, "Vestibule global", log,
		func() node.Readiness { return s.Ready() }, func() any { return s.Status() })
	if err != nil {
		return err
	}
	dbg.Links.Add("nats", conn)
	s, err = global.New(global.Options{
		Config: cfg, Params: wire.DefaultParams(), Bus: conn, Clock: clock, Reg: dbg.Registry, Log: log,
		Docs:  natsbus.NewDocuments(conn, cfg.NATS.BucketReplicas(), global.Watched...),
		Lease: natsbus.NewLease(conn, wire.Root, cfg.Name, cfg.NATS.BucketReplicas(), clock.Now).Bootstrap(cfg.Bootstrap),
	})
	if err != nil {
		return err
	}
	if err := node.Announce(stdout, fmt.Sprintf("global %s: metrics %s", cfg.Name, dbg.URL()), map[string]string{
		"tier": "global", "name": cfg.Name, "metrics": dbg.URL(), "nats": server,
	}); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return dbg.Run(ctx) })
	g.Go(func() error { return s.Run(ctx) })
	return g.Wait()
}
