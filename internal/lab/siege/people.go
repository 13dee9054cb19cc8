package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// person is a visitor with a session, or one that waits.
type person struct {
	path    string
	cookies string
	session bool
	from    net.IP
}

// ask asks for the person's page over a connection of its own.
func (p *person) ask(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: p.from}}).DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/html\r\nCookie: %s\r\nConnection: close\r\n\r\n", p.path, host, p.cookies); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	for _, cookie := range res.Cookies() {
		if cookie.MaxAge >= 0 {
			p.cookies = cookie.Name + "=" + cookie.Value
		}
	}
	if waits := res.Header.Get("Vestibule-Decision") == "wait"; res.StatusCode != http.StatusOK || waits == p.session {
		return fmt.Errorf("status %d, waits %v", res.StatusCode, waits)
	}
	return nil
}

// people are the visitors beside an attack.
type people struct {
	at  string
	all []*person
}

// gather lets visitors in, and others join the line.
func gather(ctx context.Context, f *fleet, in, waiting int) (*people, error) {
	p := &people{at: f.plain}
	for i := range in + waiting {
		v := &person{path: inside, session: true, from: net.IPv4(127, 0, 0, 1)}
		if i >= in {
			v.path, v.session = queue, false
		}
		p.all = append(p.all, v)
	}
	return p, p.enter(ctx)
}

// enter asks for everybody until each has got in or has a place.
func (p *people) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, v := range p.all {
		for err := v.ask(ctx, p.at); err != nil; err = v.ask(ctx, p.at) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("a visitor gets no answer: %w", err)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

// seen is what the visitors have noticed.
type seen struct {
	n, failed, session int // requests, failed ones, and those of visitors with a session
	p99                time.Duration
	first              error
}

func (s seen) String() string {
	text := fmt.Sprintf("%d of those with a session and %d of %d in all failed, p99 %v", s.session, s.failed, s.n, s.p99.Round(time.Millisecond))
	if s.first != nil {
		text += fmt.Sprintf(" (%v)", s.first)
	}
	return text
}

// pause is the time between two requests of a visitor.
const pause = 500 * time.Millisecond

func (p *people) ask(ctx context.Context, length time.Duration) (s seen) {
	ctx, cancel := context.WithTimeout(ctx, length+10*time.Second)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	end := time.Now().Add(length)
	for i, v := range p.all {
		all.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			<-time.After(pause * time.Duration(i) / time.Duration(len(p.all)))
			for time.Now().Before(end) {
				begun := time.Now()
				err := v.ask(ctx, p.at)
				mu.Lock()
				took = append(took, time.Since(begun))
				if err != nil {
					s.failed++
					s.first = errors.Join(s.first, err)
					if s.failed > 1 {
						s.first = err
					}
					if v.session {
						s.session++
					}
				}
				mu.Unlock()
				<-tick.C
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	s.n = len(took)
	s.p99 = took[len(took)*99/100]
	return s
}

// askBeside asks while another process attacks.
func (p *people) askBeside(ctx context.Context, f *fleet, attack string, secure bool, length time.Duration) (s seen, err error) {
	at := f.plain
	if secure {
		at = f.tls
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-attack", attack, "-at", at, fmt.Sprintf("-secure=%v", secure))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return s, err
	}
	defer func() {
		err = errors.Join(err, cmd.Process.Kill())
		cmd.Wait() //nolint:errcheck // it was killed
		<-time.After(time.Second)
	}()
	<-time.After(3 * time.Second) // it takes what it can get
	return p.ask(ctx, length), nil
}

// crowd has honest visitors behind one address ask, half of them with a session, and returns how many requests fail.
func crowd(ctx context.Context, f *fleet, n int) (refused, asked int) {
	p := &people{at: f.plain}
	from := net.IPv4(127, 8, 8, 8)
	for i := range n {
		v := &person{path: inside, session: true, from: from}
		if i%2 == 1 {
			v.path, v.session = queue, false
		}
		p.all = append(p.all, v)
	}
	work, results := make(chan *person), make(chan error, 64)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for v := range work {
				results <- v.ask(ctx, p.at)
			}
		})
	}
	go func() {
		for range 3 { // it comes, and asks twice more
			for _, v := range p.all {
				work <- v
			}
		}
		close(work)
		all.Wait()
		close(results)
	}()
	var first error
	for err := range results {
		asked++
		if err != nil && !strings.Contains(err.Error(), "waits true") { // it may wait for a second for its permit
			refused++
			first = err
		}
	}
	if first != nil {
		fmt.Printf("one of the crowd: %v\n", first)
	}
	return refused, asked
}
