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

// Certificate is a certificate from files, read again when they change. A
// broken new one is refused; the last good one stays. It is safe for concurrent use.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	cert    *tls.Certificate
	stamp   string
	checked time.Time
}

// recheck is how often the files are looked at, at most.
const recheck = 2 * time.Second

// NewCertificate returns the certificate of two PEM files.
func NewCertificate(cert, key string, log *slog.Logger, now func() time.Time) (*Certificate, error) {
	c := &Certificate{certFile: cert, keyFile: key, log: log, now: now}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// stampOf tells versions of the files apart.
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
	c.stamp, c.checked = stamp, c.now() // also of a broken pair: it is tried again when it changes
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	c.cert = &cert
	return nil
}

// TLS returns the configuration of a listener with this certificate.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.Get, NextProtos: []string{"h2", "http/1.1"}}
}

// Get is tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Sub(c.checked) >= recheck {
		c.checked = c.now()
		if c.stampOf() != c.stamp {
			if err := c.load(); err != nil {
				c.log.Error("new certificate refused, the last good one stays", slog.Any("error", err))
			} else {
				c.log.Info("certificate read again", slog.String("file", c.certFile))
			}
		}
	}
	return c.cert, nil
}
