package regional

import (
	"errors"
	"fmt"

	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Config is the configuration of a regional.
type Config struct {
	node.Base  `mapstructure:",squash"`
	DataCenter string            `mapstructure:"data_center" doc:"data centre of this regional; required"`
	Name       string            `mapstructure:"name" doc:"name of this candidate, unique in its data centre"`
	NATS       node.ServerConfig `mapstructure:"nats"`
	// for global and the documents; without a URL: the same connection, with this domain
	Upstream  node.ClientConfig `mapstructure:"upstream"`
	Bootstrap bool              `mapstructure:"bootstrap" doc:"assert that this data centre is new and that no edge of it ever admitted anybody"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Base: node.DefaultBase("regional"), Name: "regional-1",
		NATS: node.DefaultServer(),
	}
}

// Validate implements [node.Config].
func (c *Config) Validate() []error {
	errs := append(c.Base.Validate(), c.NATS.Validate()...)
	errs = append(errs, c.Upstream.Validate("upstream")...)
	if c.Upstream.URL == "" && (c.Upstream.Creds != "" || c.Upstream.CA != "" || c.Upstream.Cert != "") {
		errs = append(errs, errors.New("upstream.creds, upstream.ca, upstream.cert: need upstream.url"))
	}
	if err := wire.CheckName(c.DataCenter); err != nil {
		errs = append(errs, fmt.Errorf("data_center: %w", err))
	}
	if err := wire.CheckName(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("name: %w", err))
	}
	return errs
}

// Doubts implements [node.Doubter]. It returns why NATS cannot be used now.
func (c *Config) Doubts() (doubts []string) {
	inbox := natsbus.NodeInbox(natsbus.RoleRegional, c.DataCenter, c.Name)
	if !c.NATS.Embedded {
		doubts = node.DoubtNATS("nats", &c.NATS.ClientConfig, c.Name, inbox, natsbus.LeasesStream)
	}
	return append(doubts, node.DoubtNATS("upstream", &c.Upstream, c.Name, inbox, natsbus.DocumentsStream)...)
}
