package node

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// CertificateEnds tells when the certificates in files end. The files are read at every scrape, since they are replaced
// while the process runs. It is safe for concurrent use.
type CertificateEnds struct {
	ends  *prometheus.Desc
	files map[string]string // by the key of the configuration

	first atomic.Int64
}

// certificatesEvery is the interval at which the first end is read again.
const certificatesEvery = time.Minute

// RegisterCertificates registers the metric of certificate files, by the key of the configuration; "" is no file.
func RegisterCertificates(reg prometheus.Registerer, files map[string]string) *CertificateEnds {
	c := &CertificateEnds{
		ends: prometheus.NewDesc("vestibule_certificate_expiry_timestamp_seconds",
			"When the first certificate in the file of this key ends, in Unix seconds; absent if the file has none.",
			[]string{"key"}, nil),
		files: files,
	}
	reg.MustRegister(c)
	c.readFirst()
	return c
}

// Run keeps [CertificateEnds.First] current until ctx ends. Reports, which ask for it, do not wait for a disk.
func (c *CertificateEnds) Run(ctx context.Context) {
	if c != nil {
		Every(ctx, certificatesEvery, c.readFirst)
	}
}

// First returns when the first certificate in all files ends, as of the last minute, in Unix seconds; 0 for none.
func (c *CertificateEnds) First() int64 {
	if c == nil {
		return 0
	}
	return c.first.Load()
}

func (c *CertificateEnds) readFirst() {
	first := int64(0)
	for _, file := range c.files {
		if end, ok := firstEnd(file); ok && (first == 0 || end.Unix() < first) {
			first = end.Unix()
		}
	}
	c.first.Store(first)
}

// Describe implements [prometheus.Collector].
func (c *CertificateEnds) Describe(ch chan<- *prometheus.Desc) { ch <- c.ends }

// Collect implements [prometheus.Collector].
func (c *CertificateEnds) Collect(ch chan<- prometheus.Metric) {
	for key, file := range c.files {
		if end, ok := firstEnd(file); ok {
			ch <- prometheus.MustNewConstMetric(c.ends, prometheus.GaugeValue, float64(end.Unix()), key)
		}
	}
}

// firstEnd returns when the first of the certificates in a PEM file ends. "" is no file.
func firstEnd(file string) (end time.Time, ok bool) {
	if file == "" {
		return end, false
	}
	rest, err := os.ReadFile(file)
	if err != nil {
		return end, false // the configuration and the connection report it
	}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return end, ok
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if block.Type == "CERTIFICATE" && err == nil && (!ok || cert.NotAfter.Before(end)) {
			end, ok = cert.NotAfter, true
		}
	}
}
