package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"vestibule/internal/node/natsbus"
)

// Base is the part of the configuration common to all nodes.
type Base struct {
	DataDir  string         `mapstructure:"data_dir" doc:"folder for last good copies of rooms and keys, fleet time, and an embedded server's JetStream; it holds secrets"`
	Log      LogConfig      `mapstructure:"log"`
	Metrics  MetricsConfig  `mapstructure:"metrics"`
	Profiles ProfilesConfig `mapstructure:"pprof"`
}

// MetricsConfig is the listener of metrics and health.
type MetricsConfig struct {
	Listen string `mapstructure:"listen" doc:"host:port of metrics, health and status, not for visitors; port 0 chooses a free one"`
}

// ProfilesConfig is the listener of profiles.
type ProfilesConfig struct {
	Listen string `mapstructure:"listen" doc:"host:port of profiles (/debug/pprof), which tell secrets in memory"`
}

// ClientConfig is the configuration of a NATS client.
type ClientConfig struct {
	URL    string `mapstructure:"url" doc:"servers to connect to, separated by commas"`
	Creds  string `mapstructure:"creds" doc:"file with user credentials"`
	CA     string `mapstructure:"ca" doc:"file with the certificates to trust"`
	Cert   string `mapstructure:"cert" doc:"client certificate file"`
	Key    string `mapstructure:"key" doc:"client key file"`
	Domain string `mapstructure:"domain" doc:"JetStream domain, where it is not the server's own"`
}

// Options returns the connection options of a node called name that receives its answers below inbox.
func (c *ClientConfig) Options(name, inbox string, log *slog.Logger) natsbus.Options {
	return natsbus.Options{
		URL: c.URL, Name: name, Inbox: inbox, Creds: c.Creds, CA: c.CA, Cert: c.Cert, Key: c.Key, Domain: c.Domain, Log: log,
	}
}

// Validate returns all faults in the keys below prefix.
func (c *ClientConfig) Validate(prefix string) []error {
	var errs []error
	for server := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if c.URL != "" && (err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme)) {
			errs = append(errs,
				fmt.Errorf("%s.url: must be addresses such as nats://host:4222 (nats, tls, ws or wss), separated by commas; one is not",
					prefix))
			break // it may contain a password
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

// ServerConfig is the configuration of a NATS client or an embedded server.
type ServerConfig struct {
	ClientConfig `mapstructure:",squash"`
	Replicas     int      `mapstructure:"replicas" doc:"replicas of the buckets that this node creates: 1, 3, 5, or 0 for 3 on a cluster and 1 on a single server"`
	Embedded     bool     `mapstructure:"embedded" doc:"run a nats-server in this process instead of connecting to url"`
	Listen       string   `mapstructure:"listen" doc:"host:port on which the embedded server takes other processes"`
	Leafs        string   `mapstructure:"leafs" doc:"host:port on which the embedded server takes leaf nodes"`
	Hubs         []string `mapstructure:"hubs" doc:"leaf-node addresses that the embedded server joins"`
	Credentials  string   `mapstructure:"credentials" doc:"clients of the embedded server: auto for those with the password of data_dir/nats.password, which is made where the server listens for other machines; none for all"`
}

// Values of nats.credentials for an embedded server.
const (
	AutoCredentials = "auto"
	NoCredentials   = "none"
)

// DefaultServer returns the defaults of ServerConfig.
func DefaultServer() ServerConfig {
	return ServerConfig{ClientConfig: DefaultClient(), Credentials: AutoCredentials}
}

// BucketReplicas converts the configured number of replicas to that of natsbus.
func BucketReplicas(configured int) int {
	if configured == 0 {
		return natsbus.Auto
	}
	return configured
}

// CheckReplicas validates the number of replicas under a key.
func CheckReplicas(key string, n int) []error {
	if n != 0 && n != 1 && n != 3 && n != 5 {
		return []error{fmt.Errorf("%s: must be 0, 1, 3 or 5, got %d", key, n)}
	}
	return nil
}

// Validate returns all faults in the keys below nats.
func (c *ServerConfig) Validate() []error {
	errs := append(c.ClientConfig.Validate("nats"), CheckReplicas("nats.replicas", c.Replicas)...)
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
	if c.Credentials != AutoCredentials && c.Credentials != NoCredentials {
		errs = append(errs,
			fmt.Errorf("nats.credentials: must be %s or %s, got %q", AutoCredentials, NoCredentials, c.Credentials))
	}
	for i, hub := range c.Hubs {
		if u, err := url.Parse(hub); err != nil || u.Host == "" {
			// it may contain a password
			errs = append(errs, fmt.Errorf("nats.hubs[%d]: must be an address such as nats-leaf://host:7422", i))
		}
	}
	return errs
}

// DefaultBase returns the defaults of Base for a tier.
func DefaultBase(tier string) Base {
	return Base{
		DataDir: "./var/" + tier,
		Log:     LogConfig{Level: "info", Format: "text"},
		Metrics: MetricsConfig{Listen: "127.0.0.1:0"},
	}
}

// DefaultClient returns the defaults of ClientConfig.
func DefaultClient() ClientConfig { return ClientConfig{URL: "nats://127.0.0.1:4222"} }

// Validate returns all faults in the common part.
func (b *Base) Validate() []error {
	errs := b.Log.Validate()
	if b.DataDir == "" {
		errs = append(errs, errors.New("data_dir: must not be empty"))
	}
	if b.Profiles.Listen != "" {
		errs = append(errs, CheckAddr("pprof.listen", b.Profiles.Listen)...)
	}
	return append(errs, CheckAddr("metrics.listen", b.Metrics.Listen)...)
}

// CheckAddr validates a listen address.
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

// Loopback reports whether a listen address is reachable only from this machine.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// CheckFile checks that a configured file is readable.
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
