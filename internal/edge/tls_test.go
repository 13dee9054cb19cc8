package edge

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"vestibule/internal/lab/testkit"
)

// openCertified opens an edge with certificates, each for some names.
func openCertified(t *testing.T, site string, change func(*stage), names ...[]string) *stage {
	return openAt(t, site, func(st *stage) {
		st.withTLS()
		st.cfg.TLS.Cert, st.cfg.TLS.Key = nil, nil
		for i, of := range names {
			cert, key := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
			writePair(t, cert, key, int64(i+1), of...)
			st.cfg.TLS.Cert, st.cfg.TLS.Key = append(st.cfg.TLS.Cert, cert), append(st.cfg.TLS.Key, key)
		}
		change(st)
	})
}

// serves returns the status of an answer for a host, over a connection with a handshake for a name.
func (d *door) serves(name, host string, http2 bool) (status int, serial int64, header http.Header) {
	d.Helper()
	tr := d.visitor().Transport.(*http.Transport)
	tr.TLSClientConfig = trusting(name)
	tr.ForceAttemptHTTP2 = http2
	defer tr.CloseIdleConnections()
	r := testkit.Must(http.NewRequest(http.MethodGet, "https://"+host+"/about", nil))(d)
	res := testkit.Must(tr.RoundTrip(r))(d)
	defer res.Body.Close()
	testkit.Must(io.Copy(io.Discard, res.Body))(d)
	if (res.ProtoMajor == 2) != http2 {
		d.Errorf("%s", res.Proto)
	}
	return res.StatusCode, res.TLS.PeerCertificates[0].SerialNumber.Int64(), res.Header
}

// A client gets the certificate for the name that it asks for. A host that this certificate does not cover is 421, so
// that browsers, which send requests for all names of a certificate over one connection, open another.
func TestCertificatesByName(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := openCertified(t, "http://"+newRawSite(t, func(int, *http.Request) string { return goodAnswer }),
			func(st *stage) { st.cfg.Reader = front }, []string{"sale.example"}, []string{"shop.example", "*.test"})
		for _, c := range []struct {
			name, host string
			serial     int64
			status     int
		}{
			{"sale.example", "sale.example", 1, 200},
			{"SALE.example", "sale.example:443", 1, 200},
			{"shop.example", "shop.example", 2, 200},
			{"other.test", "shop.example", 2, 200},
			{"sale.example", "shop.example", 1, 421},
			{"shop.example", "sale.example", 2, 421},
			{"unknown.example", "sale.example", 1, 200},
			{"unknown.example", "shop.example", 1, 421},
			{"sub.other.test", "shop.example", 1, 421},
			{"127.0.0.1", "shop.example", 1, 421}, // no name is sent
			{"127.0.0.1", "sale.example", 1, 200},
		} {
			for _, http2 := range []bool{false, true} {
				status, serial, _ := st.door.serves(c.name, c.host, http2)
				if status != c.status || serial != c.serial {
					t.Errorf("%s over %s, HTTP/2 %v: %d with certificate %d", c.host, c.name, http2, status, serial)
				}
			}
		}
	})
}

func TestTLSVersionsAndSuites(t *testing.T) {
	st := openCertified(t, "http://127.0.0.1:1", func(*stage) {}, []string{"sale.example"})
	strict := openCertified(t, "http://127.0.0.1:1", func(st *stage) { st.cfg.TLS.Least = "1.3" },
		[]string{"sale.example"})
	spoken := func(st *stage, version, suite uint16) error {
		old := trusting("sale.example")
		old.MinVersion, old.MaxVersion, old.CipherSuites = tls.VersionTLS10, version, []uint16{suite}
		c, err := tls.Dial("tcp", st.door.addr(0), old)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	const aead = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
	for _, cbc := range []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256,
	} {
		if spoken(st, tls.VersionTLS12, cbc) == nil {
			t.Errorf("%s is spoken", tls.CipherSuiteName(cbc))
		}
	}
	for _, c := range []struct {
		st      *stage
		version uint16
		spoken  bool
	}{
		{st, tls.VersionTLS11, false},
		{st, tls.VersionTLS12, true},
		{st, tls.VersionTLS13, true},
		{strict, tls.VersionTLS12, false},
		{strict, tls.VersionTLS13, true},
	} {
		if err := spoken(c.st, c.version, aead); (err == nil) != c.spoken {
			t.Errorf("min_version %q, %s: %v", c.st.cfg.TLS.Least, tls.VersionName(c.version), err)
		}
	}
}

// Strict-Transport-Security is in the answers for the hosts that have a policy, in place of the site's, and in no
// other.
func TestHSTSByHost(t *testing.T) {
	const policy, theirs = "max-age=31536000; includeSubDomains", "max-age=1"
	eachFront(t, func(t *testing.T, front string) {
		answer := strings.Replace(goodAnswer, "\r\n", "\r\nStrict-Transport-Security: "+theirs+"\r\n", 1)
		st := openCertified(t, "http://"+newRawSite(t, func(int, *http.Request) string { return answer }), func(st *stage) {
			st.cfg.Reader, st.cfg.TLS.HSTS = front, []string{"Sale.example=" + policy}
		}, []string{"sale.example", "shop.example"})
		see := func(host, want string) {
			t.Helper()
			for _, http2 := range []bool{false, true} {
				if _, _, h := st.door.serves(host, host,
					http2); fmt.Sprint(h["Strict-Transport-Security"]) != fmt.Sprint([]string{want}) {
					t.Errorf("%s, HTTP/2 %v: %q", host, http2, h["Strict-Transport-Security"])
				}
			}
		}
		see("sale.example", policy)
		see("shop.example", theirs)
		st.up.queue(sale, 10, 1)
		see("sale.example", policy) // of the waiting page
	})
	for _, bad := range []string{
		"sale.example", "sale.example=", "sale.example=max-age=x", "=max-age=1", "a b=max-age=1",
		"sale.example=max-age=1; max-age=2", "sale.example=max-age=1\r\nX: y",
	} {
		if _, err := (&TLSConfig{HSTS: []string{bad}}).policies(); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := (&TLSConfig{HSTS: []string{"a.example=max-age=1", "A.example=max-age=1"}}).policies(); err == nil {
		t.Error("a host is taken twice")
	}
}

// A visitor that comes back resumes its TLS session at any edge with the fleet's keys, and at no other.
func TestASessionIsResumedAtAnyEdge(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, front string) {
		ring := keyring(t)
		edge := func(change func(*stage)) *stage {
			return open(t, func(st *stage) {
				st.cfg.Reader, st.keys.ring = front, ring
				st.withTLS()
				change(st)
			})
		}
		one, two, other := edge(func(*stage) {}), edge(func(*stage) {}), edge(func(st *stage) { st.keys.ring = keyring(t) })
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			cfg := trusting("sale.example")
			cfg.MaxVersion, cfg.ClientSessionCache = version, tls.NewLRUClientSessionCache(1)
			resumes := func(st *stage) bool {
				c := testkit.Must(tls.Dial("tcp", st.door.addr(0), cfg))(t)
				defer c.Close()
				testkit.Must(io.WriteString(c, request("GET /about HTTP/1.1", "shop.example", "Connection: close")))(t)
				// TLS 1.3 sends its tickets before
				if body, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(body), "the site") {
					t.Errorf("%q, %v", body, err)
				}
				return c.ConnectionState().DidResume
			}
			if resumes(one) {
				t.Error("without a session")
			}
			eventually(t, "another edge has the keys", func() bool {
				resumes(one)
				return resumes(two)
			})
			for n, st := range []*stage{one, two, one} {
				if !resumes(st) {
					t.Errorf("%s: return %d is no resumption", tls.VersionName(version), n)
				}
			}
			if resumes(other) {
				t.Error("an edge of another fleet has the keys")
			}
		}
	})
}
