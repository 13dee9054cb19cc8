// Package program is the program regional, as a command of its own and as one of the command vestibule.
package program

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
	"vestibule/internal/regional"
)

// Main runs the regional until a signal, and returns the exit code. args are the flags after the name of the program.
func Main(args []string, stdout, stderr io.Writer) int {
	cfg := regional.DefaultConfig()
	return node.Main("regional", &cfg, &cfg.Base, args, stdout, stderr,
		func(ctx context.Context, said io.Writer, log *slog.Logger) error { return serve(ctx, cfg, said, log) })
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
