package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/node"
	"vestibule/internal/page/preview"
)

func newPreviewCmd() *cobra.Command {
	listen, check, sources, level := "", false, "", (*string)(nil)
	cmd := &cobra.Command{
		Use: "preview [FILE]", Short: "Show a waiting page in every state and language, or check it",
		Long: "Show a waiting page of your own, or a style of the built-in one, as visitors will see it; or only check it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuse(append(node.CheckAddr("listen", listen), checkLevel(*level)...)); err != nil {
				return err
			}
			file := strings.Join(args, "")
			_, doubts, err := preview.Load(file)
			if err != nil && (check || errors.Is(err, os.ErrNotExist)) {
				return err
			}
			if !check {
				return servePreview(cmd, listen, file, sources, *level)
			}
			for _, d := range doubts {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), d); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:8095", "host:port of the preview; port 0 chooses a free one")
	f.BoolVar(&check, "check", false, "print the faults of the file, and serve nothing")
	f.StringVar(&sources, "sources", "", "waiting_page_sources of the room")
	level = logLevel(cmd, "warn")
	return cmd
}

// servePreview serves a page until the context ends.
func servePreview(cmd *cobra.Command, listen, file, sources, level string) error {
	log := node.NewLogger(cmd.ErrOrStderr(), node.LogConfig{Level: level, Format: "text"})
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	url := "http://" + l.Addr().String() + "/"
	info := map[string]string{"tier": "preview", "url": url}
	if err := node.Announce(cmd.OutOrStdout(), "preview "+url, info); err != nil {
		return errors.Join(err, l.Close())
	}
	srv := &http.Server{
		Handler: preview.New(file, sources, log), ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	go func() {
		<-cmd.Context().Done()
		stopped <- srv.Close()
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("preview: %w", err)
	}
	return <-stopped
}
