package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"vestibule/internal/node"
	"vestibule/internal/page/preview"
)

// previewPage shows an operator's page, or a style of the built-in one, as
// visitors will see it; or only says whether it can be used.
func previewPage(args []string, stdout, stderr io.Writer) error {
	file := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		file, args = args[0], args[1:]
	}
	f := flagSet("preview [FILE]", stderr)
	listen := f.String("listen", "127.0.0.1:8095", "host:port of the preview; port 0 chooses a free one")
	check := f.Bool("check", false, "say what is wrong with the file, and serve nothing")
	sources := f.String("sources", "", "waiting_page_sources of the room: origins that a page of your own may use")
	level := f.String("log-level", "warn", "debug, info, warn or error")
	faults, err := parse(f, args, stderr)
	if err != nil {
		return err
	}
	faults = append(faults, node.CheckAddr("listen", *listen)...)
	if err := refuse(f, append(faults, checkLevel(*level)...), stderr); err != nil {
		return err
	}
	_, doubts, err := preview.Load(file)
	if err != nil && (*check || errors.Is(err, os.ErrNotExist)) {
		return err
	}
	if *check {
		for _, d := range doubts {
			if _, err := fmt.Fprintln(stdout, d); err != nil {
				return err
			}
		}
		return nil
	}
	log := node.NewLogger(stderr, node.LogConfig{Level: *level, Format: "text"})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	url := "http://" + l.Addr().String() + "/"
	if err := node.Announce(stdout, "preview "+url, map[string]string{"tier": "preview", "url": url}); err != nil {
		return errors.Join(err, l.Close())
	}
	srv := &http.Server{Handler: preview.New(file, *sources, log), ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- srv.Close()
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("preview: %w", err)
	}
	return <-stopped
}
