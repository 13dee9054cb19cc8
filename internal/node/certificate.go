package node

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// Certificate is a certificate from files that are reloaded when they change. If the new files are invalid, the
// last valid certificate stays. It is safe for concurrent use.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	cert    *tls.Certificate
	stamp   string
	checked time.Time
}

// recheck is the minimum time between checks of the files.
const recheck = 2 * time.Second

// NewCertificate loads the certificate of two PEM files.
func NewCertificate(cert, key string, log *slog.Logger, now func() time.Time) (*Certificate, error) {
	c := &Certificate{certFile: cert, keyFile: key, log: log, now: now}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// stampOf identifies versions of the files.
func (c *Certificate) stampOf() string {
	var stamp strings.Builder
	for _, f := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(f); err == nil {
			fmt.Fprintf(&stamp, "%d %d;", info.ModTime().UnixNano(), info.Size())
		}
	}
	return stamp.String()
}

func (c *Certificate) load() error {
	stamp := c.stampOf()
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	c.stamp, c.checked = stamp, c.now() // also of an invalid pair: it is tried again after the next change
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	c.cert = &cert
	return nil
}

// TLS returns a listener configuration with this certificate.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.Get, NextProtos: []string{"h2", "http/1.1"}}
}

// Get implements tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Sub(c.checked) >= recheck {
		c.checked = c.now()
		if c.stampOf() != c.stamp {
			if err := c.load(); err != nil {
				c.log.Error("new certificate refused, the last good one stays", slog.Any("error", err))
			} else {
				c.log.Info("certificate reloaded", slog.String("file", c.certFile))
			}
		}
	}
	return c.cert, nil
}
