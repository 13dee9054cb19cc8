//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// gateway is a toxiproxy in a place, with one proxy per port of the NATS servers, to delay the messages of that place.
type gateway struct {
	api     string // "http://10.77.1.1:8474"
	proxies []string
	through map[string]string // by host and port of a NATS server: those of its proxy
	ask     *http.Client
}

// startGateways starts one toxiproxy per place, if available.
func (b *bus) startGateways(context.Context) error {
	if b.o.toxiproxy == "" {
		return nil
	}
	b.gates = map[string]*gateway{}
	for i, place := range places {
		host := b.net.addr(place)
		var servers []string
		for _, n := range b.nats {
			if n.reached(place) {
				servers = append(servers, n.client)
			}
			if n.leaf != "" {
				servers = append(servers, n.leaf)
			}
		}
		ports := make([]int, 1+len(servers))
		for k := range ports {
			var err error
			if ports[k], err = b.net.port(place, 100+100*i+k); err != nil {
				return err
			}
		}
		n := &node{name: place + "/toxiproxy", role: "toxiproxy", place: place, argv: []string{b.o.toxiproxy, "-host", host, "-port", fmt.Sprint(ports[0])}}
		if err := b.add(n); err != nil {
			return err
		}
		g := &gateway{api: "http://" + join(host, ports[0]), through: map[string]string{}, ask: &http.Client{Timeout: 10 * time.Second}}
		if err := b.wait(20*time.Second, func() error { return g.call(http.MethodGet, "/version", nil) }); err != nil {
			return err
		}
		for k, upstream := range servers {
			name, listen := fmt.Sprintf("nats-%d", k+1), join(host, ports[k+1])
			if err := g.call(http.MethodPost, "/proxies", map[string]any{"name": name, "listen": listen, "upstream": upstream, "enabled": true}); err != nil {
				return err
			}
			g.proxies = append(g.proxies, name)
			g.through[upstream] = listen
		}
		b.gates[place] = g
	}
	return nil
}

// late delays every message between the place and the NATS servers by about the given time, plus or minus half, each
// way. It keeps their order, as a connection does.
func (g *gateway) late(by time.Duration) (heal func() error, err error) {
	heal = func() error {
		return g.each(func(toxics, stream string) error { return g.insist(http.MethodDelete, toxics+"/"+stream, nil) })
	}
	return heal, g.each(func(toxics, stream string) error {
		return g.insist(http.MethodPost, toxics, map[string]any{
			"name": stream, "type": "latency", "stream": stream, "toxicity": 1,
			"attributes": map[string]int64{"latency": by.Milliseconds(), "jitter": by.Milliseconds() / 2},
		})
	})
}

// insist changes toxics, and retries without an answer: toxiproxy waits for pending data, sometimes for longer than our
// timeout.
func (g *gateway) insist(method, path string, body any) (err error) {
	for range 3 {
		if err = g.call(method, path, body); err == nil || errors.Is(err, errDone) {
			return nil
		}
	}
	return err
}

// each calls do for both directions of every proxy.
func (g *gateway) each(do func(toxics, stream string) error) error {
	var errs []error
	for _, p := range g.proxies {
		for _, s := range []string{"upstream", "downstream"} {
			errs = append(errs, do("/proxies/"+p+"/toxics", s))
		}
	}
	return errors.Join(errs...)
}

// errDone reports that the toxic to delete does not exist, or the one to create does.
var errDone = errors.New("toxiproxy: done already")

// call sends a request to toxiproxy.
func (g *gateway) call(method, path string, body any) (err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequest(method, g.api+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := g.ask.Do(r)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	switch {
	case err != nil:
	case method == http.MethodDelete && resp.StatusCode == http.StatusNotFound, method == http.MethodPost && resp.StatusCode == http.StatusConflict:
		err = errDone
	case resp.StatusCode >= 300:
		err = fmt.Errorf("toxiproxy: %s %s: %s: %s", method, path, resp.Status, answer)
	}
	return errors.Join(err, resp.Body.Close())
}
