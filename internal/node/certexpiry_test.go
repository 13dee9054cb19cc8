package node

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vestibule/internal/lab/testkit"
)

// TestCertificatesSayWhenTheyEnd: the earliest end in a file counts, as of the scrape; files without a certificate have
// no series.
func TestCertificatesSayWhenTheyEnd(t *testing.T) { synctest.Test(t, testCertificatesSayWhenTheyEnd) }

func testCertificatesSayWhenTheyEnd(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cert.pem")
	ends := func(at ...int64) {
		t.Helper()
		var out []byte
		for _, end := range at {
			cert, _, err := testkit.Certificate(1, time.Unix(end, 0))
			testkit.NoError(t, err)
			out = append(out, cert...)
		}
		if err := os.WriteFile(file, out, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewRegistry()
	all := RegisterCertificates(reg, map[string]string{
		"nats.cert": file, "nats.ca": "",
		"tls.cert": filepath.Join(dir, "missing"),
	})
	go all.Run(t.Context())
	const name = "vestibule_certificate_expiry_timestamp_seconds"
	for _, want := range [][]int64{{1900000000}, {1900000000, 1800000000}} { // the second replaces the first
		ends(want...)
		got, err := reg.Gather()
		if n := testutil.CollectAndCount(reg, name); err != nil || n != 1 {
			t.Fatalf("%d series, %v", n, err)
		}
		if v := got[0].GetMetric()[0].GetGauge().GetValue(); v != float64(want[len(want)-1]) {
			t.Errorf("%v, want %v", v, want)
		}
		time.Sleep(certificatesEvery)
		synctest.Wait()
		if n := all.First(); n != want[len(want)-1] {
			t.Errorf("the first of all ends at %d, want %v", n, want)
		}
	}
}
