package notify

import (
	"context"
	"log/slog"

	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Node is a notifier with its listener for monitoring.
type Node struct {
	*Worker
	Debug *node.Debug
}

// NewNode returns the notifier of cfg, which uses conn. shared is nil for a monitoring listener of its own.
func NewNode(cfg Config, conn *natsbus.Conn, shared *node.Monitoring, log *slog.Logger) (*Node, error) {
	base := cfg.base()
	dbg, err := node.NewDebug(&base, cfg.Name, shared, log)
	if err != nil {
		return nil, err
	}
	dbg.Links.Add("nats", conn)
	node.RegisterCertificates(dbg.Registry, map[string]string{"nats.cert": cfg.NATS.Cert, "nats.ca": cfg.NATS.CA})
	networks, _ := cfg.networks() // Validate has reported its faults
	w := New(Options{
		Config: cfg, Bus: conn, Store: natsbus.NewPushes(conn), Count: NewMetrics(dbg.Registry),
		Out: node.Outbound{Networks: networks}, Listens: node.Listens(dbg.Own.All()), Log: log.With(slog.String("notifier", cfg.Name)),
	})
	return &Node{w, dbg}, nil
}

// Run runs the notifier and its listener until ctx ends, or one of them fails.
func (n *Node) Run(ctx context.Context) error {
	return n.Debug.Run(ctx, n.Worker.Run, n.Ready, func() any { return n.Status() })
}
