package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/notify"
)

func newNotifyCmd() *cobra.Command {
	cfg := notify.DefaultConfig()
	return configured(&cobra.Command{
		Use: "notify", Short: "Tell visitors of rooms with web_push that their turn comes; any number may run",
	}, &cfg, func(cmd *cobra.Command, _ []string) error {
		log := node.NewLogger(cmd.ErrOrStderr(), cfg.Log)
		conn, err := natsbus.Connect(cfg.NATS.Options(cfg.Name, natsbus.NodeInbox(natsbus.RoleNotifier, wire.Root, cfg.Name),
			log))
		if err != nil {
			return err
		}
		defer conn.Close()
		n, err := notify.NewNode(cfg, conn, nil, log)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("notifier %s: metrics %s", cfg.Name, n.Debug.URL())
		if err := node.Announce(cmd.OutOrStdout(), line, map[string]string{
			"tier": "notifier", "name": cfg.Name, "metrics": n.Debug.URL(),
		}); err != nil {
			return err
		}
		return n.Run(cmd.Context())
	})
}
