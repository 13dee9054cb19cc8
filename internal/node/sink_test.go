package node

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/lab/testkit"
)

// lost returns the number of lines that were dropped.
func lost(t *testing.T) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	RegisterBuild(reg)
	return testkit.Metric(t, reg, "vestibule_log_lost_lines_total")
}

// failing is a disk that is full, or a pipe without a reader.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// stopped is a pipe whose reader has stopped.
type stopped struct{ until chan struct{} }

func (s stopped) Write(p []byte) (int, error) {
	<-s.until
	return len(p), nil
}

func TestSink(t *testing.T) {
	var got bytes.Buffer
	s := NewSink(&got)
	for range 3 {
		_, _ = io.WriteString(s, "a line\n")
	}
	if s.Close(); got.String() != strings.Repeat("a line\n", 3) {
		t.Errorf("%q", got.String())
	}
	before := lost(t)
	full := NewSink(failing{errors.New("no space left on device")})
	if n, err := io.WriteString(full, "one\ntwo\n"); n != 8 || err != nil {
		t.Error(n, err)
	}
	if full.Close(); lost(t)-before != 2 {
		t.Errorf("%v lines lost", lost(t)-before)
	}
}

// A reader that has stopped delays neither a line nor the end of the process for more than a second.
func TestSinkWithAStoppedReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, begun := lost(t), time.Now()
		until := make(chan struct{})
		s := NewSink(stopped{until})
		line := strings.Repeat("x", 1023) + "\n"
		for range 5000 {
			_, _ = io.WriteString(s, line)
		}
		if time.Now() != begun {
			t.Error("a write blocks")
		}
		if n := lost(t) - before; n < 5000-2*1024 || n >= 5000 {
			t.Errorf("%v lines lost", n)
		}
		if s.Close(); time.Since(begun) != time.Second {
			t.Errorf("closed after %v", time.Since(begun))
		}
		close(until)
	})
}

// The reader of a pipe has ended: a process goes on.
func TestSinkWithABrokenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	before := lost(t)
	r.Close()
	s := NewSink(w)
	_, _ = io.WriteString(s, "a line\n")
	if s.Close(); lost(t)-before != 1 {
		t.Errorf("%v lines lost", lost(t)-before)
	}
}
