package notify

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"vestibule/internal/core/push"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// Config is the configuration of a notifier.
type Config struct {
	Name     string             `mapstructure:"name" doc:"name, unique in the fleet"`
	Contact  string             `mapstructure:"contact" doc:"the operator's address for push services, mailto: or https:; some refuse an invented one"`
	Services []string           `mapstructure:"services" doc:"hosts of push services"`
	Networks []string           `mapstructure:"networks" doc:"private networks that are reached too"`
	NATS     node.ClientConfig  `mapstructure:"nats"`
	Log      node.LogConfig     `mapstructure:"log"`
	Metrics  node.MetricsConfig `mapstructure:"metrics"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	base := node.DefaultBase("notifier")
	return Config{
		Name: "notifier-1", NATS: node.DefaultClient(), Services: push.DefaultServices, Log: base.Log, Metrics: base.Metrics,
	}
}

// Validate implements [node.Config].
func (c *Config) Validate() []error {
	base := c.base()
	errs := append(base.Validate(), c.NATS.Validate("nats")...)
	if err := wire.CheckName(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("name: %w", err))
	}
	if !isContact(c.Contact) {
		errs = append(errs, fmt.Errorf("contact: must be an address such as mailto:ops@shop.example, got %q", c.Contact))
	}
	if why := push.Services(c.Services).Check(); why != "" {
		errs = append(errs, errors.New("services: "+why))
	}
	_, err := c.networks()
	return append(errs, err...)
}

// base returns the settings that the listeners of nodes need.
func (c *Config) base() node.Base {
	return node.Base{DataDir: "-", Log: c.Log, Metrics: c.Metrics}
}

func isContact(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	return u.Scheme == "mailto" && strings.Contains(u.Opaque, "@") || u.Scheme == "https" && u.Host != ""
}

func (c *Config) networks() (out []netip.Prefix, errs []error) {
	for i, text := range c.Networks {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("networks[%d]: must be a network such as 10.1.0.0/16, got %q", i, text))
			continue
		}
		out = append(out, p.Masked())
	}
	return out, errs
}
