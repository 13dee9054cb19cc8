package edge

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Node is an edge with its listener for operators and monitoring.
type Node struct {
	*Server
	Debug *node.Debug
}

// NewNode returns the edge of cfg, which uses conn for its regional and the documents. It takes its listeners from
// sockets, if any; shared is nil for a monitoring listener of its own.
func NewNode(
	cfg Config, params wire.Params, conn *natsbus.Conn, sockets *node.Sockets, shared *node.Monitoring,
	log *slog.Logger,
) (*Node, error) {
	dbg, err := node.NewDebug(&cfg.Base, "edge "+cfg.DataCenter+" "+cfg.Name, shared, log)
	if err != nil {
		return nil, err
	}
	dbg.Visitors = true
	dbg.Links.Add("nats", conn)
	files := map[string]string{"nats.cert": cfg.NATS.Cert, "nats.ca": cfg.NATS.CA}
	for i, cert := range cfg.TLS.Cert {
		key := "tls.cert"
		if i > 0 {
			key += "[" + strconv.Itoa(i) + "]"
		}
		files[key] = cert
	}
	s, err := New(Options{
		Config: cfg, Params: params, Bus: conn, Reg: dbg.Registry, Log: log, Sockets: sockets, Own: dbg.Own, Servers: conn.Servers,
		Certificates: node.RegisterCertificates(dbg.Registry, files), Pushes: conn.StorePush,
		Docs: natsbus.NewDocuments(conn, 0, node.RoomsDocument, node.KeysDocument, node.ControlsDocument, node.DrawsDocument),
	})
	if err != nil {
		return nil, errors.Join(err, dbg.Close())
	}
	return &Node{s, dbg}, nil
}

// Run runs an edge and its listener until ctx ends, or one of them fails.
func (n *Node) Run(ctx context.Context) error {
	return n.Debug.Run(ctx, n.Server.Run, n.Ready, func() any { return n.Status() })
}
