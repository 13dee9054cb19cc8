package allinone

import (
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

func seeded(seed uint64) *mrand.Rand { return mrand.New(mrand.NewPCG(seed, seed)) }

// TestKeyRotation: tickets are sealed again with new keys at their next request; nobody loses a session or a place.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	tree, _ := grow(t, 1, 60, 10*time.Minute)
	guest, waiter := newBrowser(t), newBrowser(t)
	edges := tree.Info.Edges
	guest.stays(edges[0].URL)
	if waiter.open(edges[2].URL).inside {
		t.Fatal("came in beyond T")
	}

	conn := testkit.Must(tree.connect("test", "", tree.log))(t)
	docs := natsbus.NewDocuments(conn, 0, node.KeysDocument)
	stored, revision, err := docs.Get(t.Context(), node.KeysDocument)
	testkit.NoError(t, err)
	ring := testkit.Must(ticket.DecodeKeyring(stored))(t)
	before := opened(t, ring, waiter, edges[2].URL)
	// Like Rotate, but the next key seals at once instead of in a day.
	ring.Keys[1].SealFrom = fleettime.TimeOf(time.Now())
	next := testkit.Must(ring.Rotate(ring.Keys[1].SealFrom, time.Hour, rand.Reader))(t)
	data := testkit.Must(ticket.EncodeKeyring(next))(t)
	testkit.Must(docs.Put(t.Context(), node.KeysDocument, data, revision))(t)
	took := eventually(t, "every edge has the new keys", func() bool {
		all := metrics(t, tree.Info.Metrics)
		for _, e := range edges {
			if !strings.Contains(all,
				fmt.Sprintf(`vestibule_document_version{document="keys",node="edge-%s-%s"} 2`, e.DC, e.Name)) {
				return false
			}
		}
		return true
	})
	t.Logf("new keys are at every edge after %v", took.Round(time.Millisecond))

	edit(t, tree, "total_active_users: 1", "total_active_users: 2")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	testkit.Must(waiter.wait(ctx, edges[3].URL))(t)
	// A visitor held while an edge switched keys has a ticket with the old one until the next request.
	if !waiter.open(edges[2].URL).inside {
		t.Error("the admission was lost")
	}
	after := opened(t, ticket.Keyring{Version: 1, Keys: next.Keys[1:]}, waiter, edges[2].URL) // sealed with the new key
	if after.ID != before.ID || after.Joined != before.Joined || !after.IsAdmitted() {
		t.Errorf("the place was lost: %+v, was %+v", after, before)
	}
	if !guest.open(edges[1].URL).inside {
		t.Error("the session was lost")
	}
	if s := tree.Origin.Stats(); s.Total != 2 {
		t.Errorf("%d sessions, want two", s.Total)
	}
}

// TestKeysOnDemand: after a rotation by the API sessions go on; after a revocation every edge refuses the tickets of
// before, and their permits are not given to others while they could be valid.
func TestKeysOnDemand(t *testing.T) {
	t.Parallel()
	tree, _ := grow(t, 1, 60, 10*time.Minute)
	guest := newBrowser(t)
	edges := tree.Info.Edges
	guest.stays(edges[0].URL)
	conn := testkit.Must(tree.connect("test", "", tree.log))(t)
	docs := natsbus.NewDocuments(conn, 0, node.KeysDocument)
	read := func() (ticket.Keyring, uint64) {
		stored, revision, err := docs.Get(t.Context(), node.KeysDocument)
		testkit.NoError(t, err)
		return testkit.Must(ticket.DecodeKeyring(stored))(t), revision
	}
	await := func(version uint64) {
		eventually(t, "every edge has the new keys", func() bool {
			all := metrics(t, tree.Info.Metrics)
			for _, e := range edges {
				if !strings.Contains(all, fmt.Sprintf(`vestibule_document_version{document="keys",node="edge-%s-%s"} %d`, e.DC, e.Name, version)) {
					return false
				}
			}
			return true
		})
	}
	const rotate = "/vestibule/keys/rotate"
	if code := ask(t, tree, http.MethodPost, rotate, `{}`, "", nil); code != http.StatusConflict {
		t.Errorf("a key that was announced just now: %d", code)
	}
	ring, revision := read()
	ring.Version++
	ring.Keys[1].SealFrom = fleettime.TimeOf(time.Now().Add(24*time.Hour - ticket.MinRotation - time.Minute)) // announced 11 minutes ago
	testkit.Must(docs.Put(t.Context(), node.KeysDocument, testkit.Must(ticket.EncodeKeyring(ring))(t), revision))(t)
	await(2)
	if code := ask(t, tree, http.MethodPost, rotate, `{}`, "", nil); code != http.StatusOK {
		t.Fatalf("a rotation: %d", code)
	}
	await(3)
	for _, e := range edges {
		if !guest.open(e.URL).inside {
			t.Fatal("a rotation ended a session")
		}
	}
	if code := ask(t, tree, http.MethodPost, rotate, `{"revoke_old":true}`, "", nil); code != http.StatusOK {
		t.Fatalf("a revocation: %d", code)
	}
	ring, _ = read()
	await(ring.Version)
	for _, e := range edges {
		if guest.open(e.URL).inside {
			t.Errorf("edge %s serves a session of a revoked key, or admits beyond T", e.Name)
		}
	}
	if s := tree.Origin.Stats(); s.Total != 1 {
		t.Errorf("%d sessions, want one", s.Total)
	}
}

// opened returns the ticket of a browser.
func opened(t *testing.T, ring ticket.Keyring, b *browser, edge string) ticket.Ticket {
	t.Helper()
	name := ticket.CookieName("demo", false)
	codec := testkit.Must(ticket.NewCodec(ring, room.IDOf("demo"), name))(t)
	var tk ticket.Ticket
	if err := codec.Open(&tk, cookie(t, b, edge, name), ticket.NewScratch([32]byte{})); err != nil {
		t.Fatalf("the ticket cannot be opened with these keys: %v", err)
	}
	return tk
}

func metrics(t *testing.T, url string) string {
	t.Helper()
	resp := testkit.Must(http.Get(url + "/metrics"))(t)
	defer resp.Body.Close()
	var b strings.Builder
	testkit.NoError(t, resp.Write(&b))
	http.DefaultClient.CloseIdleConnections()
	return b.String()
}
