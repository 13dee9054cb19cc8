package natsconf

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// File is a file to write. Secret ones are readable by the owner only.
type File struct {
	Path   string
	Data   []byte
	Secret bool
}

// serversDir is the folder with the servers' certificates; those of users have the name of the role.
const serversDir = "servers"

// folder is the folder of a role's files.
func folder(role natsbus.Role) string {
	switch role {
	case natsbus.RoleOperator, natsbus.RoleProvision:
		return string(role)
	case natsbus.RoleLeaf:
		return serversDir
	case natsbus.RoleEdge, natsbus.RoleRegional, natsbus.RoleGlobal, natsbus.RoleNotifier:
	}
	return string(role) + "s"
}

// Files returns all files to write: for each place the servers' configuration, a folder of certificates for the
// servers and one for each role, and the same as Kubernetes objects.
func (p *Plan) Files(now time.Time, ca *Authority) ([]File, error) {
	out := []File{{"ca.crt", ca.CertPEM(), false}}
	for _, place := range p.places() {
		conf := p.config(place)
		folders := map[string]map[string][]byte{}
		issue := func(dir, file string, names []string) error {
			cert, key, err := ca.Issue(rand.Reader, now, p.Valid, names)
			if err != nil {
				return fmt.Errorf("certificate of %s: %w", names[0], err)
			}
			if folders[dir] == nil {
				folders[dir] = map[string][]byte{"ca.crt": ca.CertPEM()}
			}
			folders[dir][file+".crt"], folders[dir][file+".key"] = cert, key
			return nil
		}
		var hosts []string
		for _, n := range p.Names {
			hosts = append(hosts, at(n, place, 0))
		}
		if err := issue(serversDir, "tls", hosts); err != nil {
			return nil, err
		}
		if place != wire.Root {
			leaf := user{role: natsbus.RoleLeaf, leaf: place}
			if err := issue(serversDir, "leaf", []string{leaf.id(wire.Root)}); err != nil {
				return nil, err
			}
		}
		for _, u := range p.users(place) {
			if u.leaf != "" {
				continue // its own servers have it
			}
			if err := issue(folder(u.role), u.file(), []string{u.id(place)}); err != nil {
				return nil, err
			}
		}
		out = append(out, File{path.Join(place, "nats.conf"), conf, false})
		for dir, files := range folders {
			for name, data := range files {
				out = append(out, File{path.Join(place, dir, name), data, strings.HasSuffix(name, ".key")})
			}
		}
		pods := *p // as deploy/k8s mounts and probes them
		pods.CertDir, pods.StoreDir, pods.Monitor = "/etc/vestibule/nats", "/data", "0.0.0.0:8222"
		pods.Ports = nil
		objects, err := kubernetes(pods.config(place), folders)
		if err != nil {
			return nil, err
		}
		out = append(out, File{path.Join(place, "kubernetes.yaml"), objects, true})
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// at substitutes place and number in a text.
func at(text, place string, n int) string {
	return strings.NewReplacer("{place}", place, "{n}", strconv.Itoa(n)).Replace(text)
}

// kubernetes returns a ConfigMap `nats` with the servers' configuration and Secrets with the folders, for any
// namespace.
func kubernetes(conf []byte, folders map[string]map[string][]byte) ([]byte, error) {
	type object struct {
		APIVersion string            `yaml:"apiVersion"`
		Kind       string            `yaml:"kind"`
		Metadata   map[string]string `yaml:"metadata"`
		Data       map[string]string `yaml:"data,omitempty"`
		StringData map[string]string `yaml:"stringData,omitempty"`
	}
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(object{
		"v1", "ConfigMap", map[string]string{"name": "nats"}, map[string]string{"nats.conf": string(conf)}, nil,
	}); err != nil {
		return nil, err
	}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		data := map[string]string{}
		for name, content := range folders[dir] {
			data[name] = string(content)
		}
		if err := e.Encode(object{"v1", "Secret", map[string]string{"name": "nats-" + dir}, nil, data}); err != nil {
			return nil, err
		}
	}
	if err := e.Close(); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// config returns the configuration of the servers of a place.
func (p *Plan) config(place string) []byte {
	c := configWriter{dir: at(p.CertDir, place, 0)}
	domain := place
	if place == wire.Root {
		domain = "hub"
	}
	c.line("# NATS servers of %s. Written by `vestibule nats-config write`: change its flags,", place)
	c.line("# and run it again. A running server reads users and certificates again at SIGHUP.")
	c.line("")
	c.line("server_name: $NATS_SERVER_NAME")
	c.line(`listen: "0.0.0.0:%d"`, p.port(place, clientPort))
	c.line(`http: %q # health and metrics, without a login: for probes, not for nodes`, p.monitor(place))
	c.line("max_payload: 1MB")
	c.line("ping_interval: 2s # a leaf connection to a server that is cut off ends after three")
	c.line("ping_max: 2")
	c.tls("", "tls", ", verify_and_map: true")
	c.line("")
	c.line("jetstream { store_dir: %q, domain: %q, sync_interval: always }", at(p.StoreDir, place, 0), domain)
	if p.Servers > 1 {
		c.line("")
		c.line("cluster {")
		c.line("  name: %q", place)
		c.line(`  listen: "0.0.0.0:%d"`, p.port(place, routePort))
		c.tls("  ", "tls", ", verify: true")
		c.line("  routes: [")
		for n := range p.Servers {
			c.line("    %q", "tls://"+net.JoinHostPort(at(p.Routes, place, n), strconv.Itoa(p.port(place, routePort))))
		}
		c.line("  ]")
		c.line("}")
	}
	c.line("")
	c.line("leafnodes {")
	if place == wire.Root {
		c.line(`  listen: "0.0.0.0:%d"`, p.port(place, leafPort))
		c.tls("  ", "tls", ", verify_and_map: true")
	} else {
		c.line("  reconnect: 1s")
		c.line("  remotes: [ {")
		c.line("    account: %q", mainAccount)
		var urls []string
		for _, h := range p.Hub {
			urls = append(urls, strconv.Quote("tls://"+h))
		}
		c.line("    urls: [%s]", strings.Join(urls, ", "))
		c.tls("    ", "leaf", "")
		c.line("  } ]")
	}
	c.line("}")
	c.line("")
	c.accounts(place, p.accounts(place))
	return []byte(c.String())
}

// configWriter writes the configuration of a server.
type configWriter struct {
	strings.Builder
	dir string // with certificates and keys
}

func (c *configWriter) line(format string, v ...any) { fmt.Fprintf(c, format+"\n", v...) }

func (c *configWriter) tls(indent, cert, more string) {
	c.line(`%stls { cert_file: %q, key_file: %q, ca_file: %q%s }`, indent,
		path.Join(c.dir, cert+".crt"), path.Join(c.dir, cert+".key"), path.Join(c.dir, "ca.crt"), more)
}

// accounts writes the accounts of a place with their users.
func (c *configWriter) accounts(place string, accounts []account) {
	c.line("system_account: SYS")
	c.line("accounts {")
	c.line("  SYS {}")
	for _, a := range accounts {
		c.line("  %q {", a.name)
		if a.name == mainAccount {
			c.line("    jetstream: enabled")
			c.line("    exports: [")
			for _, e := range exports(accounts) {
				often := ""
				if natsbus.AnswersOften(e.subject) {
					often = ", response_type: stream"
				}
				c.line("      { %s: %q, accounts: [%s]%s }", e.kind, e.subject, quoted(e.to), often)
			}
			c.line("    ]")
		}
		if len(a.imports) > 0 {
			c.line("    imports: [")
			for _, i := range a.imports {
				c.line("      { %s: { account: %q, subject: %q }, to: %q }", i.kind, mainAccount, i.subject, i.as)
			}
			c.line("    ]")
		}
		c.line("    users: [")
		for _, u := range a.users {
			c.line("      { user: %q, allowed_connection_types: [%s], permissions: {", u.id(place), u.connection())
			allowed := u.allowed(place)
			c.line("        publish: [%s]", quoted(allowed.Publish))
			c.line("        subscribe: [%s]", quoted(allowed.Subscribe))
			c.line("      } }")
		}
		c.line("    ]")
		c.line("  }")
	}
	c.line("}")
}

func quoted(subjects []string) string {
	out := make([]string, len(subjects))
	for i, s := range subjects {
		out[i] = strconv.Quote(s)
	}
	return strings.Join(out, ", ")
}
