package sim

import (
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	for _, f := range []func(*Config){
		func(c *Config) {
			c.Session = time.Minute
			c.Rate = 3000
			c.Demand.PerMinute = 4000
			c.Length = 10 * time.Minute
		},
		func(c *Config) { c.Total = 10; c.Rate = 60; c.Session = time.Minute; c.Demand.PerMinute = 20 },
		func(c *Config) {
			c.Total = 3
			c.Rate = 60
			c.Session = time.Minute
			c.Demand.PerMinute = 1
			c.People.Pages = 3
			c.Length = 300 * time.Minute
		},
		func(c *Config) { c.Demand.PerMinute = 200; c.Rate = 2000 },
	} {
		cfg := Defaults()
		f(&cfg)
		r := New(cfg).Run()
		t.Log("\n" + r.Table())
		t.Log(r.Reasons)
		if r.Fault != "" {
			t.Error(r.Fault)
		}
	}
}
