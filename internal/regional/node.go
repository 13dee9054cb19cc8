package regional

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Node is a regional with its monitoring listener.
type Node struct {
	*Server
	Debug *node.Debug
}

// NewNode returns the regional of cfg. edges is its connection to edges and its store, up to global and the
// documents; they may be the same. shared is nil for a monitoring listener of its own.
func NewNode(
	cfg Config, params wire.Params, edges, up *natsbus.Conn, shared *node.Monitoring, log *slog.Logger,
) (*Node, error) {
	dbg, err := node.NewDebug(&cfg.Base, "regional "+cfg.DataCenter, shared, log)
	if err != nil {
		return nil, err
	}
	dbg.Links.Add("nats", edges)
	ends := node.RegisterCertificates(dbg.Registry, map[string]string{
		"nats.cert": cfg.NATS.Cert, "nats.ca": cfg.NATS.CA, "upstream.cert": cfg.Upstream.Cert,
		"upstream.ca": cfg.Upstream.CA,
	})
	if cfg.Upstream.URL != "" {
		dbg.Links.Add("upstream", up)
	}
	clock, replicas := node.NewClock(), node.BucketReplicas(cfg.NATS.Replicas)
	s, err := New(Options{
		Config: cfg, Params: params, Edges: edges, Global: up, Desk: edges, Clock: clock, Reg: dbg.Registry, Log: log,
		Certificates: ends, Listens: strings.Join(append(strings.Fields(node.Listens(dbg.Own.All())), edges.Servers()...), " "),
		Docs: natsbus.NewDocuments(up, 0, node.RoomsDocument, node.KeysDocument, node.MembersDocument,
			node.ControlsDocument, node.DrawsDocument),
		Lease:    natsbus.NewLease(edges, "regional."+cfg.DataCenter, cfg.Name, replicas, clock.Now).Bootstrap(cfg.Bootstrap),
		Promises: natsbus.NewPromises(edges, cfg.DataCenter, replicas),
	})
	if err != nil {
		return nil, errors.Join(err, dbg.Close())
	}
	return &Node{s, dbg}, nil
}

// Run runs a regional and its listener until ctx ends, or one of them fails.
func (n *Node) Run(ctx context.Context) error {
	return n.Debug.Run(ctx, n.Server.Run, n.Ready, func() any { return n.Status() })
}
