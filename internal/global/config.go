package global

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Config is the configuration of a global.
type Config struct {
	node.Base   `mapstructure:",squash"`
	Name        string            `mapstructure:"name" doc:"name of this candidate, unique among globals"`
	DataCenters []string          `mapstructure:"data_centers" doc:"names of the data centres that found the fleet, the same at every global; required. Later vestibule fleet changes the list"`
	Rooms       string            `mapstructure:"rooms" doc:"YAML file with the rooms, followed while running, the same at every global; empty for none: the store holds the rooms"`
	KeyRotation time.Duration     `mapstructure:"key_rotation" doc:"how long one ticket key seals before the next: at least 10m, 0 for ever"`
	DrawBeacon  string            `mapstructure:"draw_beacon" doc:"public beacon of draws, beside a secret: none; preferred: drand's quicknet, without it after 20 s; required: nobody enters without it"`
	DrawMirrors []string          `mapstructure:"draw_mirrors" doc:"addresses of drand's HTTP API, such as https://api.drand.sh, 8 at most"`
	Control     ControlConfig     `mapstructure:"control"`
	Notices     NoticesConfig     `mapstructure:"notices"`
	NATS        node.ServerConfig `mapstructure:"nats"`
	Bootstrap   bool              `mapstructure:"bootstrap" doc:"assert that nothing was ever granted: do not wait for data centres that have not been heard; ignored once a global led, or a list of data centres exists"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Base: node.DefaultBase("global"), Name: "global-1", Rooms: "rooms.yaml", KeyRotation: 24 * time.Hour,
		DrawBeacon: draw.BeaconNone, NATS: node.DefaultServer(),
	}
}

// Validate implements [node.Config].
func (c *Config) Validate() []error {
	errs := append(c.Base.Validate(), c.NATS.Validate()...)
	errs = append(errs, c.Control.Validate()...)
	errs = append(errs, c.Notices.Validate()...)
	if err := wire.CheckName(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("name: %w", err))
	}
	if len(c.DataCenters) == 0 {
		errs = append(errs, errors.New("data_centers: at least one must be named"))
	}
	for i, name := range c.DataCenters {
		if err := node.CheckMember(name, c.DataCenters[:i]); err != nil {
			errs = append(errs, fmt.Errorf("data_centers[%d]: %w", i, err))
		}
	}
	if c.KeyRotation != 0 && c.KeyRotation < ticket.MinRotation {
		errs = append(errs, fmt.Errorf("key_rotation: must be 0 or at least %v, got %v", ticket.MinRotation, c.KeyRotation))
	}
	errs = append(errs, c.checkBeacon()...)
	if c.Rooms == "" {
		return errs
	}
	if _, _, _, err := readRooms(c.Rooms); err != nil {
		for _, fault := range split(err) {
			errs = append(errs, fmt.Errorf("rooms: %w", fault))
		}
	}
	return errs
}

// checkBeacon returns the faults of the draw beacon's configuration.
func (c *Config) checkBeacon() (errs []error) {
	switch c.DrawBeacon {
	case draw.BeaconNone:
	case draw.BeaconPreferred, draw.BeaconRequired:
		if len(c.DrawMirrors) == 0 {
			errs = append(errs, fmt.Errorf("draw_mirrors: at least one must be named where draw_beacon is %s", c.DrawBeacon))
		}
	default:
		errs = append(errs, fmt.Errorf("draw_beacon: must be none, preferred or required, got %q", c.DrawBeacon))
	}
	if len(c.DrawMirrors) > maxMirrors {
		errs = append(errs, fmt.Errorf("draw_mirrors: must be at most %d, got %d", maxMirrors, len(c.DrawMirrors)))
	}
	for i, m := range c.DrawMirrors {
		if u, err := url.Parse(m); err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") ||
			u.RawQuery != "" {
			errs = append(errs, fmt.Errorf("draw_mirrors[%d]: must be an address such as https://api.drand.sh, got %q", i, m))
		}
	}
	return errs
}

// maxMirrors bounds the mirrors asked at the same time.
const maxMirrors = 8

// Doubts implements [node.Doubter]. It returns the settings of the waiting pages that are valid but probably
// unintended, and why NATS cannot be used now.
func (c *Config) Doubts() (doubts []string) {
	if !c.NATS.Embedded {
		doubts = node.DoubtNATS("nats", &c.NATS.ClientConfig, c.Name,
			natsbus.NodeInbox(natsbus.RoleGlobal, wire.Root, c.Name), natsbus.LeasesStream)
	}
	if c.Rooms == "" {
		return doubts
	}
	doc, _, rooms, err := readRooms(c.Rooms)
	if err != nil {
		return doubts // Validate reports it
	}
	for _, d := range rooms {
		doubts = append(doubts, "rooms: "+d)
	}
	own := node.Configured(c.Control.Listen, c.Metrics.Listen, c.Profiles.Listen, c.NATS.Listen, c.NATS.Leafs)
	find := func(ctx context.Context, sites []string) map[string]string {
		return node.OwnSites(ctx, sites, own, nil)
	}
	if err := ownFaults(context.Background(), doc, nil, find); err != nil {
		for _, fault := range split(err) {
			doubts = append(doubts, fmt.Sprintf("rooms: %v: it is refused, unless it is in use", fault))
		}
	}
	return doubts
}

// split returns the errors joined in err.
func split(err error) []error {
	if faults, ok := errors.AsType[room.Faults](err); ok {
		var out []error
		for _, f := range faults {
			out = append(out, f)
		}
		return out
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok { // only the result of errors.Join
		return many.Unwrap()
	}
	return []error{err}
}

// NoticesConfig configures the webhooks.
type NoticesConfig struct {
	Networks []string `mapstructure:"networks" doc:"private networks that webhooks may reach, such as 10.1.0.0/16, beside public addresses"`
}

// Validate returns every fault of the keys below notices.
func (c *NoticesConfig) Validate() []error {
	var errs []error
	if _, err := c.networks(); err != nil {
		errs = split(err)
	}
	return errs
}

func (c *NoticesConfig) networks() (out []netip.Prefix, err error) {
	for i, text := range c.Networks {
		p, e := netip.ParsePrefix(text)
		if e != nil {
			e = fmt.Errorf("notices.networks[%d]: must be a network such as 10.1.0.0/16, got %q", i, text)
			err = errors.Join(err, e)
			continue
		}
		out = append(out, p.Masked())
	}
	return out, err
}
