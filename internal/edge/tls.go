package edge

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// certificate is a certificate from files, read again when they change. A
// broken new one is refused; the last good one stays.
type certificate struct {
	cfg TLSConfig
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	cert    *tls.Certificate
	stamp   string
	checked time.Time
}

// recheck is how often the files are looked at, at most.
const recheck = 2 * time.Second

func newCertificate(cfg TLSConfig, log *slog.Logger, now func() time.Time) (*certificate, error) {
	c := &certificate{cfg: cfg, log: log, now: now}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// stampOf tells versions of the files apart.
func (c *certificate) stampOf() string {
	var stamp strings.Builder
	for _, f := range []string{c.cfg.Cert, c.cfg.Key} {
		if info, err := os.Stat(f); err == nil {
			fmt.Fprintf(&stamp, "%d %d;", info.ModTime().UnixNano(), info.Size())
		}
	}
	return stamp.String()
}

func (c *certificate) load() error {
	stamp := c.stampOf()
	cert, err := tls.LoadX509KeyPair(c.cfg.Cert, c.cfg.Key)
	c.stamp, c.checked = stamp, c.now() // also of a broken pair: it is tried again when it changes
	if err != nil {
		return fmt.Errorf("tls.cert, tls.key: %w", err)
	}
	c.cert = &cert
	return nil
}

// get is tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Sub(c.checked) >= recheck {
		c.checked = c.now()
		if c.stampOf() != c.stamp {
			if err := c.load(); err != nil {
				c.log.Error("new certificate refused, the last good one stays", slog.Any("error", err))
			} else {
				c.log.Info("certificate read again", slog.String("file", c.cfg.Cert))
			}
		}
	}
	return c.cert, nil
}
