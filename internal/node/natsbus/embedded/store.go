package embedded

import (
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// storeEvery is the interval of looks at the store.
	storeEvery = time.Second

	// spaceNeeded is the space, in bytes, with which a store that was full starts again.
	spaceNeeded = 16 << 20
)

// KeepStore starts JetStream of a running server again whenever its disk was full and has space: nats-server refuses
// all writes of a stream after one that failed. stop ends that, and returns once it has ended.
func KeepStore(s *server.Server, dir, domain string) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(storeEvery)
		defer tick.Stop()
		for full := false; ; {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			switch down, refuses := state(s); {
			case !down && !refuses:
				full = false
				continue
			case !hasSpace(dir):
				full = true
				continue
			case !full && !refuses:
				continue // it ends for another reason
			}
			s.Noticef("the disk of JetStream has space again: starting it anew")
			err := s.ShutdownJetStream() // nothing if it shut itself down
			if err == nil {
				err = s.EnableJetStream(&server.JetStreamConfig{StoreDir: dir, Domain: domain})
			}
			if err != nil {
				s.Errorf("JetStream is not started yet: %v", err)
			}
		}
	}()
	return sync.OnceFunc(func() { close(end); <-done })
}

// state reports whether JetStream is down, as after a failed write in a cluster, and whether a stream refuses writes
// because of a full disk.
func state(s *server.Server) (down, refuses bool) {
	if !s.JetStreamEnabled() {
		return true, false
	}
	for _, e := range s.Healthz(&server.HealthzOptions{Details: true}).Errors {
		refuses = refuses || strings.Contains(e.Error, "no space left")
	}
	return false, refuses
}

// hasSpace reports whether a folder takes spaceNeeded bytes.
func hasSpace(dir string) bool {
	f, err := os.CreateTemp(dir, ".space-*")
	if err != nil {
		return false
	}
	block := make([]byte, 1<<20)
	for n := 0; n < spaceNeeded && err == nil; n += len(block) {
		_, err = f.Write(block)
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name())) == nil
}
