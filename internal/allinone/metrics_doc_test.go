package allinone

import (
	"log/slog"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vestibule/internal/core/wire"
	"vestibule/internal/edge"
	"vestibule/internal/edge/gate"
	"vestibule/internal/global"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/notify"
	"vestibule/internal/regional"
)

// metric is the properties that a registered metric and its row in docs/METRICS.md must share.
type metric struct {
	Kind   string // counter, gauge or histogram
	Labels string // names, sorted
	Nodes  string // the tiers that have it
}

// recorder records registrations.
type recorder struct {
	tier    string
	metrics map[string]metric
	values  map[string]map[string]bool // by metric: initial label values
	vectors []prometheus.Collector
}

var descParts = regexp.MustCompile(`fqName: "([a-z0-9_]+)".*variableLabels: \{([a-z_,]*)\}`)

func (r *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		part := descParts.FindStringSubmatch(d.String())
		m := r.metrics[part[1]]
		labels := strings.Split(part[2], ",")
		slices.Sort(labels)
		m.Labels = strings.Join(labels, " ")
		m.Kind = "gauge"
		if _, one := c.(prometheus.Histogram); one {
			m.Kind = "histogram"
		} else if _, many := c.(*prometheus.HistogramVec); many {
			m.Kind = "histogram"
		} else if strings.HasSuffix(part[1], "_total") {
			m.Kind = "counter"
		}
		if !strings.Contains(m.Nodes, r.tier) {
			m.Nodes = strings.TrimSpace(m.Nodes + " " + r.tier)
		}
		r.metrics[part[1]] = m
	}
	if _, vec := c.(interface{ Reset() }); vec {
		r.vectors = append(r.vectors, c)
	}
	return nil
}

// collect records the current label values.
func (r *recorder) collect() error {
	samples := make(chan prometheus.Metric, 1000)
	for _, c := range r.vectors {
		c.Collect(samples)
	}
	close(samples)
	for s := range samples {
		var out dto.Metric
		if err := s.Write(&out); err != nil {
			return err
		}
		name := descParts.FindStringSubmatch(s.Desc().String())[1]
		for _, l := range out.Label {
			if r.values[name] == nil {
				r.values[name] = map[string]bool{}
			}
			r.values[name][l.GetValue()] = true
		}
	}
	return nil
}

func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func (r *recorder) Unregister(prometheus.Collector) bool { return false }

// docs/METRICS.md lists exactly the metrics of all tiers.
func TestMetricsDocument(t *testing.T) {
	r := &recorder{metrics: map[string]metric{}, values: map[string]map[string]bool{}}
	log := slog.New(slog.DiscardHandler)

	r.tier = "edge"
	node.NewLinks(r)
	node.RegisterBuild(r)
	node.RegisterCertificates(r, nil)
	ec := edge.DefaultConfig()
	ec.Name, ec.DataCenter, ec.DataDir, ec.Listen = "edge-1", "dublin", t.TempDir(), "127.0.0.1:0"
	testkit.Must(edge.New(edge.Options{Config: ec, Params: wire.DefaultParams(), Reg: r, Log: log}))(t)
	r.tier = "regional"
	node.NewLinks(r)
	node.RegisterBuild(r)
	node.RegisterCertificates(r, nil)
	rc := regional.DefaultConfig()
	rc.DataCenter, rc.DataDir = "dublin", t.TempDir()
	if _, err := regional.New(regional.Options{
		Config: rc, Params: wire.DefaultParams(), Clock: node.NewClock(), Reg: r,
		Log: log,
	}); err != nil {
		t.Fatal(err)
	}
	r.tier = "global"
	node.NewLinks(r)
	node.RegisterBuild(r)
	node.RegisterCertificates(r, nil)
	gc := global.DefaultConfig()
	gc.DataDir = t.TempDir()
	if _, err := global.New(global.Options{
		Config: gc, Params: wire.DefaultParams(), Clock: node.NewClock(), Reg: r,
		Log: log,
	}); err != nil {
		t.Fatal(err)
	}

	r.tier = "notifiers"
	notify.NewMetrics(r)

	testkit.NoError(t, r.collect())
	doc := testkit.Must(os.ReadFile("../../docs/METRICS.md"))(t)
	documented := map[string]metric{}
	words := regexp.MustCompile("`([a-z_]+)`")
	tier := ""
	for line := range strings.Lines(string(doc)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			tier = strings.ToLower(strings.Fields(heading)[0])
			if tier == "all" {
				tier = "edge regional global"
			}
		}
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `vestibule_") {
			continue
		}
		if len(cells) != 5 {
			t.Errorf("a row must have 5 cells: %s", line)
			continue
		}
		name := strings.Trim(cells[0], "|` ")
		if _, twice := documented[name]; twice {
			t.Errorf("%s has two rows", name)
		}
		var labels []string
		for _, m := range words.FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, m[1])
		}
		slices.Sort(labels)
		documented[name] = metric{Kind: cells[1], Labels: strings.Join(labels, " "), Nodes: tier}
		if name == "vestibule_build_info" {
			continue // its label values change with every build
		}
		for _, v := range slices.Sorted(maps.Keys(r.values[name])) {
			if !regexp.MustCompile(`[ :(]` + regexp.QuoteMeta(v) + `([,;)]|$)`).MatchString(cells[2]) {
				t.Errorf("%s: its row does not name the label value %q", name, v)
			}
		}
		if strings.TrimSpace(cells[3]) == "" || strings.Trim(cells[4], " |\n") == "" {
			t.Errorf("%s: its row lacks the meaning or the alert", name)
		}
	}
	if diff := cmp.Diff(r.metrics, documented); diff != "" {
		t.Errorf("docs/METRICS.md differs (-registered +documented):\n%s", diff)
	}
}

// TestStatusNamesAreWhole: every exported field of a status has a name in /status, or is hidden on purpose.
func TestStatusNamesAreWhole(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(of reflect.Type)
	look = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			look(of.Elem())
		case reflect.Struct:
			if seen[of] {
				return
			}
			seen[of] = true
			for f := range of.Fields() {
				name := f.Tag.Get("json")
				if f.IsExported() && !f.Anonymous && name == "" {
					t.Errorf("%s.%s has no json tag", of, f.Name)
				}
				if name != "-" {
					look(f.Type)
				}
			}
		default: // a value
		}
	}
	look(reflect.TypeFor[global.Status]())
	look(reflect.TypeFor[regional.Status]())
	look(reflect.TypeFor[gate.Status]())
}
