// Package program is the program edge, as a command of its own and as one of the command vestibule.
package program

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"vestibule/internal/core/wire"
	"vestibule/internal/edge"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Main runs the edge until a signal, and returns the exit code. args are the flags after the name of the program.
func Main(args []string, stdout, stderr io.Writer) int {
	cfg := edge.DefaultConfig()
	return node.Main("edge", &cfg, &cfg.Base, args, stdout, stderr,
		func(ctx context.Context, said io.Writer, log *slog.Logger) error { return serve(ctx, cfg, said, log) })
}

func serve(ctx context.Context, cfg edge.Config, stdout io.Writer, log *slog.Logger) error {
	sockets, err := node.PassedSockets()
	if err != nil {
		return err
	}
	defer sockets.Close() // the edge has reported the sockets that it did not take
	var closer node.Closer
	defer closer.Close(log)
	inbox := natsbus.NodeInbox(natsbus.RoleEdge, cfg.DataCenter, cfg.Name)
	opts := cfg.NATS.Options(cfg.DataCenter+"-"+cfg.Name, inbox, log)
	opts.Stream = natsbus.DocumentsStream
	conn, err := natsbus.Connect(opts)
	if err != nil {
		return err
	}
	closer.Add("connection", conn.Close)
	n, err := edge.NewNode(cfg, wire.DefaultParams(), conn, sockets, nil, log)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("edge %s of %s: visitors %s, metrics %s", cfg.Name, cfg.DataCenter, n.URL(), n.Debug.URL())
	err = node.Announce(stdout, line, map[string]string{
		"tier": "edge", "dc": cfg.DataCenter, "name": cfg.Name,
		"url": n.URL(), "front": n.FrontURL(), "metrics": n.Debug.URL(),
	})
	if err != nil {
		return err
	}
	return n.Run(ctx)
}
