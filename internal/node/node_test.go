package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"vestibule/internal/lab/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type sample struct {
	Base   `mapstructure:",squash"`
	Name   string        `mapstructure:"name"`
	On     bool          `mapstructure:"on"`
	N      int           `mapstructure:"n"`
	Wait   time.Duration `mapstructure:"wait"`
	List   []string      `mapstructure:"list"`
	Deeper struct {
		Name string `mapstructure:"name"`
	} `mapstructure:"deeper"`
}

func (s *sample) Validate() []error {
	errs := s.Base.Validate()
	if s.Name == "" {
		errs = append(errs, errors.New("name: must not be empty"))
	}
	return errs
}

func defaults() sample {
	return sample{Base: DefaultBase("sample"), Name: "default", On: true, N: 7, Wait: time.Second, List: []string{"x"}}
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	testkit.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestFlagsBeatEnvironmentBeatsFileBeatsDefaults(t *testing.T) {
	file := write(t, "name: file\nn: 8\nwait: 2s\nlist: [a, b]\ndeeper:\n  name: file\nlog:\n")
	t.Setenv("VESTIBULE_N", "9")
	t.Setenv("VESTIBULE_WAIT", "3s")
	t.Setenv("VESTIBULE_DEEPER_NAME", "env")
	got := defaults()
	var out strings.Builder
	testkit.Must(Load("sample", &got, []string{"--config", file, "--wait", "4s", "--list", "c,d"}, &out))(t)
	want := defaults()
	want.Name, want.N, want.Wait, want.List, want.Deeper.Name = "file", 9, 4*time.Second, []string{"c", "d"}, "env"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A list replaces the whole default, without changing the default itself.
func TestListsAreReplacedWhole(t *testing.T) {
	for name, c := range map[string]struct {
		yaml, env string
		want      []string
	}{
		"file":        {"list: [a]\n", "", []string{"a"}},
		"longer":      {"list: [a, b, c, d]\n", "", []string{"a", "b", "c", "d"}},
		"empty":       {"list: []\n", "", []string{}},
		"default":     {"n: 1\n", "", []string{"x", "y", "z"}},
		"environment": {"list: [a]\n", " b c, ,d,", []string{"b c", "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("VESTIBULE_LIST", c.env)
			}
			shared := []string{"x", "y", "z"}
			cfg := defaults()
			cfg.List = shared
			testkit.Must(Load("sample", &cfg, []string{"--config", write(t, c.yaml)}, io.Discard))(t)
			if !slices.Equal(cfg.List, c.want) || !slices.Equal(shared, []string{"x", "y", "z"}) {
				t.Errorf("the list is %q, want %q; the default is %q now", cfg.List, c.want, shared)
			}
		})
	}
}

func TestAllFaultsAreReportedAtOnceByKey(t *testing.T) {
	for name, c := range map[string]struct {
		yaml string
		want []string
	}{
		"types": {"name: {a: 1}\non: 3\nn: 1.5\nwait: 7\nlist: {a: b}\n", []string{
			"line 1: name: must be text, got map[a:1]",
			"line 2: on: must be true or false, got 3", "line 3: n: must be a whole number, got 1.5",
			"line 4: wait: must be a duration with its unit, such as 500ms or 5s, got 7",
			"line 5: list: must be a list of texts, got map[a:b]",
		}},
		"unknown": {"nam: x\ndeeper: {nme: x}\n", []string{
			`line 2: deeper.nme: unknown key, did you mean "deeper.name"?`,
			`line 1: nam: unknown key, did you mean "name"?`,
		}},
		"section": {"deeper: x\n", []string{"line 1: deeper: must be a section of keys, such as deeper.name"}},
		"rules": {
			"name: ''\ndata_dir: ''\nlog: {level: x, format: y}\nmetrics: {listen: x}\n",
			[]string{
				`line 3: log.level: must be debug, info, warn or error, got "x"`, `line 3: log.format: must be text or json, got "y"`,
				"line 2: data_dir: must not be empty", `line 4: metrics.listen: must be host:port, got "x"`,
				"line 1: name: must not be empty",
			},
		},
		"nothing":  {"", nil},
		"numerals": {"name: 42\nn: '12'\nlist: [a]\nlog:\n", nil},
		"texts": {
			"n: '1_0'\nwait: '7'\non: 'yes'\nlist: [a, 1]\n",
			[]string{
				"line 3: on: must be true or false, got yes", "line 1: n: must be a whole number, got 1_0",
				"line 2: wait: must be a duration with its unit, such as 500ms or 5s, got 7",
				"line 4: list: must be a list of texts, got 1 in it",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaults()
			_, err := Load("sample", &cfg, []string{"--config", write(t, c.yaml)}, io.Discard)
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	good, bad := write(t, "n: 1\n"), write(t, "n: x\n")
	for _, c := range []struct {
		args []string
		run  error
		want int
	}{
		{[]string{"--help"}, nil, ExitOK},
		{[]string{"--config", good, "--check-config"}, errors.New("must not run"), ExitOK},
		{[]string{"--config", bad, "--check-config"}, nil, ExitUsage},
		{[]string{"--config", bad}, nil, ExitUsage},
		{[]string{"--nonsense"}, nil, ExitUsage},
		{[]string{"stray"}, nil, ExitUsage},
		{[]string{"--config", good}, nil, ExitOK},
		{[]string{"--config", good}, errors.New("broken"), ExitError},
	} {
		cfg := defaults()
		got := Main("sample", &cfg, &cfg.Base, c.args, io.Discard, io.Discard,
			func(context.Context, io.Writer, *slog.Logger) error { return c.run })
		if got != c.want {
			t.Errorf("%v: exit %d, want %d", c.args, got, c.want)
		}
	}
}

func TestAJumpOfTheWallClockIsASleep(t *testing.T) {
	c := NewClock()
	jump := func(by time.Duration) { c.skew.Add(int64(-by)) }
	for _, step := range []struct {
		by   time.Duration
		want uint64
	}{
		{0, 0},
		{jumpLimit / 2, 0}, // a time daemon
		{-time.Hour, 0},    // set back: no lease is extended
		{jumpLimit + 100*time.Millisecond, 1},
		{0, 1},
		{8 * time.Hour, 2},
	} {
		jump(step.by)
		before := c.Now()
		if c.Jumps() != step.want {
			t.Errorf("after %v: %d jumps, want %d", step.by, c.Jumps(), step.want)
		}
		if c.Now() < before {
			t.Error("the monotonic clock went back")
		}
	}
}

func TestWhatWasAcquiredLastIsReleasedFirst(t *testing.T) {
	var c Closer
	var got []string
	for _, name := range []string{"server", "connection", "listener"} {
		c.Add(name, func() { got = append(got, name) })
	}
	c.Close(slog.New(slog.DiscardHandler))
	c.Close(slog.New(slog.DiscardHandler))
	if want := []string{"listener", "connection", "server"}; !slices.Equal(got, want) {
		t.Errorf("released %v, want %v", got, want)
	}
}

func TestTheDebugListenerAnswers(t *testing.T) {
	ready := Readiness{Reasons: []string{"no keys yet"}}
	d, err := NewDebug(&Base{Metrics: MetricsConfig{"127.0.0.1:0"}, Profiles: ProfilesConfig{"127.0.0.1:0"}}, "A <node>",
		nil, slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	d.Registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "of_the_node", Help: "h"}))
	ctx, cancel := context.WithCancel(t.Context())
	done, drained := make(chan error, 1), make(chan struct{})
	go func() {
		done <- d.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			<-drained
			return errors.New("ended")
		}, func() Readiness { return ready }, func() any { return map[string]int{"edges": 3} })
	}()
	client := &http.Client{}
	get := func(path string) (int, string) { t.Helper(); return fetch(t, client, d.URL()+path) }
	for _, c := range []struct {
		path, has string
		code      int
	}{
		{"/metrics", "of_the_node 0", 200},
		{"/metrics", "go_goroutines", 200},
		{"/healthz", `"alive": true`, 200},
		{"/readyz", "no keys yet", 503},
		{"/status", `"edges": 3`, 200},
		{"/debug/pprof/", "", 404},
		{"/debug/pprof/cmdline", "", 404},
		{"/", "A &lt;node&gt;", 200},
		{"/nothing", "", 404},
	} {
		if code, body := get(c.path); code != c.code || !strings.Contains(body, c.has) {
			t.Errorf("%s: %d %.80q, want %d with %q", c.path, code, body, c.code, c.has)
		}
	}
	profiles := "http://" + d.Own.All()[1].String()
	if r, err := client.Get(profiles + "/debug/pprof/"); err != nil || r.StatusCode != 200 ||
		r.Body.Close() != nil {
		t.Errorf("profiles: %v, %v", r, err)
	}
	if r, err := client.Get(profiles + "/metrics"); err != nil || r.StatusCode != 404 || r.Body.Close() != nil {
		t.Errorf("metrics at the listener of profiles: %v, %v", r, err)
	}
	// Isolation from the parent does not make a node unready.
	ready = Readiness{Ready: true, Isolated: true}
	code, body := get("/readyz")
	var r Readiness
	if err := json.Unmarshal([]byte(body), &r); err != nil || code != 200 || !r.Isolated {
		t.Errorf("isolated: %d %s, %v", code, body, err)
	}
	if _, err := NewDebug(&Base{Metrics: MetricsConfig{strings.TrimPrefix(d.URL(), "http://")}}, "",
		nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("two listeners at one address")
	}
	cancel()
	if code, body := get("/healthz"); code != 200 {
		t.Errorf("while it drains: %d %s", code, body)
	}
	client.CloseIdleConnections()
	close(drained)
	if err := <-done; err == nil || err.Error() != "ended" {
		t.Errorf("it ended with %v, not as the node did", err)
	}
}

func TestMetricsAreSound(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	testkit.Must(NewFleet(t.TempDir(), nil, slog.New(slog.DiscardHandler), reg, nil))(t)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Error(err, problems)
	}
}

// An operator's shell exports the variables of the client. A node starts there, and still refuses a mistyped key.
func TestVariablesOfTheClientAreNotThoseOfANode(t *testing.T) {
	cfg := defaults()
	faults := strayVariables(&cfg, []string{
		"VESTIBULE_SERVER=x", "VESTIBULE_TOKEN=x", "VESTIBULE_PROFILE=x",
		"VESTIBULE_TOKENS=x",
	})
	if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), "VESTIBULE_TOKENS: ") {
		t.Errorf("%v", faults)
	}
}

// fetch returns the status and the body of an answer.
func fetch(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	r := testkit.Must(client.Get(url))(t)
	defer r.Body.Close()
	body := testkit.Must(io.ReadAll(r.Body))(t)
	return r.StatusCode, string(body)
}
