package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/allinone"
	"vestibule/internal/node"
)

func newOriginCmd() *cobra.Command {
	o := &allinone.OriginOptions{}
	journal, level := "", (*string)(nil)
	cmd := &cobra.Command{
		Use: "origin", Short: "Run a site that counts its visitors, to put behind edges",
		RunE: func(cmd *cobra.Command, _ []string) error {
			faults := node.CheckAddr("listen", o.Listen)
			if o.Session <= 0 {
				faults = append(faults, fmt.Errorf("session-duration: must be above zero, got %v", o.Session))
			}
			if err := refuse(append(faults, checkLevel(*level)...)); err != nil {
				return err
			}
			o.Log = node.NewLogger(cmd.ErrOrStderr(), node.LogConfig{Level: *level, Format: "text"})
			return origin(cmd, o, journal)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8090", "host:port of the site; port 0 chooses a free one")
	f.DurationVar(&o.Session, "session-duration", time.Minute,
		"the room's session_duration")
	f.StringVar(&o.Header, "visitor-header", "",
		"request header that identifies visitors, instead of the site's own cookie")
	f.StringVar(&journal, "journal", "", "file to which every visit is appended as a line of JSON")
	level = logLevel(cmd, "warn")
	return cmd
}

// origin runs the demo's site alone, for edges in processes of their own.
func origin(cmd *cobra.Command, o *allinone.OriginOptions, journal string) (err error) {
	if journal != "" {
		file, err := os.OpenFile(journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		w := bufio.NewWriter(file)
		defer func() { err = errors.Join(err, w.Flush(), file.Close()) }()
		o.Journal = w
	}
	site, err := allinone.NewOrigin(*o)
	if err != nil {
		return err
	}
	err = node.Announce(cmd.OutOrStdout(), "site "+site.URL()+", its count "+site.URL()+"/stats",
		map[string]string{"tier": "origin", "url": site.URL()})
	if err != nil {
		return err
	}
	return site.Run(cmd.Context())
}
