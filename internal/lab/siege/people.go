package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"vestibule/internal/lab/visitor"
)

// person is a visitor with a session, or one that waits.
type person struct {
	visitor.Visitor
	path    string
	session bool
}

// newPeople returns n visitors behind one address: every second one is to have a session, the others wait.
func newPeople(at string, from net.IP, n int) *people {
	dial := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	c := &http.Client{
		Transport: &http.Transport{DialContext: dial.DialContext, DisableKeepAlives: true, DisableCompression: true},
		Timeout:   5 * time.Second,
	}
	p := &people{at: "http://" + at}
	for i := range n {
		v := &person{Visitor: visitor.Visitor{Client: c, Host: host, Site: siteHeader}, path: sale, session: i%2 == 0}
		if !v.session {
			v.path = queue
		}
		p.all = append(p.all, v)
	}
	return p
}

// errWaits means that a visitor waits that is to have a session.
var errWaits = errors.New("a visitor with a session waits")

// ask asks for the person's page over a connection of its own.
func (p *person) ask(ctx context.Context, at string) error {
	req, err := p.Request(ctx, at+p.path)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/html")
	a, err := p.Do(req)
	switch {
	case err != nil:
		return err
	case a.Status != http.StatusOK:
		return fmt.Errorf("status %d", a.Status)
	case p.session && !a.Inside:
		return errWaits
	case !p.session && a.Inside:
		return errors.New("a visitor that is to wait is inside")
	}
	return nil
}

// people are the visitors beside an attack.
type people struct {
	at  string
	all []*person
}

// gather lets visitors in, and others join the line.
func gather(ctx context.Context, f *fleet, n int) (*people, error) {
	p := newPeople(f.plain, net.IPv4(127, 0, 0, 1), n)
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

// seen is the experience of the visitors.
type seen struct {
	n, failed, session int           // requests, failed ones, and those of visitors with a session
	p99, quick         time.Duration // of all, and of visitors with a session: others may be held for a second
	first              error
}

func (s seen) String() string {
	text := fmt.Sprintf("%d of those with a session and %d of %d in all failed, p99 %v and %v", s.session, s.failed, s.n,
		s.quick.Round(time.Millisecond), s.p99.Round(time.Millisecond))
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
	var took, quick []time.Duration
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
				if v.session {
					quick = append(quick, time.Since(begun))
				}
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
	slices.Sort(quick)
	s.n, s.p99, s.quick = len(took), took[len(took)*99/100], quick[len(quick)*99/100]
	return s
}

// askBeside asks while another process attacks.
func (p *people) askBeside(ctx context.Context, f *fleet, attack string, secure bool, length time.Duration) (s seen,
	err error,
) {
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
	<-time.After(held / opened * time.Second) // it takes what it can get
	return p.ask(ctx, length), nil
}

// crowd has honest visitors behind one address ask, half of them with a session, and returns how many requests fail.
func crowd(ctx context.Context, f *fleet, n int) (refused, asked int) {
	p := newPeople(f.plain, net.IPv4(127, 8, 8, 8), n)
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
		if err != nil && !errors.Is(err, errWaits) { // it may wait for a second for its permit
			refused++
			first = err
		}
	}
	if first != nil {
		fmt.Printf("one of the crowd: %v\n", first)
	}
	return refused, asked
}
