package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/notices"
	"vestibule/internal/global/roomstore"
)

// webhookService serves the webhooks that notices are posted to.
type webhookService struct {
	auditor
	rooms   *catalog
	clock   clock
	hooks   notices.Webhooks
	post    func(context.Context, time.Time, *notices.Webhook, *notices.Notice) notices.Result
	refuses func(url string) error // nil if it is posted to
}

const maxWebhookRooms = 100

var webhookFields = []string{"name", "url", "kinds", "rooms", "enabled", "rotate_secret"}

var webhookID = regexp.MustCompile(`^[A-Z2-7]{12}$`)

// showWebhook returns a webhook for an answer; key is a new secret, "" for none.
func showWebhook(id string, w *notices.Webhook, key notices.Key) api.Webhook {
	out := api.Webhook{
		Id: id, Name: w.Name, Url: w.URL, CreatedOn: w.Created, Enabled: w.Off == nil,
		Kinds: []string{}, Rooms: append([]string{}, w.Rooms...),
	}
	for _, k := range w.Kinds {
		out.Kinds = append(out.Kinds, string(k))
	}
	if w.Off != nil {
		out.DisabledOn, out.DisabledBecause = &w.Off.At, &w.Off.Why
	}
	if key != "" {
		text := string(key)
		out.Secret = &text
	}
	return out
}

func (s *webhookService) list(ctx context.Context, _ *request) (any, error) {
	all, err := s.hooks.List(ctx)
	if err != nil {
		return nil, err
	}
	out := []api.Webhook{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, showWebhook(id, all[id], ""))
	}
	return complete(out), nil
}

func (s *webhookService) create(ctx context.Context, q *request) (any, error) {
	w := &notices.Webhook{Created: s.clock.now().UTC().Truncate(time.Second)}
	key, err := s.read(ctx, q, w, true)
	if err != nil {
		return nil, err
	}
	all, err := s.hooks.List(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) >= notices.MaxWebhooks {
		var f faults
		f.add("", "there are %d webhooks, which is the most: delete some", len(all))
		return nil, f.err()
	}
	id := rand.Text()[:tokenIDLen]
	err = s.change(ctx, id, nil, w, func() error { return s.hooks.Put(ctx, id, w, 0) })
	if err != nil {
		return nil, err
	}
	return s.changed(id, w, key), nil
}

// changed returns the result of a change of a webhook, with a warning if no notice will reach it.
func (s *webhookService) changed(id string, w *notices.Webhook, key notices.Key) any {
	out := tagged{result: showWebhook(id, w, key)}
	if err := s.refuses(w.URL); err != nil {
		out.notes = []api.Note{{Code: codeKept, Message: fmt.Sprintf("webhook %s gets no notice: %v", w.Name, err)}}
	}
	return out
}

func (s *webhookService) patch(ctx context.Context, q *request) (any, error) {
	id, before, revision, err := s.find(ctx, q)
	if err != nil {
		return nil, err
	}
	after := *before
	key, err := s.read(ctx, q, &after, false)
	if err != nil {
		return nil, err
	}
	err = s.change(ctx, id, before, &after, func() error { return s.hooks.Put(ctx, id, &after, revision) })
	if err != nil {
		return nil, err
	}
	return s.changed(id, &after, key), nil
}

func (s *webhookService) delete(ctx context.Context, q *request) (any, error) {
	id, before, revision, err := s.find(ctx, q)
	if err != nil {
		return nil, err
	}
	err = s.change(ctx, id, before, nil, func() error { return s.hooks.Delete(ctx, id, revision) })
	if err != nil {
		return nil, err
	}
	return deleted(id), nil
}

// test posts one notice from this candidate, also to a webhook that is off.
func (s *webhookService) test(ctx context.Context, q *request) (any, error) {
	_, w, _, err := s.find(ctx, q)
	if err == nil {
		err = q.empty()
	}
	if err != nil {
		return nil, err
	}
	n := notices.Notice{ID: "msg_" + rand.Text(), Kind: notices.WebhookTest, At: fleettime.Time(s.clock.fleet())}
	n.Data.Text = "This is a test of webhook " + w.Name + "."
	r := s.post(ctx, s.clock.now(), w, &n)
	out := api.WebhookTest{Id: n.ID, Delivered: r.Err == nil, Status: r.Status}
	if r.Err != nil {
		text := r.Err.Error()
		out.Error = &text
	}
	return out, nil
}

// find returns the webhook in the path.
func (s *webhookService) find(
	ctx context.Context, q *request,
) (id string, w *notices.Webhook, revision uint64, err error) {
	if id = q.PathValue("webhook_id"); !webhookID.MatchString(id) {
		return "", nil, 0, errNotFound
	}
	w, revision, err = s.hooks.Get(ctx, id)
	if err == nil && w == nil {
		err = errNotFound
	}
	return id, w, revision, err
}

// change makes a change of a webhook after its audit entry, without URL and secrets.
func (s *webhookService) change(
	ctx context.Context, id string, before, after *notices.Webhook, change func() error,
) error {
	err := s.audited(ctx, s.clock.now(), webhookTarget+id, before.Audited(), after.Audited(), change)
	if errors.Is(err, wire.ErrChanged) {
		return refusef(http.StatusConflict, codeNotNow,
			"the webhook was changed by another request: nothing was changed, try again")
	}
	return err
}

// read reads the fields of a body into w. A new webhook needs a name and a URL, and gets a secret.
func (s *webhookService) read(
	ctx context.Context, q *request, w *notices.Webhook, create bool,
) (key notices.Key, err error) {
	var f faults
	m := f.object("", q.body, webhookFields...)
	if _, given := m["name"]; given || create {
		w.Name = f.name(m["name"])
	}
	if _, given := m["url"]; given || create {
		address, ok := f.text("/url", m["url"])
		if w.URL = address; ok {
			if why := notices.CheckURL(address); why != "" {
				f.add("/url", "url %s", why)
			}
		}
	}
	if data, given := m["kinds"]; given {
		readKinds(&f, data, w)
	}
	if data, given := m["rooms"]; given {
		state, err := s.rooms.store.Read(ctx)
		if err != nil {
			return "", err
		}
		s.readRooms(&f, data, state, w)
	}
	if data, given := m["enabled"]; given {
		s.readEnabled(&f, data, w)
	}
	rotate, _ := f.flag("/rotate_secret", m["rotate_secret"])
	if f.n > 0 {
		return "", f.err()
	}
	if !rotate && !create {
		return "", nil
	}
	key = notices.NewKey()
	w.Rotate(s.clock.now().UTC().Truncate(time.Second), key)
	return key, nil
}

// texts reads a list of strings; null is none.
func (f *faults) texts(pointer string, data json.RawMessage, most int) (list []string) {
	if null(data) {
		return nil
	}
	if err := json.Unmarshal(data, &list); err != nil || len(list) > most {
		f.add(pointer, "%s must be a list of at most %d strings", cmpName(pointer), most)
		return nil
	}
	return list
}

func readKinds(f *faults, data json.RawMessage, w *notices.Webhook) {
	w.Kinds = nil
	for _, text := range f.texts("/kinds", data, len(notices.Kinds)) {
		if !slices.Contains(notices.Kinds, notices.Kind(text)) {
			f.add("/kinds", "kinds must be of %s, got %q", joined(notices.Kinds), short(text))
			return
		}
		w.Kinds = append(w.Kinds, notices.Kind(text))
	}
}

func joined(kinds []notices.Kind) string {
	var out []string
	for _, k := range kinds {
		out = append(out, string(k))
	}
	return strings.Join(out, ", ")
}

// readRooms reads the names or IDs of rooms. They are kept as IDs.
func (s *webhookService) readRooms(f *faults, data json.RawMessage, state *roomstore.State, w *notices.Webhook) {
	w.Rooms = nil
	for _, text := range f.texts("/rooms", data, maxWebhookRooms) {
		r := s.rooms.named(state, text)
		if r == nil {
			f.add("/rooms", "rooms must be names or IDs of rooms, and there is no %q", short(text))
			return
		}
		if id := room.PublicID(r.TicketName()); !slices.Contains(w.Rooms, id) {
			w.Rooms = append(w.Rooms, id)
		}
	}
}

func (s *webhookService) readEnabled(f *faults, data json.RawMessage, w *notices.Webhook) {
	switch on, ok := f.flag("/enabled", data); {
	case !ok:
	case on:
		w.Off = nil
	case w.Off == nil || w.Off.Failed:
		w.Off = &notices.Off{At: s.clock.now().UTC().Truncate(time.Second), Why: "an operator turned it off"}
	}
}
