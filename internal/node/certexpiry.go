package node

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certificateEnds reports when the certificates in files end. The files are read at every scrape, since they are replaced
// while the process runs.
type certificateEnds struct {
	ends  *prometheus.Desc
	files map[string]string // by the key of the configuration
}

// RegisterCertificates registers the metric of certificate files, by the key of the configuration; "" is no file.
func RegisterCertificates(reg prometheus.Registerer, files map[string]string) {
	reg.MustRegister(&certificateEnds{
		prometheus.NewDesc("vestibule_certificate_expiry_timestamp_seconds", "When the first certificate in the file of this key ends, in Unix seconds; absent if the file has none.", []string{"key"}, nil),
		files,
	})
}

// Describe implements [prometheus.Collector].
func (c *certificateEnds) Describe(ch chan<- *prometheus.Desc) { ch <- c.ends }

// Collect implements [prometheus.Collector].
func (c *certificateEnds) Collect(ch chan<- prometheus.Metric) {
	for key, file := range c.files {
		if file == "" {
			continue
		}
		if end, ok := firstEnd(file); ok {
			ch <- prometheus.MustNewConstMetric(c.ends, prometheus.GaugeValue, float64(end.Unix()), key)
		}
	}
}

// firstEnd returns when the first of the certificates in a PEM file ends.
func firstEnd(file string) (end time.Time, ok bool) {
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
