package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsconf"
)

func newNATSConfigCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "nats-config", Short: "Write the configuration of NATS servers with a user and certificate for every node",
	}
	cmd.AddCommand(newNATSConfigWriteCmd(), newNATSConfigProvisionCmd(), newNATSConfigVerifyCmd())
	return cmd
}

// rememberedFlags is the file, in the folder of nats-config write, with the flags of the last run.
const rememberedFlags = "nats-config.yaml"

func defaultNATSConfigWrite() *natsConfigWrite {
	return &natsConfigWrite{
		Globals: []string{"global-0..2"}, Regionals: []string{"regional-0..1"}, Edges: []string{"edge-0..19"},
		Servers: 3, Routes: "nats-{n}.nats.vestibule-{place}.svc",
		ServerNames: []string{
			"nats", "nats.vestibule-{place}.svc", "*.nats.vestibule-{place}.svc", "localhost", "127.0.0.1", "::1",
		},
		Hub: []string{"nats.vestibule-global.svc:7422"}, StoreDir: "/data", Monitor: "127.0.0.1:8222",
		Valid: 365 * 24 * time.Hour,
	}
}

func newNATSConfigWriteCmd() *cobra.Command {
	cfg := defaultNATSConfigWrite()
	cmd := &cobra.Command{
		Use: "write", Short: "Write nats.conf, certificates and Kubernetes objects",
		Long: `Write, for global and for each data centre, a nats.conf, certificates, and the same as objects for Kubernetes. Every node is
a user of its own that may publish and subscribe only as its role needs. Written again, the authority stays, and flags that are not given
are those of the last time. Users are removed with --remove alone.`,
	}
	remove := false
	configured(cmd, cfg, func(cmd *cobra.Command, _ []string) error { return cfg.write(cmd.OutOrStdout(), remove) })
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return remember(cmd) }
	cmd.Flags().BoolVar(&remove, "remove", false, "remove users that are not named; their certificates move to removed/")
	return cmd
}

// remember makes the flags of the last run the configuration file, if no other is named.
func remember(cmd *cobra.Command) error {
	out, err := cmd.Flags().GetString("out")
	if err != nil {
		return err
	}
	file := filepath.Join(cmp.Or(out, os.Getenv("VESTIBULE_OUT")), rememberedFlags)
	if cmd.Flags().Changed("config") || os.Getenv("VESTIBULE_CONFIG") != "" || file == rememberedFlags {
		return nil
	}
	if _, err := os.Stat(file); err != nil {
		return nil //nolint:nilerr // the first run
	}
	return cmd.Flags().Set("config", file)
}

func newNATSConfigProvisionCmd() *cobra.Command {
	cfg := &natsConfigProvision{NATS: node.DefaultClient(), Wait: time.Minute}
	return configured(&cobra.Command{
		Use: "provision", Short: "Create the missing buckets and streams of global or a data centre",
		Long: "Create the missing buckets and streams of global or a data centre: no node may. Run it as the user provision of that place.",
	}, cfg, func(cmd *cobra.Command, _ []string) error { return cfg.provision(cmd) })
}

// natsConfigWrite is the configuration of nats-config write. Names of nodes may be ranges: edge-0..9.
type natsConfigWrite struct {
	Out         string        `mapstructure:"out" doc:"folder to write to; its ca.key can make any user: keep it safe"`
	DataCenters []string      `mapstructure:"data_centers" doc:"names of the data centres"`
	Globals     []string      `mapstructure:"globals" doc:"names of the globals; global-0..2 means three"`
	Regionals   []string      `mapstructure:"regionals" doc:"names of the regionals of every data centre"`
	Edges       []string      `mapstructure:"edges" doc:"names of the edges of every data centre; more than run is fine"`
	Notifiers   []string      `mapstructure:"notifiers" doc:"names of the notifiers"`
	Servers     int           `mapstructure:"servers" doc:"NATS servers of every place: 1, 3 or 5"`
	Routes      string        `mapstructure:"routes" doc:"host of server {n} of {place}, from 0"`
	ServerNames []string      `mapstructure:"server_names" doc:"hosts and addresses of the servers of {place}"`
	Hub         []string      `mapstructure:"hub" doc:"host:port on which global's servers take those of data centres"`
	CertDir     string        `mapstructure:"cert_dir" doc:"where a server of {place} finds its certificates; empty: where they are written"`
	StoreDir    string        `mapstructure:"store_dir" doc:"where a server of {place} keeps JetStream"`
	Monitor     string        `mapstructure:"monitor" doc:"host:port of probes and metrics, for anybody"`
	Ports       []string      `mapstructure:"ports" doc:"PLACE=PORT of clients instead of 4222; the other ports move by as much"`
	Valid       time.Duration `mapstructure:"valid" doc:"life of the certificates"`
	CACert      string        `mapstructure:"ca_cert" doc:"certificate of an authority of your own (PEM)"`
	CAKey       string        `mapstructure:"ca_key" doc:"its ECDSA key (PEM, PKCS 8)"`
}

// plan returns the files to write.
func (c *natsConfigWrite) plan() (*natsconf.Plan, []error) {
	p := &natsconf.Plan{
		DataCenters: c.DataCenters, Servers: c.Servers, Routes: c.Routes, Names: c.ServerNames, Hub: c.Hub,
		CertDir: c.CertDir, StoreDir: c.StoreDir, Monitor: c.Monitor, Valid: c.Valid,
	}
	var errs []error
	for _, l := range []struct {
		key  string
		from []string
		to   *[]string
	}{
		{"globals", c.Globals, &p.Globals},
		{"regionals", c.Regionals, &p.Regionals},
		{"edges", c.Edges, &p.Edges},
		{"notifiers", c.Notifiers, &p.Notifiers},
	} {
		var err error
		if *l.to, err = natsconf.Expand(l.from); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.key, err))
		}
	}
	for _, text := range c.Ports {
		place, port, _ := strings.Cut(text, "=")
		n, err := strconv.Atoi(port)
		if err != nil {
			errs = append(errs, fmt.Errorf("ports: must be PLACE=PORT, such as global=5222, got %q", text))
			continue
		}
		if p.Ports == nil {
			p.Ports = map[string]int{}
		}
		p.Ports[place] = n
	}
	if p.CertDir == "" {
		dir, err := filepath.Abs(filepath.Join(c.Out, "{place}", "servers"))
		if err != nil {
			errs = append(errs, fmt.Errorf("out: %w", err))
		}
		p.CertDir = dir
	}
	return p, errs
}

// Validate implements [node.Config].
func (c *natsConfigWrite) Validate() []error {
	p, errs := c.plan()
	errs = append(errs, p.Validate()...)
	if c.Out == "" {
		errs = append(errs, errors.New("out: must not be empty"))
	}
	if (c.CACert == "") != (c.CAKey == "") {
		errs = append(errs, errors.New("ca_cert, ca_key: must be given together"))
	}
	errs = append(errs, node.CheckFile("ca_cert", c.CACert)...)
	return append(errs, node.CheckFile("ca_key", c.CAKey)...)
}

// natsConfigProvision is the place and the buckets to make.
type natsConfigProvision struct {
	NATS     node.ClientConfig `mapstructure:"nats"`
	Place    string            `mapstructure:"place" doc:"global, or a data centre"`
	Replicas int               `mapstructure:"replicas" doc:"of the buckets: 0 for 3 on a cluster and 1 on a single server, or 1, 3 or 5"`
	Wait     time.Duration     `mapstructure:"wait" doc:"how long to try"`
}

// Validate implements [node.Config].
func (c *natsConfigProvision) Validate() []error {
	errs := c.NATS.Validate("nats")
	if err := wire.CheckName(c.Place); err != nil && c.Place != wire.Root {
		errs = append(errs, fmt.Errorf("place: %w", err))
	}
	errs = append(errs, node.CheckReplicas("replicas", c.Replicas)...)
	if c.Wait <= 0 {
		errs = append(errs, fmt.Errorf("wait: must be above 0, got %v", c.Wait))
	}
	return errs
}

// write writes all files.
func (c *natsConfigWrite) write(stdout io.Writer, remove bool) error {
	p, errs := c.plan()
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	gone, err := p.Unnamed(c.Out)
	if err != nil {
		return err
	}
	if len(gone) > 0 && !remove {
		return fmt.Errorf("%d users would not exist any more, such as %s: name them too, or remove them with --remove",
			len(gone), gone[0])
	}
	now := time.Now()
	ca, err := c.authority(now)
	if err != nil {
		return err
	}
	files, err := p.Files(now, ca)
	if err != nil {
		return err
	}
	if c.CACert == "" {
		key, err := ca.KeyPEM()
		if err != nil {
			return err
		}
		files = append(files, natsconf.File{Path: "ca.key", Data: key, Secret: true})
	}
	kept := *c
	kept.Out = ""
	flags, err := node.File(&kept, defaultNATSConfigWrite())
	if err != nil {
		return err
	}
	files = append(files, natsconf.File{Path: rememberedFlags, Data: flags})
	for _, f := range files {
		name, mode := filepath.Join(c.Out, f.Path), os.FileMode(0o644)
		if f.Secret {
			mode = 0o600
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // secret files have their own mode
			return err
		}
		// The new file replaces the old one by a rename: a server may be reading it.
		if err := os.WriteFile(name+".new", f.Data, mode); err != nil {
			return err
		}
		if err := os.Rename(name+".new", name); err != nil {
			return err
		}
	}
	if err := natsconf.Remove(c.Out, gone); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout,
		"%s: NATS servers of global, %s; %d users removed. After the reload of each server: vestibule nats-config verify\n",
		c.Out, strings.Join(c.DataCenters, ", "), len(gone))
	return err
}

// natsConfigVerify is the folder and the place of nats-config verify.
type natsConfigVerify struct {
	Out   string `mapstructure:"out" doc:"folder of nats-config write"`
	Place string `mapstructure:"place" doc:"global, or a data centre"`
	NATS  struct {
		URL string `mapstructure:"url" doc:"addresses of its servers, with commas; each is asked"`
	} `mapstructure:"nats"`
}

// Validate implements [node.Config].
func (c *natsConfigVerify) Validate() (errs []error) {
	if c.Out == "" {
		errs = append(errs, errors.New("out: must not be empty"))
	}
	if err := wire.CheckName(c.Place); err != nil && c.Place != wire.Root {
		errs = append(errs, fmt.Errorf("place: %w", err))
	}
	if c.NATS.URL == "" {
		errs = append(errs, errors.New("nats.url: must not be empty"))
	}
	return errs
}

func newNATSConfigVerifyCmd() *cobra.Command {
	cfg := &natsConfigVerify{}
	return configured(&cobra.Command{
		Use: "verify", Short: "Check that the servers of a place let in the users of the last write, and no removed one",
		Long: `Check each server of a place: every user of the last nats-config write connects with its certificate and reads what its role
reads, and every removed one is refused. Run it after each reload.`,
	}, cfg, func(cmd *cobra.Command, _ []string) error {
		for url := range strings.SplitSeq(cfg.NATS.URL, ",") {
			n, err := natsconf.Verify(cmd.Context(), cfg.Out, cfg.Place, url)
			if advice := natsconf.Advice(err); advice != "" {
				return fmt.Errorf("%s:\n%w\n%s", url, err, advice)
			}
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d users are let in and %d removed ones are refused\n", url,
				n.Users, n.Removed); err != nil {
				return err
			}
		}
		return nil
	})
}

// authority returns the named authority, the one made before, or a new one.
func (c *natsConfigWrite) authority(now time.Time) (*natsconf.Authority, error) {
	cert, key := c.CACert, c.CAKey
	if cert == "" {
		cert, key = filepath.Join(c.Out, "ca.crt"), filepath.Join(c.Out, "ca.key")
		if _, err := os.Stat(key); errors.Is(err, os.ErrNotExist) {
			return natsconf.NewAuthority(rand.Reader, now)
		}
	}
	certPEM, err := os.ReadFile(cert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(key)
	if err != nil {
		return nil, err
	}
	ca, err := natsconf.LoadAuthority(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", cert, key, err)
	}
	return ca, nil
}

// provision makes the buckets and streams of a place. It retries until they exist: the servers may not have found each
// other yet.
func (c *natsConfigProvision) provision(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), c.Wait)
	defer cancel()
	log := node.NewLogger(cmd.ErrOrStderr(), node.LogConfig{Level: "error", Format: "text"})
	inbox := natsbus.NodeInbox(natsbus.RoleProvision, c.Place, string(natsbus.RoleProvision))
	conn, err := natsbus.Connect(c.NATS.Options("vestibule-provision", inbox, log))
	if err != nil {
		return err
	}
	defer conn.Close()
	var all []string
	for {
		err := wire.ErrDown
		if conn.Connected() {
			var made []string
			try, done := context.WithTimeout(ctx, 10*time.Second)
			made, err = conn.Provision(try, c.Place, node.BucketReplicas(c.Replicas))
			done()
			all = append(all, made...)
		}
		if _, differ := errors.AsType[*natsbus.ReplicasError](err); err == nil || differ {
			_, printed := fmt.Fprintf(cmd.OutOrStdout(), "streams of %s: %s; made now: %s\n", c.Place,
				strings.Join(natsbus.Streams(c.Place), ", "), cmp.Or(strings.Join(all, ", "), "none"))
			return errors.Join(err, printed)
		}
		select {
		case <-ctx.Done():
			if why := conn.Refused(); why != "" {
				err = errors.New(why)
			}
			return fmt.Errorf("not within %v: %w%s", c.Wait, err, cause(&c.NATS, "vestibule-provision", inbox, natsbus.Streams(c.Place)[0]))
		case <-time.After(250 * time.Millisecond):
		}
	}
}
