// Package natsconf writes the configuration of NATS servers in which every node is
// a user of its own, known by a client certificate, and may say and hear only what
// its role does (natsbus.Allow).
//
// Global has servers of its own, the hub, and so has every data centre; those of a
// data centre join the hub as leaf nodes, each with a JetStream domain of its own. So
// a data centre that is cut off goes on, and its users are nobody elsewhere.
package natsconf

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/natsbus"
	"vestibule/internal/wire"
)

// Plan says which servers and users there are. In texts {place} stands for "global"
// or a data centre's name, and {n} for the number of a server, from 0.
type Plan struct {
	DataCenters []string
	Globals     []string // names of nodes, the same in every place
	Regionals   []string
	Edges       []string

	Servers int      // of every place: 1, 3 or 5
	Routes  string   // host of server {n}, by which those of a place find each other
	Names   []string // hosts and addresses for which servers have certificates
	Hub     []string // host:port on which the hub takes leaf nodes

	CertDir  string // where a server finds its certificates
	StoreDir string // where a server keeps JetStream

	Valid time.Duration // of the certificates
}

// maxUsers bounds the users of a place: their list is one file.
const maxUsers = 10_000

// Validate returns everything that is wrong with the plan.
func (p *Plan) Validate() []error {
	var errs []error
	if len(p.DataCenters) == 0 {
		errs = append(errs, errors.New("data_centers: at least one must be named"))
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"data_centers", p.DataCenters}, {"globals", p.Globals}, {"regionals", p.Regionals}, {"edges", p.Edges}} {
		for i, name := range list.names {
			if err := wire.CheckName(name); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", list.key, err))
			}
			if slices.Contains(list.names[:i], name) {
				errs = append(errs, fmt.Errorf("%s: %q is named twice", list.key, name))
			}
		}
		if len(list.names) > maxUsers {
			errs = append(errs, fmt.Errorf("%s: must be %d names at most, got %d", list.key, maxUsers, len(list.names)))
		}
	}
	if p.Servers != 1 && p.Servers != 3 && p.Servers != 5 {
		errs = append(errs, fmt.Errorf("servers: must be 1, 3 or 5, got %d", p.Servers))
	}
	if p.Servers > 1 && !strings.Contains(p.Routes, "{n}") {
		errs = append(errs, fmt.Errorf("routes: must have {n} for the number of a server, got %q", p.Routes))
	}
	if len(p.Hub) == 0 {
		errs = append(errs, errors.New("hub: at least one address must be given"))
	}
	for _, h := range p.Hub {
		if host, port, err := net.SplitHostPort(h); err != nil || host == "" {
			errs = append(errs, fmt.Errorf("hub: must be host:port, got %q", h))
		} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			errs = append(errs, fmt.Errorf("hub: port must be 0 to 65535, got %q", h))
		}
	}
	if len(p.Names) == 0 {
		errs = append(errs, errors.New("server_names: at least one must be given"))
	}
	for key, dir := range map[string]string{"cert_dir": p.CertDir, "store_dir": p.StoreDir} {
		if dir == "" {
			errs = append(errs, fmt.Errorf("%s: must not be empty", key))
		}
	}
	if p.Valid < time.Hour || p.Valid > maxValid {
		errs = append(errs, fmt.Errorf("valid: must be 1h to %v, got %v", maxValid, p.Valid))
	}
	return errs
}

// maxValid is the longest life of a certificate.
const maxValid = 10 * 365 * 24 * time.Hour

// Expand returns the names that a list means: "edge-0..9" means ten.
func Expand(list []string) ([]string, error) {
	var out []string
	for _, s := range list {
		from, to, many := strings.Cut(s, "..")
		if !many {
			out = append(out, s)
			continue
		}
		stem := strings.TrimRight(from, "0123456789")
		first, err := strconv.Atoi(from[len(stem):])
		last, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || last < first || last-first >= maxUsers {
			return nil, fmt.Errorf("must be a name, or a range such as edge-0..9, got %q", s)
		}
		for n := first; n <= last; n++ {
			out = append(out, stem+strconv.Itoa(n))
		}
	}
	return out, nil
}

// user is one user of a place.
type user struct {
	role natsbus.Role
	name string // "" where there is one of the role
	leaf string // data centre, of a leaf at the hub
}

// id is what the certificate of a user bears, and its server's configuration.
func (u user) id(place string) string {
	switch {
	case u.leaf != "":
		return string(u.role) + "." + u.leaf
	case u.name == "":
		return string(u.role) + "." + place
	}
	return u.name + "." + string(u.role) + "." + place
}

// allowed is what the user may say and hear.
func (u user) allowed(place string) natsbus.Allowed {
	if u.leaf != "" {
		return natsbus.Allow(u.role, u.leaf, "")
	}
	name := u.name
	if name == "" {
		name = string(u.role)
	}
	return natsbus.Allow(u.role, place, name)
}

// connection is the kind of connection that the user may make.
func (u user) connection() string {
	if u.leaf != "" {
		return "LEAFNODE"
	}
	return "STANDARD"
}

// mainAccount is that of nodes, and of their buckets.
const mainAccount = "VESTIBULE"

// account is one account of a place.
type account struct {
	name    string
	users   []user
	imports []imported // from the main account; all that is there but its users' own
}

type imported struct{ kind, subject, as string }

// accounts lists the accounts of a place. At the hub, the servers of each data centre
// and the operator have one of their own. The subject on which an answer arrives is
// chosen by who asks, and no list of permissions bounds it: in the account of the
// buckets, whoever may read a document could have it written into another one, or
// sent to another data centre. In an account of its own it reaches itself.
func (p *Plan) accounts(place string) []account {
	first := account{name: mainAccount}
	var guests []account
	for _, u := range p.users(place) {
		switch {
		case u.leaf != "":
			guests = append(guests, guest("DC-"+u.leaf, u, place))
		case u.role == natsbus.RoleOperator && place == wire.Root:
			guests = append(guests, guest("OPERATOR", u, place))
		default:
			first.users = append(first.users, u)
		}
	}
	return append([]account{first}, guests...)
}

// guest returns the account of one user, with what it may say and hear in the main one.
func guest(name string, u user, place string) account {
	a := account{name: name, users: []user{u}}
	allowed := u.allowed(place)
	for _, s := range allowed.Publish {
		i := imported{"service", s, s}
		if rest, ok := strings.CutPrefix(s, "$JS."+natsbus.DocumentsDomain+".API."); ok {
			i.subject = rest
			if !strings.HasPrefix(rest, "$KV.") {
				i.subject = "$JS.API." + rest
			}
		}
		a.imports = append(a.imports, i)
	}
	for _, s := range allowed.Subscribe {
		if !strings.HasPrefix(s, "_INBOX.") {
			a.imports = append(a.imports, imported{"stream", s, s})
		}
	}
	return a
}

type exported struct {
	kind, subject string
	to            []string
}

// exports lists what the main account lets the others have.
func exports(accounts []account) (out []exported) {
	for _, a := range accounts {
		for _, i := range a.imports {
			at := slices.IndexFunc(out, func(e exported) bool { return e.kind == i.kind && e.subject == i.subject })
			if at < 0 {
				at, out = len(out), append(out, exported{i.kind, i.subject, nil})
			}
			out[at].to = append(out[at].to, a.name)
		}
	}
	return out
}

// places lists global and the data centres.
func (p *Plan) places() []string { return append([]string{wire.Root}, p.DataCenters...) }

// users lists the users of a place.
func (p *Plan) users(place string) []user {
	out := []user{{role: natsbus.RoleOperator}, {role: natsbus.RoleProvision}}
	add := func(role natsbus.Role, names []string) {
		for _, name := range names {
			out = append(out, user{role: role, name: name})
		}
	}
	if place == wire.Root {
		add(natsbus.RoleGlobal, p.Globals)
		for _, dc := range p.DataCenters {
			out = append(out, user{role: natsbus.RoleLeaf, leaf: dc})
		}
		return out
	}
	add(natsbus.RoleRegional, p.Regionals)
	add(natsbus.RoleEdge, p.Edges)
	return out
}

// File is one file to write. Secret ones are for their owner only.
type File struct {
	Path   string
	Data   []byte
	Secret bool
}

// serversDir is the folder of what servers need; those of users bear the role.
const serversDir = "servers"

// folder is where the files of a role lie.
func folder(role natsbus.Role) string {
	switch role {
	case natsbus.RoleOperator, natsbus.RoleProvision:
		return string(role)
	case natsbus.RoleLeaf:
		return serversDir
	case natsbus.RoleEdge, natsbus.RoleRegional, natsbus.RoleGlobal:
	}
	return string(role) + "s"
}

// Folders lists the folders of files that there are, in all places.
func (p *Plan) Folders() []string {
	out := []string{serversDir}
	for _, place := range p.places() {
		for _, u := range p.users(place) {
			out = append(out, folder(u.role))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Files returns all that is to be written: for each place the servers' configuration,
// a folder of certificates for the servers and one for each role, and the same as
// objects for Kubernetes.
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
				continue // its own servers hold it
			}
			file := u.name
			if file == "" {
				file = string(u.role)
			}
			if err := issue(folder(u.role), file, []string{u.id(place)}); err != nil {
				return nil, err
			}
		}
		out = append(out, File{path.Join(place, "nats.conf"), conf, false})
		for dir, files := range folders {
			for name, data := range files {
				out = append(out, File{path.Join(place, dir, name), data, strings.HasSuffix(name, ".key")})
			}
		}
		objects, err := kubernetes(conf, folders)
		if err != nil {
			return nil, err
		}
		out = append(out, File{path.Join(place, "kubernetes.yaml"), objects, true})
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// at puts a place and a number into a text.
func at(text, place string, n int) string {
	return strings.NewReplacer("{place}", place, "{n}", strconv.Itoa(n)).Replace(text)
}

// kubernetes returns a ConfigMap `nats` with the servers' configuration and Secrets
// with the folders, for the namespace that they are applied to.
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
	if err := e.Encode(object{"v1", "ConfigMap", map[string]string{"name": "nats"}, map[string]string{"nats.conf": string(conf)}, nil}); err != nil {
		return nil, err
	}
	var names []string
	for dir := range folders {
		names = append(names, dir)
	}
	slices.Sort(names)
	for _, dir := range names {
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
	var b strings.Builder
	w := func(format string, v ...any) { fmt.Fprintf(&b, format+"\n", v...) }
	dir, domain := at(p.CertDir, place, 0), place
	if place == wire.Root {
		domain = "hub"
	}
	tls := func(indent, cert, more string) {
		w(`%stls { cert_file: %q, key_file: %q, ca_file: %q%s }`, indent,
			path.Join(dir, cert+".crt"), path.Join(dir, cert+".key"), path.Join(dir, "ca.crt"), more)
	}
	w("# NATS servers of %s. Written by `vestibule nats-config write`: change what it is told,", place)
	w("# and write it anew. A running server reads users and certificates again at SIGHUP.")
	w("")
	w("server_name: $NATS_SERVER_NAME")
	w(`listen: "0.0.0.0:4222"`)
	w(`http: "0.0.0.0:8222" # health and metrics: for probes, not for nodes`)
	w("max_payload: 1MB")
	tls("", "tls", ", verify_and_map: true")
	w("")
	w("jetstream { store_dir: %q, domain: %q, sync_interval: always }", at(p.StoreDir, place, 0), domain)
	if p.Servers > 1 {
		w("")
		w("cluster {")
		w("  name: %q", place)
		w(`  listen: "0.0.0.0:6222"`)
		tls("  ", "tls", ", verify: true")
		w("  routes: [")
		for n := range p.Servers {
			w("    %q", "tls://"+net.JoinHostPort(at(p.Routes, place, n), "6222"))
		}
		w("  ]")
		w("}")
	}
	w("")
	w("leafnodes {")
	if place == wire.Root {
		w(`  listen: "0.0.0.0:7422"`)
		tls("  ", "tls", ", verify_and_map: true")
	} else {
		w("  reconnect: 1s")
		w("  remotes: [ {")
		w("    account: %q", mainAccount)
		var urls []string
		for _, h := range p.Hub {
			urls = append(urls, strconv.Quote("tls://"+h))
		}
		w("    urls: [%s]", strings.Join(urls, ", "))
		tls("    ", "leaf", "")
		w("  } ]")
	}
	w("}")
	w("")
	w("system_account: SYS")
	w("accounts {")
	w("  SYS {}")
	accounts := p.accounts(place)
	for _, a := range accounts {
		w("  %q {", a.name)
		if a.name == mainAccount {
			w("    jetstream: enabled")
			w("    exports: [")
			for _, e := range exports(accounts) {
				w("      { %s: %q, accounts: [%s] }", e.kind, e.subject, quoted(e.to))
			}
			w("    ]")
		}
		if len(a.imports) > 0 {
			w("    imports: [")
			for _, i := range a.imports {
				w("      { %s: { account: %q, subject: %q }, to: %q }", i.kind, mainAccount, i.subject, i.as)
			}
			w("    ]")
		}
		w("    users: [")
		for _, u := range a.users {
			w("      { user: %q, allowed_connection_types: [%s], permissions: {", u.id(place), u.connection())
			allowed := u.allowed(place)
			w("        publish: [%s]", quoted(allowed.Publish))
			w("        subscribe: [%s]", quoted(allowed.Subscribe))
			w("      } }")
		}
		w("    ]")
		w("  }")
	}
	w("}")
	return []byte(b.String())
}

func quoted(subjects []string) string {
	out := make([]string, len(subjects))
	for i, s := range subjects {
		out[i] = strconv.Quote(s)
	}
	return strings.Join(out, ", ")
}
