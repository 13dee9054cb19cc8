package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Program returns the path of an external program, and fails the test if it is not installed.
func Program(t testing.TB, name string) string {
	t.Helper()
	file, err := exec.LookPath(name)
	if err != nil {
		file, err = exec.LookPath("/usr/sbin/" + name) // only on root's PATH
	}
	if err != nil {
		file, err = exec.LookPath(filepath.Join(root, ".tools", name)) // built by make packages
	}
	if err != nil {
		t.Fatalf("%s is not installed: run make packages as root", name)
	}
	return file
}

var given sync.Map // addresses returned by FreeAddr

// FreeAddr returns an unused address, a different one each time. Its port is below Linux's ephemeral ports (from
// 32,768), so that the system does not assign it meanwhile.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(20_000)))
		if err != nil {
			continue // in use
		}
		defer l.Close()
		if _, before := given.LoadOrStore(l.Addr().String(), true); !before {
			return l.Addr().String()
		}
	}
	t.Fatal("no free port between 12,000 and 32,000")
	return ""
}

// Nginx writes an nginx configuration into a folder of its own, with http as the content of its http section, and
// returns the arguments to run it: one worker, which ends with its master.
func Nginx(t testing.TB, dir, http string) (args []string) {
	t.Helper()
	user, temp := "", ""
	if os.Getuid() == 0 {
		user = "user root;" // only we can read the folder
	}
	for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += name + "_temp_path " + filepath.Join(dir, name) + "; "
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(`daemon off; worker_processes 1; `+user+` pid `+dir+`/pid; error_log stderr crit;
events { worker_connections 4096; }
http {
	`+temp+` access_log off; keepalive_requests 1000000000;
	`+http+`
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"-p", dir, "-e", "stderr", "-c", conf}
}

// Certificate returns a certificate that it signs itself, for some names, and its key, in PEM.
func Certificate(serial int64, end time.Time, names ...string) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return nil, nil, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
	}
	cert, err := x509.CreateCertificate(crand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	return certPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), err
}
