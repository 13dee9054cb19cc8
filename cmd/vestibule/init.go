package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
	"vestibule/internal/global/members"
	"vestibule/internal/node/natsbus"
)

func newInitCmd() *cobra.Command {
	cfg, flags := newFleetConfig(), &clientFlags{}
	cmd := &cobra.Command{
		Use: "init", Short: "Initialize a new fleet, once",
		Long: `Declare that nobody was ever admitted in this fleet: its nodes cannot know, and admit nobody until then. It is refused once
any node has a ticket key, permits, sessions or a list of data centres, and while a data centre of data_centers does not
report. It uses the API or, with --nats-url, the NATS of global.`,
	}
	flags.orNATS(cmd, cfg, func(c *client, _ []string) error {
		return change(c, http.MethodPost, ofOurs("init"), nil, func(f api.Forgotten) string { return f.Done })
	}, func(cmd *cobra.Command, _ []string) error {
		return cfg.connect(cmd, func(_ context.Context, conn *natsbus.Conn) error {
			done, err := (&members.List{Docs: natsbus.NewDocuments(conn, 0)}).Init(cmd.Context())
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
			}
			return err
		})
	})
	flags.addReason(cmd.Flags())
	return cmd
}
