package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Program returns where a program is that a test drives, and skips the test where it is not
// installed.
func Program(t testing.TB, name string) string {
	t.Helper()
	file, err := exec.LookPath(name)
	if err != nil {
		file, err = exec.LookPath("/usr/sbin/" + name) // on the path of root alone
	}
	if err != nil {
		t.Skipf("%s is not installed: make packages", name)
	}
	return file
}

var given sync.Map // addresses that FreeAddr returned

// FreeAddr returns an address at which nobody listens at the moment, another one each time. Its port is drawn
// below those that Linux gives to connections and to who listens at port 0 (from 32,768), so that nobody is given
// it meanwhile.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(20_000)))
		if err != nil {
			continue // somebody has it
		}
		defer l.Close()
		if _, before := given.LoadOrStore(l.Addr().String(), true); !before {
			return l.Addr().String()
		}
	}
	t.Fatal("no free port between 12,000 and 32,000")
	return ""
}

// Nginx writes a configuration of nginx into a folder of its own, with http in its section of
// that name, and returns how to run it: one worker, that ends with its master.
func Nginx(t testing.TB, dir, http string) (args []string) {
	t.Helper()
	user, temp := "", ""
	if os.Getuid() == 0 {
		user = "user root;" // the folder is ours alone
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
