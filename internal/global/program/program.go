// Package program is the program global, as a command of its own and as one of the command vestibule.
package program

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

// Main runs the global until a signal, and returns the exit code. args are the flags after the name of the program.
func Main(args []string, stdout, stderr io.Writer) int {
	cfg := global.DefaultConfig()
	return node.Main("global", &cfg, &cfg.Base, args, stdout, stderr,
		func(ctx context.Context, said io.Writer, log *slog.Logger) error { return serve(ctx, cfg, said, log) })
}

func serve(ctx context.Context, cfg global.Config, stdout io.Writer, log *slog.Logger) error {
	var closer node.Closer
	defer closer.Close(log)
	inbox := natsbus.NodeInbox(natsbus.RoleGlobal, wire.Root, cfg.Name)
	conn, server, err := embedded.Join(cfg.Name, inbox, cfg.DataDir, &cfg.NATS, &closer, log)
	if err != nil {
		return err
	}
	n, err := global.NewNode(cfg, wire.DefaultParams(), conn, nil, log)
	if err != nil {
		return err
	}
	people, addresses := fmt.Sprintf("global %s: metrics %s", cfg.Name, n.Debug.URL()), map[string]any{
		"tier": "global", "name": cfg.Name, "metrics": n.Debug.URL(), "nats": server.URL(),
	}
	if n.Control != nil {
		people += ", API " + n.Control.Info().URL
		addresses["control"] = n.Control.Info()
	}
	if err := node.Announce(stdout, people, addresses); err != nil {
		return err
	}
	// Edges drain before they say goodbye through this server.
	stopping := false
	ctx, stop := node.Outlive(ctx, 10*time.Second, func() (here, leaving int) {
		here = server.Others()
		if stopping = stopping || n.Leaving(); stopping {
			leaving = here // until nobody is connected any more
		}
		return here, leaving
	}, log)
	defer stop()
	return n.Run(ctx)
}
