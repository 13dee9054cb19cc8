// Package deploy holds the files for running Vestibule on Kubernetes and under systemd.
package deploy

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"vestibule/internal/edge"
	"vestibule/internal/global"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsconf"
	"vestibule/internal/notify"
	"vestibule/internal/regional"
)

// kustomization is the part of a kustomization that these tests use.
type kustomization struct {
	Resources          []string `yaml:"resources"`
	ConfigMapGenerator []struct {
		Name     string
		Files    []string
		Literals []string
	} `yaml:"configMapGenerator"`
}

// configs collects the ConfigMaps of an overlay: files by name of the map, and variables.
func configs(t *testing.T, dir string, files map[string]string, env map[string]string) {
	t.Helper()
	data := testkit.Must(os.ReadFile(filepath.Join(dir, "kustomization.yaml")))(t)
	var k kustomization
	if err := yaml.Unmarshal(data, &k); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	for _, g := range k.ConfigMapGenerator {
		for _, f := range g.Files {
			files[g.Name] = filepath.Join(dir, f)
		}
		for _, l := range g.Literals {
			key, value, _ := strings.Cut(l, "=")
			env[key] = value
		}
	}
	for _, r := range k.Resources {
		if !strings.HasSuffix(r, ".yaml") {
			configs(t, filepath.Join(dir, r), files, env)
		}
	}
}

// Every ConfigMap with a configuration passes --check-config with the variables of its overlay.
func TestConfigurations(t *testing.T) {
	some := filepath.Join(t.TempDir(), "some.pem")
	testkit.NoError(t, os.WriteFile(some, []byte("of the pod"), 0o600))
	overlays, err := filepath.Glob("k8s/overlays/*")
	if err != nil || len(overlays) < 3 {
		t.Fatalf("overlays: %v, %v", overlays, err)
	}
	checked := 0
	for _, dir := range overlays {
		files, env := map[string]string{}, map[string]string{}
		configs(t, dir, files, env)
		for app, file := range files {
			t.Run(filepath.Base(dir)+"/"+app, func(t *testing.T) {
				var cfg node.Config
				var base *node.Base
				switch app {
				case "edge":
					c := edge.DefaultConfig()
					cfg, base = &c, &c.Base
				case "regional":
					c := regional.DefaultConfig()
					cfg, base = &c, &c.Base
				case "global":
					c := global.DefaultConfig()
					cfg, base = &c, &c.Base
					t.Setenv("VESTIBULE_ROOMS", files["rooms"])
				case "rooms":
					return // checked with global
				default:
					t.Fatalf("no program is called %s", app)
				}
				checked++
				for _, key := range variables(t, app) {
					value := env[key]
					if key == "VESTIBULE_NAME" {
						value = app + "-0"
					}
					t.Setenv(key, value)
				}
				// Files of the pod, from its Secrets.
				for _, key := range []string{"CA", "CERT", "KEY"} {
					t.Setenv("VESTIBULE_NATS_"+key, some)
				}
				var said strings.Builder
				if code := node.Main(app, cfg, base, []string{"--config", file, "--check-config"}, &said, &said,
					nil); code != node.ExitOK {
					t.Error(said.String())
				}
			})
		}
	}
	if checked != 5 {
		t.Errorf("%d configurations were checked, want those of two data centres and of global", checked)
	}
}

var patchedVariable = regexp.MustCompile(`name: (VESTIBULE_[A-Z_]+), value: "?([^"}]+)"?}`)

// The variables that components add are ones that the programs take.
func TestComponents(t *testing.T) {
	some := filepath.Join(t.TempDir(), "some.pem")
	testkit.NoError(t, os.WriteFile(some, []byte("of the pod"), 0o600))
	for app, component := range map[string]string{"global": "control", "edge": "ingress"} {
		t.Run(component, func(t *testing.T) {
			data := testkit.Must(os.ReadFile(filepath.Join("k8s/components", component, "kustomization.yaml")))(t)
			set := patchedVariable.FindAllStringSubmatch(string(data), -1)
			if len(set) < 2 {
				t.Fatalf("variables: %v", set)
			}
			for _, m := range set {
				if strings.HasPrefix(m[2], "/etc/vestibule/") { // a file of the pod
					m[2] = some
				}
				t.Setenv(m[1], m[2])
			}
			for _, key := range []string{"CA", "CERT", "KEY"} {
				t.Setenv("VESTIBULE_NATS_"+key, some)
			}
			t.Setenv("VESTIBULE_NAME", app+"-0")
			file := "k8s/base/region/config/edge.yaml"
			edges, globals := edge.DefaultConfig(), global.DefaultConfig()
			var cfg node.Config = &edges
			base := &edges.Base
			if app == "global" {
				cfg, base, file = &globals, &globals.Base, "k8s/overlays/global/config/global.yaml"
				t.Setenv("VESTIBULE_ROOMS", "k8s/overlays/global/config/rooms.yaml")
			} else {
				t.Setenv("VESTIBULE_DATA_CENTER", "nairobi")
			}
			var said strings.Builder
			if code := node.Main(app, cfg, base, []string{"--config", file, "--check-config"}, &said, &said,
				nil); code != node.ExitOK {
				t.Error(said.String())
			}
		})
	}
}

// container is a container of a StatefulSet.
type container struct {
	Name    string
	EnvFrom []any `yaml:"envFrom"`
	Env     []struct{ Name, Value string }
	Ports   []struct{ Name string }
}

// containers calls f with the containers of all StatefulSets.
func containers(t *testing.T, f func(file string, c *container)) {
	t.Helper()
	walk(t, "k8s", func(name string, data []byte) {
		if !strings.HasSuffix(name, ".yaml") || !strings.Contains(string(data), "kind: StatefulSet") {
			return
		}
		for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
			var o struct {
				Spec struct {
					Template struct {
						Spec struct{ Containers []container }
					}
				}
			}
			if err := d.Decode(&o); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				continue // no workload
			}
			for i := range o.Spec.Template.Spec.Containers {
				f(name, &o.Spec.Template.Spec.Containers[i])
			}
		}
	})
}

// variables returns the environment of a program's container, and nothing else: an unknown variable of ours stops
// the program.
func variables(t *testing.T, app string) (out []string) {
	t.Helper()
	containers(t, func(file string, c *container) {
		if c.Name != app {
			return
		}
		if c.EnvFrom != nil {
			t.Errorf("%s: %s has whatever a ConfigMap holds in its environment", file, app)
		}
		for _, e := range c.Env {
			out = append(out, e.Name)
		}
	})
	if len(out) == 0 {
		t.Errorf("no container is called %s", app)
	}
	return out
}

// TestTheNotifierOfTheComponent: the variables of its container are a configuration.
func TestTheNotifierOfTheComponent(t *testing.T) {
	some := filepath.Join(t.TempDir(), "some.pem")
	testkit.NoError(t, os.WriteFile(some, []byte("of the pod"), 0o600))
	containers(t, func(_ string, c *container) {
		if c.Name != "notifier" {
			return
		}
		for _, e := range c.Env {
			switch {
			case e.Name == "VESTIBULE_NAME":
				e.Value = "notifier-0"
			case strings.HasPrefix(e.Value, "/etc/vestibule/"): // a file of the pod
				e.Value = some
			}
			t.Setenv(e.Name, e.Value)
		}
	})
	cfg := notify.DefaultConfig()
	if _, err := node.Flags(&cfg, pflag.NewFlagSet("notify", pflag.ContinueOnError))(); err != nil {
		t.Error(err)
	}
	if cfg.Name != "notifier-0" || cfg.Metrics.Listen != ":9100" {
		t.Errorf("%+v", cfg)
	}
}

// TestEveryProgramIsMonitored: what has metrics is scraped, and may be.
func TestEveryProgramIsMonitored(t *testing.T) {
	for _, file := range []string{"networkpolicy.yaml", "podmonitor.yaml"} {
		data := testkit.Must(os.ReadFile("k8s/components/monitoring/" + file))(t)
		scraped := regexp.MustCompile(`values: \[([a-z, ]+)\]`).FindStringSubmatch(string(data))
		if scraped == nil {
			t.Fatalf("%s names no programs", file)
		}
		n := 0
		containers(t, func(_ string, c *container) {
			if !slices.ContainsFunc(c.Ports, func(p struct{ Name string }) bool { return p.Name == "metrics" }) {
				return
			}
			if n++; !slices.Contains(strings.Split(scraped[1], ", "), c.Name) {
				t.Errorf("%s: lacks %s", file, c.Name)
			}
		})
		if n != 4 {
			t.Errorf("%d programs have metrics", n)
		}
	}
}

// Pods mount the files of `vestibule nats-config`.
func TestSecretsAndNames(t *testing.T) {
	var text strings.Builder
	walk(t, "k8s", func(name string, data []byte) {
		if strings.HasSuffix(name, ".yaml") {
			text.Write(data)
		}
	})
	got := map[string]bool{}
	for _, m := range regexp.MustCompile(`secretName: (nats-[a-z-]+)`).FindAllStringSubmatch(text.String(), -1) {
		got[m[1]] = true
	}
	p := &natsconf.Plan{
		DataCenters: []string{"nairobi"}, Globals: []string{"global-0"}, Regionals: []string{"regional-0"},
		Edges: []string{"edge-0"}, Notifiers: []string{"notifier-0"},
	}
	ca := testkit.Must(natsconf.NewAuthority(rand.Reader, time.Now()))(t)
	files := testkit.Must(p.Files(time.Now(), ca))(t)
	for name := range got {
		in := "/" + strings.TrimPrefix(name, "nats-") + "/"
		if !slices.ContainsFunc(files, func(f natsconf.File) bool { return strings.Contains(f.Path, in) }) {
			t.Errorf("nobody makes the secret %s", name)
		}
	}
	if len(got) != 7 {
		t.Errorf("secrets: %v", got)
	}
	// The highest name has credentials: nats-config makes edge-0 to edge-19.
	if !strings.Contains(text.String(), "maxReplicas: 20\n") {
		t.Error("maxReplicas is not the number of edges that nats-config writes by default")
	}
}

var metric = regexp.MustCompile(`vestibule_[a-z_]+`)

// exprs returns every expression of the rules and the dashboard, by position.
func exprs(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	data := testkit.Must(os.ReadFile("k8s/components/monitoring/rules.yaml"))(t)
	testkit.NoError(t, yaml.Unmarshal(data, &rules))
	for _, g := range rules.Spec.Groups {
		for _, r := range g.Rules {
			out["alert "+r.Alert] = r.Expr
		}
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	data = testkit.Must(os.ReadFile("k8s/components/monitoring/board.json"))(t)
	testkit.NoError(t, json.Unmarshal(data, &board))
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			out["panel "+p.Title] = target.Expr
		}
	}
	if len(out) < 20 {
		t.Fatalf("%d expressions", len(out))
	}
	return out
}

// Rules and dashboard use only existing metrics, and METRICS says which have a rule.
func TestMetricsOfRulesAndBoard(t *testing.T) {
	ruled := map[string]bool{}
	doc := testkit.Must(os.ReadFile("../docs/METRICS.md"))(t)
	for where, expr := range exprs(t) {
		for _, name := range metric.FindAllString(expr, -1) {
			if !strings.Contains(string(doc), "| `"+strings.TrimSuffix(name, "_bucket")+"` |") {
				t.Errorf("%s: no metric is called %s", where, name)
			}
			if strings.HasPrefix(where, "alert ") {
				ruled[strings.TrimSuffix(name, "_bucket")] = true
			}
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(vestibule_[a-z_]+)` .*$").FindAllStringSubmatch(string(doc), -1) {
		if marked := strings.Contains(row[0], " | **rule**"); marked != ruled[row[1]] {
			t.Errorf("METRICS says of %s that it has a rule: %v; it has one: %v", row[1], marked, ruled[row[1]])
		}
	}
}

// The rules are the same in Kubernetes and elsewhere, and each has a test in which it fires.
func TestRulesAreTheSameEverywhere(t *testing.T) {
	type group struct{ Groups []any }
	var plain group
	var resource struct{ Spec group }
	var tests struct {
		Tests []struct {
			Checks []struct {
				Alert  string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	for file, to := range map[string]any{
		"prometheus/rules.yaml": &plain, "k8s/components/monitoring/rules.yaml": &resource,
		"prometheus/rules_test.yaml": &tests,
	} {
		data, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(data, to)
		}
		testkit.NoError(t, err)
	}
	if len(plain.Groups) == 0 || !reflect.DeepEqual(plain, resource.Spec) {
		t.Error("k8s/components/monitoring/rules.yaml and prometheus/rules.yaml differ: copy the groups")
	}
	fires, silent := map[string]bool{}, map[string]int{}
	for _, x := range tests.Tests {
		for _, c := range x.Checks {
			if len(c.Alerts) > 0 {
				fires[c.Alert] = true
			} else {
				silent[c.Alert]++
			}
		}
	}
	for name := range exprs(t) {
		if alert, ok := strings.CutPrefix(name, "alert "); ok && (!fires[alert] || silent[alert] < 5) {
			t.Errorf("%s: rules_test.yaml has to show that it fires (%v), and is silent in five healthy fleets (%d)", alert,
				fires[alert], silent[alert])
		}
	}
}

// Prometheus accepts the rules, and the dashboard's expressions as rules. Each alert fires and is silent when it has
// to.
func TestRulesForPrometheus(t *testing.T) {
	promtool := testkit.Program(t, "promtool")
	dir := t.TempDir()
	data := testkit.Must(os.ReadFile("k8s/components/monitoring/rules.yaml"))(t)
	var r struct{ Spec yaml.Node }
	testkit.NoError(t, yaml.Unmarshal(data, &r))
	spec := testkit.Must(yaml.Marshal(&r.Spec))(t)
	var b strings.Builder
	b.WriteString("groups:\n  - name: all\n    rules:\n")
	n := 0
	for _, expr := range exprs(t) {
		fmt.Fprintf(&b, "      - {record: \"test:%d\", expr: %q}\n", n, expr)
		n++
	}
	for name, text := range map[string]string{"rules.yaml": string(spec), "all.yaml": b.String()} {
		file := filepath.Join(dir, name)
		testkit.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		if out, err := exec.Command(promtool, "check", "rules", "--lint-fatal", file).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if out, err := exec.Command(promtool, "test", "rules", "prometheus/rules_test.yaml").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Units start existing programs with existing flags.
func TestUnits(t *testing.T) {
	n := 0
	walk(t, "systemd", func(name string, data []byte) {
		if strings.HasSuffix(name, ".socket") {
			// An edge rejects a socket for an unknown address.
			_, port, err := net.SplitHostPort(edge.DefaultConfig().Listen)
			if err != nil || !strings.Contains(string(data), "\nListenStream="+port+"\n") {
				t.Errorf("%s: must listen at the port of the default configuration, %s (%v)", name, port, err)
			}
			return
		}
		if strings.HasSuffix(name, ".conf") { // a drop-in
			if !strings.HasPrefix(string(data), "#") || !strings.Contains(string(data), "[Service]\n") {
				t.Errorf("%s: must say where it belongs, and be of a service", name)
			}
			return
		}
		n++
		if !strings.Contains(string(data), "\nStartLimitIntervalSec=0\n") {
			t.Errorf("%s: systemd would give up after five failed starts", name)
		}
		if filepath.Base(name) == "vestibule-nats.service" {
			return
		}
		if filepath.Base(name) == "vestibule.service" {
			if !strings.Contains(string(data),
				"\nExecStart=/usr/bin/vestibule serve --config /etc/vestibule/serve.yaml\n") ||
				!strings.Contains(string(data), "\nStateDirectory=vestibule/serve\n") {
				t.Errorf("%s: must start vestibule serve in the folder that systemd makes", name)
			}
			return
		}
		app := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "vestibule-"), "@.service")
		if app == "notifier" {
			if !strings.Contains(string(data),
				"\nExecStart=/usr/bin/vestibule notify --config /etc/vestibule/notifier-%i.yaml\n") {
				t.Errorf("%s: must start vestibule notify", name)
			}
			return
		}
		for _, want := range []string{
			"ExecStart=/usr/bin/vestibule " + app + " --config /etc/vestibule/" + app + "-%i.yaml\n",
			"StateDirectory=vestibule/" + app + "-%i\n",
		} {
			if !strings.Contains(string(data), want) {
				t.Errorf("%s: lacks %s", name, want)
			}
		}
		if _, err := os.Stat("../cmd/" + app + "/main.go"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	if n != 6 {
		t.Errorf("%d units", n)
	}
}

// TestSystemdTakesTheUnits: systemd itself reads the units with their drop-ins and finds no fault. Programs are
// stand-ins.
func TestSystemdTakesTheUnits(t *testing.T) {
	analyze := testkit.Program(t, "systemd-analyze")
	dir := t.TempDir()
	var units []string
	walk(t, "systemd", func(name string, data []byte) {
		base := filepath.Base(name)
		text := regexp.MustCompile(`(?m)^(Exec[A-Za-z]+=)/usr/bin/vestibule [a-z-]+`).ReplaceAllString(string(data),
			"${1}/bin/true")
		text = strings.ReplaceAll(text, "User=nats\n", "User=root\n")
		text = strings.ReplaceAll(text, "User=vestibule\nGroup=vestibule\n", "User=root\n")
		to := []string{base}
		if strings.HasSuffix(base, ".conf") {
			to = nil
			for _, app := range []string{"edge", "regional", "global"} {
				to = append(to, "vestibule-"+app+"@.service.d/"+base)
			}
		} else {
			units = append(units, filepath.Join(dir, strings.Replace(base, "@.", "@1.", 1)))
		}
		for _, file := range to {
			file = filepath.Join(dir, file)
			testkit.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			testkit.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		}
	})
	out, err := exec.Command(analyze, append([]string{"verify", "--man=no", "--recursive-errors=no"},
		units...)...).CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) {
		t.Errorf("%v\n%s", err, out)
	}
}

func walk(t *testing.T, dir string, visit func(name string, data []byte)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err == nil {
			visit(name, data)
		}
		return err
	})
	testkit.NoError(t, err)
}

// The package's file is one that `vestibule serve` takes, and names the folder that the unit may write to.
func TestServeFiles(t *testing.T) {
	for _, name := range []string{"release/serve.yaml", "compose/serve.yaml"} {
		out, err := exec.Command("go", "run", "../cmd/vestibule", "serve", "--config", name, "--check-config").CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
