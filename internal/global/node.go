package global

import (
	"context"
	"errors"
	"log/slog"

	"vestibule/internal/natsbus"
	"vestibule/internal/node"
	"vestibule/internal/wire"
)

// Node is a candidate for global with its listener for people and machines that watch it.
type Node struct {
	*Server
	Debug *node.Debug
}

// NewNode returns the global of cfg, which reaches the regionals and the store by conn.
func NewNode(cfg Config, params wire.Params, conn *natsbus.Conn, log *slog.Logger) (*Node, error) {
	dbg, err := node.NewDebug(cfg.Metrics.Listen, "Vestibule global", log)
	if err != nil {
		return nil, err
	}
	dbg.Links.Add("nats", conn)
	clock, replicas := node.NewClock(), node.BucketReplicas(cfg.NATS.Replicas)
	s, err := New(Options{
		Config: cfg, Params: params, Bus: conn, Clock: clock, Reg: dbg.Registry, Log: log,
		Docs:  natsbus.NewDocuments(conn, replicas, Watched...),
		Lease: natsbus.NewLease(conn, wire.Root, cfg.Name, replicas, clock.Now).Bootstrap(cfg.Bootstrap),
	})
	if err != nil {
		return nil, errors.Join(err, dbg.Close())
	}
	return &Node{s, dbg}, nil
}

// Run runs a candidate for global and its listener until ctx ends, or one of them fails.
func (n *Node) Run(ctx context.Context) error {
	return n.Debug.Run(ctx, n.Server.Run, n.Ready, func() any { return n.Status() })
}
