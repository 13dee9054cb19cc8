package node

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"vestibule/internal/natsbus"
	"vestibule/internal/room"
)

// Base is the part of the configuration that all nodes share.
type Base struct {
	DataDir string        `mapstructure:"data_dir" doc:"folder for last good copies of rooms and keys, and an embedded server's JetStream"`
	Log     LogConfig     `mapstructure:"log"`
	Metrics MetricsConfig `mapstructure:"metrics"`
}

// MetricsConfig is the listener of metrics, health and pprof.
type MetricsConfig struct {
	Listen string `mapstructure:"listen" doc:"host:port of metrics, health and pprof; port 0 chooses a free one"`
}

// ClientConfig says how to reach NATS.
type ClientConfig struct {
	URL    string `mapstructure:"url" doc:"servers to connect to, separated by commas"`
	Creds  string `mapstructure:"creds" doc:"file with user credentials"`
	CA     string `mapstructure:"ca" doc:"file with the certificates to trust"`
	Cert   string `mapstructure:"cert" doc:"client certificate file"`
	Key    string `mapstructure:"key" doc:"client key file"`
	Domain string `mapstructure:"domain" doc:"JetStream domain, where it is not the server's own"`
}

// Options returns how a node called name connects, which hears its answers below inbox.
func (c *ClientConfig) Options(name, inbox string, log *slog.Logger) natsbus.Options {
	return natsbus.Options{
		URL: c.URL, Name: name, Inbox: inbox, Creds: c.Creds, CA: c.CA, Cert: c.Cert, Key: c.Key, Domain: c.Domain, Log: log,
	}
}

// Validate returns everything that is wrong with the keys below prefix.
func (c *ClientConfig) Validate(prefix string) []error {
	var errs []error
	for server := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if c.URL != "" && (err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme)) {
			errs = append(errs, fmt.Errorf("%s.url: must be addresses such as nats://host:4222 (nats, tls, ws or wss), separated by commas; one is not", prefix))
			break // it may hold a password
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		errs = append(errs, fmt.Errorf("%[1]s.cert, %[1]s.key: must be given together", prefix))
	}
	for _, f := range []struct{ key, file string }{{"creds", c.Creds}, {"ca", c.CA}, {"cert", c.Cert}, {"key", c.Key}} {
		errs = append(errs, CheckFile(prefix+"."+f.key, f.file)...)
	}
	return errs
}

// ServerConfig says how to reach NATS, or to be it.
type ServerConfig struct {
	ClientConfig `mapstructure:",squash"`
	Replicas     int      `mapstructure:"replicas" doc:"replicas of the buckets that this node makes: 0 for 3 on a cluster and 1 on a single server, or 1, 3 or 5"`
	Embedded     bool     `mapstructure:"embedded" doc:"run a nats-server in this process instead of connecting to url"`
	Listen       string   `mapstructure:"listen" doc:"host:port on which the embedded server takes other processes"`
	Leafs        string   `mapstructure:"leafs" doc:"host:port on which the embedded server takes leaf nodes"`
	Hubs         []string `mapstructure:"hubs" doc:"leaf-node addresses that the embedded server joins"`
}

// BucketReplicas returns the replicas of buckets as natsbus takes them.
func (c *ServerConfig) BucketReplicas() int {
	if c.Replicas == 0 {
		return natsbus.Auto
	}
	return c.Replicas
}

// Validate returns everything that is wrong with the keys below nats.
func (c *ServerConfig) Validate() []error {
	errs := c.ClientConfig.Validate("nats")
	if c.Replicas != 0 && c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5 {
		errs = append(errs, fmt.Errorf("nats.replicas: must be 0, 1, 3 or 5, got %d", c.Replicas))
	}
	for _, a := range []struct{ key, addr string }{{"nats.listen", c.Listen}, {"nats.leafs", c.Leafs}} {
		if a.addr != "" {
			errs = append(errs, CheckAddr(a.key, a.addr)...)
		}
	}
	if !c.Embedded && (c.Listen != "" || c.Leafs != "" || len(c.Hubs) > 0) {
		errs = append(errs, errors.New("nats.listen, nats.leafs, nats.hubs: need nats.embedded"))
	}
	if c.Domain == "" && (c.Leafs != "" || len(c.Hubs) > 0) {
		errs = append(errs, errors.New("nats.leafs, nats.hubs: need nats.domain, another one on each side"))
	}
	for i, hub := range c.Hubs {
		if u, err := url.Parse(hub); err != nil || u.Host == "" {
			errs = append(errs, fmt.Errorf("nats.hubs[%d]: must be an address such as nats-leaf://host:7422, got %q", i, hub))
		}
	}
	return errs
}

// DefaultBase returns the defaults of what all nodes share, for one of a tier.
func DefaultBase(tier string) Base {
	return Base{
		DataDir: "./var/" + tier,
		Log:     LogConfig{Level: "info", Format: "text"},
		Metrics: MetricsConfig{Listen: "127.0.0.1:0"},
	}
}

// DefaultClient returns the defaults of how to reach NATS.
func DefaultClient() ClientConfig { return ClientConfig{URL: "nats://127.0.0.1:4222"} }

// Validate returns everything that is wrong with the shared part.
func (b *Base) Validate() []error {
	errs := b.Log.validate()
	if b.DataDir == "" {
		errs = append(errs, errors.New("data_dir: must not be empty"))
	}
	return append(errs, CheckAddr("metrics.listen", b.Metrics.Listen)...)
}

// CheckAddr reports what is wrong with a listen address.
func CheckAddr(key, addr string) []error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return []error{fmt.Errorf("%s: must be host:port, got %q", key, addr)}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return []error{fmt.Errorf("%s: port must be 0 to 65535, got %q", key, port)}
	}
	return nil
}

// CheckFile reports that a file which is named cannot be read.
func CheckFile(key, file string) []error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return []error{fmt.Errorf("%s: %w", key, err)}
	}
	if err := f.Close(); err != nil {
		return []error{fmt.Errorf("%s: %w", key, err)}
	}
	return nil
}

// ErrUsage says that the process is to end without running: the command line
// was not understood and has been told so.
var ErrUsage = errors.New("usage")

// ErrHelp says that the process is to end without running: help was asked for
// and has been given.
var ErrHelp = errors.New("help")

// ConfigError is everything that is wrong with a configuration.
type ConfigError []error

func (e ConfigError) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Config is a configuration that can check itself.
type Config interface {
	// Validate returns everything that is wrong, each error naming the key and
	// the rule.
	Validate() []error
}

// Load fills cfg, which holds the defaults, from the file named by --config,
// from the environment (VESTIBULE_ and the key in capitals, _ for a dot) and
// from flags (the key with - for a dot and _), each stronger than the one
// before. It returns a ConfigError with all faults at once, ErrUsage or ErrHelp.
// check is true where --check-config asked only for the faults.
func Load(command string, cfg Config, args []string, out io.Writer) (check bool, err error) {
	keys := fields(reflect.ValueOf(cfg).Elem(), "")
	v := viper.New()
	v.SetEnvPrefix("VESTIBULE")
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	v.AutomaticEnv()

	flags := pflag.NewFlagSet(command, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(out)
	file := flags.String("config", "", "YAML configuration file")
	flags.BoolVar(&check, "check-config", false, "report every fault of the configuration and exit: 0 for none, else 2")
	for _, k := range keys {
		v.SetDefault(k.key, k.value.Interface())
		name := strings.NewReplacer(".", "-", "_", "-").Replace(k.key)
		switch d := k.value.Interface().(type) {
		case bool:
			flags.Bool(name, d, k.doc)
		case int:
			flags.Int(name, d, k.doc)
		case time.Duration:
			flags.Duration(name, d, k.doc)
		case []string:
			flags.StringSlice(name, d, k.doc)
		default:
			flags.String(name, fmt.Sprint(d), k.doc)
		}
		if err := v.BindPFlag(k.key, flags.Lookup(name)); err != nil {
			return false, fmt.Errorf("flag %s: %w", name, err)
		}
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return false, ErrHelp
		}
		fmt.Fprintf(out, "%s: %v (see --help)\n", command, err)
		return false, ErrUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(out, "%s: unexpected argument %q (see --help)\n", command, flags.Arg(0))
		return false, ErrUsage
	}
	var faults ConfigError
	if *file == "" {
		*file = os.Getenv("VESTIBULE_CONFIG")
	}
	if *file != "" {
		v.SetConfigFile(*file)
		v.SetConfigType("yaml")
		if err := v.ReadInConfig(); err != nil {
			return check, ConfigError{fmt.Errorf("config: %w", err)}
		}
	}
	for _, key := range v.AllKeys() {
		if !slices.ContainsFunc(keys, func(k field) bool { return k.key == key }) {
			if err := unknownKey(key, v.Get(key), keys); err != nil {
				faults = append(faults, err)
			}
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	for _, k := range keys {
		if err := k.set(v.Get(k.key)); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", k.key, err))
		}
	}
	faults = append(faults, cfg.Validate()...)
	if len(faults) > 0 {
		return check, faults
	}
	return check, nil
}

// unknownKey says what is wrong with a key that the configuration does not have:
// nothing, where it is a section in which nothing is written.
func unknownKey(key string, value any, keys []field) error {
	for _, k := range keys {
		if strings.HasPrefix(k.key, key+".") {
			if _, defaults := value.(map[string]any); defaults || value == nil {
				return nil
			}
			return fmt.Errorf("%s: must be a section of keys, such as %s", key, k.key)
		}
	}
	return fmt.Errorf("%s: unknown key%s", key, meant(key, keys))
}

// meant adds the key that was probably meant to a message about an unknown one. A key
// of the right name in the wrong section counts.
func meant(key string, keys []field) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.key
	}
	s := room.Suggest(key, names)
	for _, name := range names {
		if s == "" && name[strings.LastIndexByte(name, '.')+1:] == key[strings.LastIndexByte(key, '.')+1:] {
			s = name
		}
	}
	if s == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", s)
}

// envKey returns the variable of the environment that sets a key.
func envKey(key string) string {
	return "VESTIBULE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// link matches what Kubernetes puts into the environment of every pod for a service
// called vestibule-something.
var link = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_.*)?$|_PORT$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// strayVariables returns a fault for every variable of the environment that looks like a key of cfg
// and is none. An empty one is as good as none.
func strayVariables(cfg Config, environ []string) []error {
	keys := fields(reflect.ValueOf(cfg).Elem(), "")
	var faults []error
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		rest, ours := strings.CutPrefix(name, "VESTIBULE_")
		if !ours || text == "" || rest == "CONFIG" || link.MatchString(name) || slices.ContainsFunc(keys, func(k field) bool { return envKey(k.key) == name }) {
			continue
		}
		known := make([]string, len(keys))
		for i, k := range keys {
			known[i] = strings.ToLower(envKey(k.key))
		}
		rule := ""
		if s := room.Suggest(strings.ToLower(name), known); s != "" {
			rule = fmt.Sprintf(", did you mean %q?", strings.ToUpper(s))
		}
		faults = append(faults, fmt.Errorf("%s: unknown key in the environment%s", name, rule))
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return faults
}

// set gives the field what was found for it: the type that YAML told, or the
// text of the environment or of a flag. Nil leaves the default.
func (f field) set(raw any) error {
	text, isText := raw.(string)
	switch f.value.Interface().(type) {
	case string:
		switch raw := raw.(type) {
		case nil:
		case string, int, float64:
			f.value.SetString(fmt.Sprint(raw))
		default:
			return fmt.Errorf("must be text, got %v", raw)
		}
	case bool:
		b, ok := raw.(bool)
		if isText {
			var err error
			b, err = strconv.ParseBool(text)
			ok = err == nil
		}
		if !ok {
			return fmt.Errorf("must be true or false, got %v", raw)
		}
		f.value.SetBool(b)
	case int:
		n, ok := raw.(int)
		if isText {
			var err error
			n, err = strconv.Atoi(text)
			ok = err == nil
		}
		if !ok {
			return fmt.Errorf("must be a whole number, got %v", raw)
		}
		f.value.SetInt(int64(n))
	case time.Duration:
		d, ok := raw.(time.Duration)
		if isText {
			var err error
			d, err = time.ParseDuration(text)
			ok = err == nil
		}
		if !ok {
			return fmt.Errorf("must be a duration with its unit, such as 500ms or 5s, got %v", raw)
		}
		f.value.SetInt(int64(d))
	case []string:
		var list []string
		switch raw := raw.(type) {
		case nil:
			return nil
		case string:
			for part := range strings.SplitSeq(raw, ",") {
				if part = strings.TrimSpace(part); part != "" {
					list = append(list, part)
				}
			}
		case []string:
			list = raw
		case []any:
			for _, e := range raw {
				s, ok := e.(string)
				if !ok {
					return fmt.Errorf("must be a list of texts, got %v in it", e)
				}
				list = append(list, s)
			}
		default:
			return fmt.Errorf("must be a list of texts, got %v", raw)
		}
		f.value.Set(reflect.ValueOf(list))
	default:
		return fmt.Errorf("has a type that no configuration may have: %s", f.value.Type())
	}
	return nil
}

// field is one leaf of a configuration struct.
type field struct {
	key   string
	doc   string
	value reflect.Value
}

// fields lists the leaves of a configuration struct by their dotted keys.
func fields(v reflect.Value, prefix string) []field {
	var out []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, opts, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		if strings.Contains(opts, "squash") {
			out = append(out, fields(v.Field(i), prefix)...)
			continue
		}
		if tag == "" {
			continue
		}
		if f.Type.Kind() == reflect.Struct {
			out = append(out, fields(v.Field(i), prefix+tag+".")...)
			continue
		}
		out = append(out, field{key: prefix + tag, doc: f.Tag.Get("doc"), value: v.Field(i)})
	}
	return out
}

// Keys lists every key of a configuration, for the test that keeps the example
// files whole.
func Keys(cfg Config) []string {
	var out []string
	for _, f := range fields(reflect.ValueOf(cfg).Elem(), "") {
		out = append(out, f.key)
	}
	return out
}

// Values returns the value of every key of a configuration.
func Values(cfg Config) map[string]any {
	out := map[string]any{}
	for _, f := range fields(reflect.ValueOf(cfg).Elem(), "") {
		out[f.key] = f.value.Interface()
	}
	return out
}
