package control

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
)

// stored returns the ticket keys in the store.
func (f *fixture) stored() (ticket.Keyring, uint64) {
	f.Helper()
	data, revision, err := f.docs.Get(f.Context(), keysDocument)
	testkit.NoError(f, err)
	if data == nil {
		return ticket.Keyring{}, revision
	}
	return testkit.Must(ticket.DecodeKeyring(data))(f), revision
}

func (f *fixture) keep(r ticket.Keyring) {
	f.Helper()
	_, revision := f.stored()
	testkit.Must(f.docs.Put(f.Context(), keysDocument, testkit.Must(ticket.EncodeKeyring(r))(f), revision))(f)
}

// Keys are rotated and revoked by admins, with an entry in the audit log that has no key.
func TestKeysAreRotatedAndRevoked(t *testing.T) {
	f := start(t)
	const at = "/vestibule/keys/rotate"
	f.expect(http.StatusConflict, Admin, "POST", at, `{}`) // no keys yet
	begun := fleettime.TimeOf(time.Now().Add(-time.Hour))
	ring := testkit.Must(ticket.Keyring{}.Rotate(begun, 24*time.Hour, rand.Reader))(t)
	f.keep(ring)
	f.expect(http.StatusForbidden, Editor, "POST", at, `{}`)
	f.expect(http.StatusBadRequest, Admin, "POST", at, `{"revoke_old":"x"}`)
	f.expect(http.StatusBadRequest, Admin, "POST", at, `{"revoke":true}`)

	a := f.ok(Admin, "POST", at+"?reason=spring", `{}`)
	rotated, _ := f.stored()
	if done, _ := a.field("done").(string); !strings.Contains(done, "version 2 of the keys") || rotated.Version != 2 ||
		!slices.Equal(rotated.Keys[:1], ring.Keys[:1]) || rotated.Keys[1].Secret != ring.Keys[1].Secret {
		t.Errorf("%v: %+v", a.Result, rotated)
	}
	if got := f.newestSentence(); got != "rotated the keys of tickets: spring" {
		t.Error(got)
	}
	f.expect(http.StatusConflict, Admin, "POST", at, `{"revoke_old":false}`) // the new key is unknown to edges

	f.ring = rotated
	f.keep(ring) // a store that was rolled back
	f.ok(Admin, "POST", at+"?reason=leak", `{"revoke_old":true}`)
	revoked, _ := f.stored()
	if !revoked.Continues(rotated) || !revoked.Newer(rotated) || revoked.Keys[0].ID <= rotated.Keys[2].ID {
		t.Errorf("%+v", revoked)
	}
	if got := f.newestSentence(); got != "revoked all tickets: new keys are in use: leak" {
		t.Error(got)
	}
	list := f.ok(Admin, "GET", "/vestibule/audit?per_page=1", "").list()
	secret := secretIn(string(testkit.Must(ticket.EncodeKeyring(revoked))(t)))
	if len(list) != 1 || secret == "" || strings.Contains(fmt.Sprint(list), secret) {
		t.Error("the audit log has a key")
	}
}

// secretIn returns the first secret of a stored ring.
func secretIn(ring string) string {
	_, after, _ := strings.Cut(ring, `"secret":"`)
	secret, _, _ := strings.Cut(after, `"`)
	return secret
}
