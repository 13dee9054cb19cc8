package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"vestibule/internal/allinone"
	"vestibule/internal/node"
)

// origin runs the demo's site alone, for edges that run as processes of their
// own.
func origin(args []string, stdout, stderr io.Writer) (err error) {
	o := allinone.OriginOptions{}
	f := flagSet("origin", stderr)
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8090", "host:port of the site; port 0 chooses a free one")
	f.DurationVar(&o.Session, "session-duration", time.Minute, "somebody is in until so long after the last request; the room's session_duration")
	f.StringVar(&o.Header, "visitor-header", "", "request header that tells visitors apart, instead of the site's own cookie")
	journal := f.String("journal", "", "file to which every visit is appended as a line of JSON")
	level := f.String("log-level", "warn", "debug, info, warn or error")
	faults, err := parse(f, args, stderr)
	if err != nil {
		return err
	}
	faults = append(faults, node.CheckAddr("listen", o.Listen)...)
	if o.Session <= 0 {
		faults = append(faults, fmt.Errorf("session-duration: must be above zero, got %v", o.Session))
	}
	faults = append(faults, checkLevel(*level)...)
	if err := refuse(f, faults, stderr); err != nil {
		return err
	}
	o.Log = node.NewLogger(stderr, node.LogConfig{Level: *level, Format: "text"})
	if *journal != "" {
		file, err := os.OpenFile(*journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		w := bufio.NewWriter(file)
		defer func() { err = errors.Join(err, w.Flush(), file.Close()) }()
		o.Journal = w
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	site, err := allinone.NewOrigin(o)
	if err != nil {
		return err
	}
	err = node.Announce(stdout, "site "+site.URL()+", its count "+site.URL()+"/stats", map[string]string{"tier": "origin", "url": site.URL()})
	if err != nil {
		return err
	}
	return site.Run(ctx)
}
