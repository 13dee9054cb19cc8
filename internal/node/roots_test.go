package node

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"
)

// A machine without certificates, like the image, trusts the compiled-in ones.
func TestRootsOfAMachineWithoutAny(t *testing.T) {
	const inside = "VESTIBULE_TEST_ROOTS"
	if os.Getenv(inside) == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestRootsOfAMachineWithoutAny$")
		c.Env = append(os.Environ(), inside+"=1", "SSL_CERT_FILE=/none", "SSL_CERT_DIR=/none")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		t.Fatal(err)
	}
	if pool.Equal(x509.NewCertPool()) {
		t.Error("nobody is trusted")
	}
}
