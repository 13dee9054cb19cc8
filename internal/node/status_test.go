package node

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
)

// Bond is exported, like structs that shells embed.
type Bond struct {
	LeaseEnd fleettime.Mono `json:"-"`
	SyncAge  time.Duration  `json:"sync_age_seconds"`
}

// TestStatusHasUnitsAndNames: what /status tells can be read without the program's text.
func TestStatusHasUnitsAndNames(t *testing.T) {
	d, err := NewDebug(&Base{Metrics: MetricsConfig{"127.0.0.1:0"}}, "test", nil, slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	status := struct {
		Bond
		hidden   int
		Time     fleettime.Time   `json:"time"`
		Until    fleettime.Time   `json:"until"`
		Standing wire.Standing    `json:"standing"`
		Term     wire.Term        `json:"term"`
		Instance uint64           `json:"instance"`
		Rooms    map[string]*Bond `json:"rooms"`
		Waits    []Bond           `json:"waits"`
	}{
		Bond: Bond{LeaseEnd: 5, SyncAge: 1500 * time.Millisecond}, Time: 1_795_380_670_718, Standing: wire.Draining,
		Term:     wire.Term{N: 7, Nonce: 1 << 60},
		Instance: 1<<53 + 1, Rooms: map[string]*Bond{"sale": {SyncAge: time.Second}, "b": nil},
	}
	p := pages{
		gatherer: d.gatherer, reg: d.Registry, ready: func() Readiness { return Readiness{} },
		status: func() any { return status }, log: d.log,
	}
	h := p.handler()
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		body, err := io.ReadAll(w.Result().Body)
		testkit.NoError(t, err)
		return w.Code, string(body)
	}
	code, got := ask("/status")
	want := `{
  "sync_age_seconds": 1.5,
  "time": "2026-11-22T20:51:10.718Z",
  "until": null,
  "standing": "draining",
  "term": {
    "number": 7,
    "nonce": "1152921504606846976"
  },
  "instance": "9007199254740993",
  "rooms": {
    "b": null,
    "sale": {
      "sync_age_seconds": 1
    }
  },
  "waits": []
}
`
	if code != http.StatusOK || got != want {
		t.Errorf("%d %s", code, got)
	}
}
