package global

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Node is a candidate for global with its status and metrics listener.
type Node struct {
	*Server
	Debug   *node.Debug
	Control *Control // nil if not configured
}

// NewNode returns the global of cfg. It reaches the regionals and the store by conn. shared is nil for a monitoring
// listener of its own.
func NewNode(
	cfg Config, params wire.Params, conn *natsbus.Conn, shared *node.Monitoring, log *slog.Logger,
) (*Node, error) {
	dbg, err := node.NewDebug(&cfg.Base, "global", shared, log)
	if err != nil {
		return nil, err
	}
	dbg.Links.Add("nats", conn)
	ends := node.RegisterCertificates(dbg.Registry, map[string]string{
		"control.cert": cfg.Control.Cert, "nats.cert": cfg.NATS.Cert, "nats.ca": cfg.NATS.CA,
	})
	clock, replicas := node.NewClock(), node.BucketReplicas(cfg.NATS.Replicas)
	own := natsbus.NewControl(conn, replicas)
	s, err := New(Options{
		Config: cfg, Params: params, Bus: conn, Clock: clock, Reg: dbg.Registry, Log: log, Certificates: ends,
		Listeners: dbg.Own, Servers: conn.Servers,
		Docs: natsbus.NewDocuments(conn, replicas, Watched...), Own: own,
		EnsurePushes: func(ctx context.Context) error { return conn.EnsurePushes(ctx, replicas) }, Outbox: conn.Outbox,
		Audit: audit.NewJournal(natsbus.NewAudit(conn, replicas)), History: natsbus.NewHistory(conn, replicas),
		Lease: natsbus.NewLease(conn, wire.Root, cfg.Name, replicas, clock.Now).Bootstrap(cfg.Bootstrap),
	})
	if err != nil {
		return nil, errors.Join(err, dbg.Close())
	}
	n := &Node{Server: s, Debug: dbg}
	if cfg.Control.Listen != "" {
		if n.Control, err = newControl(s, own); err != nil {
			return nil, errors.Join(err, dbg.Close())
		}
	}
	return n, nil
}

// Run runs a candidate for global and its listener until ctx ends, or one of them fails.
func (n *Node) Run(ctx context.Context) error {
	return n.Debug.Run(ctx, n.run, n.Ready, func() any { return n.Status() })
}

func (n *Node) run(ctx context.Context) error {
	if n.Control == nil {
		return n.Server.Run(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.Server.Run(ctx) })
	g.Go(func() error { return n.Control.run(ctx) })
	return g.Wait()
}
