package node

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Certificates are the certificates of a listener, each from two files that are reloaded when they change. If new files
// are invalid, the last valid certificate stays. A client gets the certificate for the name that it asks for, or the
// first one. Certificates is safe for concurrent use.
type Certificates struct {
	files []certificateFiles
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	checked time.Time
	all     []*tls.Certificate // by the index of files
	byName  atomic.Pointer[certificateNames]
}

type certificateFiles struct{ cert, key, stamp string }

// certificateNames are the certificates by the names in them, in lower case; names may begin with "*.". The certificate
// of "" is for all other names.
type certificateNames map[string][]*tls.Certificate

// recheck is the minimum time between checks of the files.
const recheck = 2 * time.Second

// NewCertificates loads certificates from PEM files: the key of certs[i] is in keys[i].
func NewCertificates(certs, keys []string, log *slog.Logger, now func() time.Time) (*Certificates, error) {
	if err := CheckPairs(certs, keys); err != nil {
		return nil, err
	}
	c := &Certificates{log: log, now: now, checked: now(), all: make([]*tls.Certificate, len(certs))}
	for i := range certs {
		c.files = append(c.files, certificateFiles{cert: certs[i], key: keys[i]})
		if err := c.load(i); err != nil {
			return nil, err
		}
	}
	c.sort()
	return c, nil
}

// CheckPairs checks that each certificate file has its key file.
func CheckPairs(certs, keys []string) error {
	if len(certs) == 0 || len(certs) != len(keys) {
		return errors.New("certificate files must be given, and as many key files, in the same order")
	}
	return nil
}

// StampOf identifies the versions of files.
func StampOf(files ...string) string {
	var stamp strings.Builder
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			stamp.WriteString(err.Error() + ";")
			continue
		}
		fmt.Fprintf(&stamp, "%s %d %d;", name, info.ModTime().UnixNano(), info.Size())
	}
	return stamp.String()
}

func (c *Certificates) load(i int) error {
	f := &c.files[i]
	f.stamp = StampOf(f.cert, f.key) // also of an invalid pair: it is tried again after the next change
	cert, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", f.cert, err)
	}
	c.all[i] = &cert
	return nil
}

// sort makes byName. The caller holds the lock.
func (c *Certificates) sort() {
	by := certificateNames{"": c.all[:1:1]}
	for _, cert := range c.all {
		names := cert.Leaf.DNSNames
		for _, ip := range cert.Leaf.IPAddresses {
			names = append(slices.Clip(names), ip.String())
		}
		for _, name := range names {
			name = strings.ToLower(name)
			by[name] = append(by[name], cert)
		}
	}
	c.byName.Store(&by)
}

// covering returns the certificates for a name.
func (n certificateNames) covering(name string) []*tls.Certificate {
	name = strings.ToLower(name)
	exact := n[name]
	_, domain, ok := strings.Cut(name, ".")
	if !ok {
		return exact
	}
	wild := n["*."+domain]
	if len(exact) == 0 {
		return wild
	}
	return append(slices.Clip(exact), wild...)
}

// served returns the certificates that a client may get that asks for a name, "" for none.
func (n certificateNames) served(name string) []*tls.Certificate {
	if name != "" {
		if all := n.covering(name); len(all) > 0 {
			return all
		}
	}
	return n[""]
}

// Covers reports whether a client that asked for serverName in its handshake, "" for no name, got a certificate for
// host, a name or an address in canonical form. Every certificate that it may have got must be for host.
func (c *Certificates) Covers(serverName, host string) bool {
	names := *c.byName.Load()
	of := names.covering(host)
	for _, served := range names.served(serverName) {
		if !slices.Contains(of, served) {
			return false
		}
	}
	return true
}

// suites are the suites of TLS 1.2 with forward secrecy and authenticated encryption; TLS 1.3 has no other ones.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// TLS returns a listener configuration with these certificates. least is the lowest version.
func (c *Certificates) TLS(least uint16) *tls.Config {
	return &tls.Config{
		MinVersion: least, CipherSuites: suites, GetCertificate: c.Get, NextProtos: []string{"h2", "http/1.1"},
		DynamicRecordSizingDisabled: true, // a short record is a system call
	}
}

// Get implements tls.Config.GetCertificate.
func (c *Certificates) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.reload()
	all := (*c.byName.Load()).served(hello.ServerName)
	for _, cert := range all {
		if len(all) == 1 || hello.SupportsCertificate(cert) == nil {
			return cert, nil
		}
	}
	return all[0], nil
}

// reload loads the files that have changed.
func (c *Certificates) reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Sub(c.checked) < recheck {
		return
	}
	c.checked = c.now()
	changed := false
	for i := range c.files {
		f := &c.files[i]
		if StampOf(f.cert, f.key) == f.stamp {
			continue
		}
		if err := c.load(i); err != nil {
			c.log.Error("new certificate refused, the last good one stays", slog.Any("error", err))
			continue
		}
		c.log.Info("certificate reloaded", slog.String("file", f.cert))
		changed = true
	}
	if changed {
		c.sort()
	}
}
