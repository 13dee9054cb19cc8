package notices

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
)

// Options are the parts of a sender.
type Options struct {
	Name    string // of this candidate
	Docs    wire.DocumentStore
	Journal *audit.Journal                                             // nil for none
	Time    func() fleettime.Time                                      // fleet time
	Look    func() *Seen                                               // nil while the state is unknown
	Post    func(context.Context, time.Time, *Webhook, *Notice) Result // as [Poster.Post]
	Count   func(result string, n int)                                 // counts attempts and dropped notices
	Log     *slog.Logger
}

// Sender sends operators the notices of one term. [Sender.Alarms] is safe for concurrent use; all else belongs
// to the goroutine of Run.
type Sender struct {
	Options
	hooks  Webhooks
	random *rand.Rand

	doc      *document // nil until it is read
	revision uint64
	dirty    bool // doc differs from the store
	unstored bool // doc has notices that are not stored

	targets  map[string]*Webhook // by ID
	listedAt time.Time
	sending  map[string]bool // targets with an attempt under way
	results  chan attempt
	failing  bool // the store, as last logged

	mu     sync.Mutex
	alarms []string
}

// attempt is a finished one.
type attempt struct {
	target string
	notice *Notice
	Result
}

const (
	lookEvery = time.Second
	listEvery = 5 * time.Second
	storeIn   = 3 * time.Second
)

// documentKey is the key of the stored document.
const documentKey = "notices"

// NewSender returns the sender of a term.
func NewSender(o Options) *Sender {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // it never fails
	return &Sender{
		Options: o, hooks: Webhooks{o.Docs}, random: rand.New(rand.NewChaCha8(seed)),
		sending: map[string]bool{}, results: make(chan attempt, MaxWebhooks+1),
	}
}

// Alarms describes the webhooks that failed for so long that they are off.
func (s *Sender) Alarms() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alarms
}

// Run sends notices until ctx ends, which ends the attempts under way.
func (s *Sender) Run(ctx context.Context) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-s.results:
			s.take(ctx, a)
		case now := <-tick.C:
			err := s.follow(ctx, now)
			if err == nil && s.dirty {
				err = s.store(ctx)
			}
			s.trouble(err)
		}
		if s.doc != nil && !s.unstored {
			s.send(ctx, &attempts)
		}
	}
}

// trouble logs when errors of the store begin and end.
func (s *Sender) trouble(err error) {
	if errors.Is(err, context.Canceled) || (err != nil) == s.failing {
		return
	}
	if s.failing = err != nil; s.failing {
		s.Log.Warn("notices to operators are late: they are sent once they can be stored", slog.Any("error", err))
	} else {
		s.Log.Info("notices to operators can be stored again")
	}
}

// follow reads what is missing, and queues the notices that are due.
func (s *Sender) follow(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, storeIn)
	defer cancel()
	if err := s.list(ctx, now); err != nil {
		return err
	}
	if s.doc == nil {
		if err := s.read(ctx); err != nil {
			return err
		}
	}
	if s.doc.Outbox.Keep(slices.Sorted(maps.Keys(s.targets))) {
		s.dirty = true
	}
	if len(s.targets) == 0 { // a later webhook gets no notice of earlier changes
		if s.doc.Watch.Rooms != nil {
			s.doc.Watch, s.dirty = Watch{}, true
		}
		return nil
	}
	at := s.Time()
	seen := s.Look()
	if seen == nil {
		return nil
	}
	due, changed := s.doc.Watch.Step(at, seen)
	s.dirty = s.dirty || changed
	for i := range due {
		s.queue(at, &due[i])
	}
	return nil
}

// queue queues a notice for the targets that take it.
func (s *Sender) queue(at fleettime.Time, n *Notice) {
	s.Log.Info("notice", slog.String("kind", string(n.Kind)), slog.String("id", n.ID), slog.String("text", n.Data.Text))
	for id, w := range s.targets {
		if !w.Takes(n) {
			continue
		}
		s.unstored = true
		if lost := s.doc.Outbox.Add(at, id, n); lost > 0 {
			s.Count(dropped, lost)
			s.Log.Warn("the oldest notices of a target are dropped: too many are undelivered",
				slog.String("target", id), slog.Int("notices", lost))
		}
	}
}

// list reads the webhooks.
func (s *Sender) list(ctx context.Context, now time.Time) error {
	if now.Sub(s.listedAt) < listEvery {
		return nil
	}
	hooks, err := s.hooks.List(ctx)
	if err != nil {
		return err
	}
	s.listedAt, s.targets = now, map[string]*Webhook{}
	var off []string
	for _, id := range slices.Sorted(maps.Keys(hooks)) {
		w := hooks[id]
		switch {
		case len(s.targets) > MaxWebhooks: // two editors at once
		case w.Off == nil:
			s.targets[id] = w
		case w.Off.Failed:
			off = append(off, fmt.Sprintf(
				"webhook %s (%s) is off since %s: %s; repair its receiver, then vestibule webhooks enable %s",
				w.Name, id, w.Off.At.UTC().Format(time.RFC3339), w.Off.Why, id))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarms = off
	return nil
}

func (s *Sender) read(ctx context.Context) error {
	data, revision, err := s.Docs.Get(ctx, documentKey)
	if err != nil {
		return err
	}
	doc := &document{}
	if data != nil {
		if doc, err = decodeDocument(data); err != nil { // nothing can repair it but a new one
			s.Log.Error("the stored notices are lost: the present state is sent again", slog.Any("error", err))
			doc = &document{}
		}
	}
	s.doc, s.revision, s.dirty, s.unstored = doc, revision, false, false
	return nil
}

// store writes the document. If another leader wrote it, its document counts, and this one is read again.
func (s *Sender) store(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeIn)
	defer cancel()
	data, err := s.doc.encode()
	if err == nil && len(data) > s.Docs.Limit() {
		err = fmt.Errorf("notices: %d bytes, and the store takes %d", len(data), s.Docs.Limit())
	}
	if err != nil {
		return err
	}
	revision, err := s.Docs.Put(ctx, documentKey, data, s.revision)
	if errors.Is(err, wire.ErrChanged) {
		s.doc, s.dirty, s.unstored = nil, false, false
		return nil
	}
	if err != nil {
		return err
	}
	s.revision, s.dirty, s.unstored = revision, false, false
	return nil
}

// send starts the attempts that are due, one for each target at a time.
func (s *Sender) send(ctx context.Context, attempts *sync.WaitGroup) {
	now := s.Time()
	for id, w := range s.targets {
		if s.sending[id] {
			continue
		}
		n := s.doc.Outbox.Due(now, id)
		if n == nil {
			continue
		}
		s.sending[id] = true
		attempts.Go(func() {
			r := s.Post(ctx, time.Now(), w, n)
			select {
			case s.results <- attempt{id, n, r}:
			case <-ctx.Done():
			}
		})
	}
}

// take takes the result of an attempt.
func (s *Sender) take(ctx context.Context, a attempt) {
	delete(s.sending, a.target)
	if s.doc == nil || ctx.Err() != nil {
		return // the successor tries again
	}
	outcome := s.doc.Outbox.Done(s.Time(), a.target, a.notice.ID, a.Result, s.random)
	s.dirty = true
	s.Count(outcome.String(), 1)
	if a.Err == nil {
		return
	}
	log := s.Log.With(slog.String("target", a.target), slog.String("id", a.notice.ID), slog.Any("error", a.Err))
	switch outcome {
	case GivenUp:
		log.Error("a notice is given up")
	case TurnOff:
		if err := s.turnOff(ctx, a); err != nil {
			log.Warn("a webhook is not turned off yet", slog.Any("store", err))
		}
	case Delivered, Retry:
		log.Debug("a notice is not delivered yet")
	}
}

// turnOff turns off a webhook that wants no more, or failed for too long.
func (s *Sender) turnOff(ctx context.Context, a attempt) error {
	ctx, cancel := context.WithTimeout(ctx, storeIn)
	defer cancel()
	w, revision, err := s.hooks.Get(ctx, a.target)
	if err != nil || w == nil || w.Off != nil {
		return err
	}
	s.listedAt = time.Time{}
	off := *w
	why := fmt.Sprintf("it failed for %v: %v", offAfter, a.Err)
	if a.Gone {
		why = "its receiver answered 410: it wants no more"
	}
	off.Off = &Off{At: time.Now().UTC().Truncate(time.Second), Why: why, Failed: true}
	if err := s.note(ctx, a.target, w, &off); err != nil {
		return err
	}
	if err := s.hooks.Put(ctx, a.target, &off, revision); err != nil {
		return err
	}
	delete(s.targets, a.target)
	return nil
}

// note adds an audit entry about a webhook before it is turned off.
func (s *Sender) note(ctx context.Context, id string, before, after *Webhook) error {
	if s.Journal == nil {
		return nil
	}
	by := audit.By{Name: "a global that leads", From: s.Name, Operation: "turn-off-webhook"}
	e, err := audit.Of(time.Now(), by, webhookKeys+id, before.Audited(), after.Audited())
	if err != nil {
		return err
	}
	return s.Journal.Add(ctx, e)
}
