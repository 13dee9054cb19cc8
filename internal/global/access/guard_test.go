package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/global/control"
)

// A wrong name, password and code get one answer.
func TestWrongLoginsLookAlike(t *testing.T) {
	f := start(t, nil)
	f.user("ana", control.Operator)
	f.user("ben", control.Operator).factor()
	invited, err := f.Invite(t.Context(), "eve", control.Viewer, nil)
	if err != nil || invited == "" {
		t.Fatal(invited, err)
	}
	var first string
	for what, c := range map[string][3]string{
		"password": {"ana", "wrong horse battery", ""}, "name": {"nobody", secretWord, ""}, "empty": {"", "", ""},
		"no password yet": {"eve", "", ""}, "code": {"ben", secretWord, "000000"}, "no code": {"ben", secretWord, ""},
		"long": {"ana", strings.Repeat("x", 10_000), ""},
	} {
		b := f.client()
		w := b.login(c[0], c[1], c[2])
		page := strings.Replace(w.Body.String(), fmt.Sprintf("value=%q", c[0]), `value=""`, 1)
		if first == "" {
			first = page
		}
		if w.Code != http.StatusUnauthorized || page != first || b.in() {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
	b := f.client()
	if w := b.login("ANA", secretWord, ""); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/console/" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if who, ok := b.who(); !ok || who.Name != "ana" || who.Role != control.Operator || who.ID != "user:ana" {
		t.Errorf("%+v, %v", who, ok)
	}
}

// A code is good for its step and the ones beside it, once, and no code of an earlier step after it.
func TestCodesAreGoodForTheirStep(t *testing.T) {
	f := start(t, nil)
	secret, _ := f.user("ana", control.Viewer).factor()
	for _, c := range []struct {
		what  string
		steps int64
		wait  time.Duration
		good  bool
	}{
		{"two steps old", -2, 0, false},
		{"two steps early", 2, 0, false},
		{"a step old", -1, 0, true},
		{"the same again", -1, 0, false},
		{"a step early", 1, 0, true},
		{"an older one then", 0, 0, false},
		{"the same again", 1, 0, false},
		{"the same, later", 0, totpStep, false},
		{"the next one", 0, totpStep, true},
	} {
		f.pass(c.wait)
		if b := f.client(); (b.login("ana", secretWord, f.code(secret, c.steps)).Code == http.StatusSeeOther) != c.good || b.in() != c.good {
			t.Errorf("%s: good is not %v", c.what, c.good)
		}
	}
}

// Of two logins with one code at the same time, one is let in.
func TestACodeIsUsedOnceByTwoAtATime(t *testing.T) {
	f := start(t, nil)
	secret, codes := f.user("ana", control.Viewer).factor()
	for _, code := range []string{f.code(secret, 0), codes[0]} {
		b, rival := f.client(), f.client()
		f.docs.before["access"] = func() { rival.login("ana", secretWord, code) }
		if b.login("ana", secretWord, code); b.in() || !rival.in() {
			t.Errorf("in with %s: %v, and before it %v", code, b.in(), rival.in())
		}
	}
}

// guess posts logins that fail, and returns the last status.
func (b *client) guess(n int, name string) (status int) {
	for range n {
		status = b.login(name, "wrong horse battery", "").Code
	}
	return status
}

// An address and a name may fail ten times a minute. Others are not locked out, and neither is the user at an address
// where a login was good; but that one is limited too.
func TestGuessesAreThrottled(t *testing.T) {
	f := start(t, nil)
	f.user("ana", control.Viewer)
	f.user("ben", control.Viewer)
	at := func(from string) *client {
		b := f.client()
		b.from = from
		return b
	}
	if w := at("192.0.2.1").login("ana", secretWord, ""); w.Code != http.StatusSeeOther {
		t.Fatal(w.Code)
	}
	f.pass(time.Minute)
	if code := at("198.51.100.1").guess(10, "ben"); code != http.StatusUnauthorized {
		t.Errorf("the tenth failure: %d", code)
	}
	for _, c := range []struct {
		what, from, name string
		status           int
	}{
		{"the address", "198.51.100.1", "ben", http.StatusTooManyRequests},
		{"the address, another name", "198.51.100.1", "ana", http.StatusTooManyRequests},
		{"another address, the name", "198.51.100.2", "ben", http.StatusTooManyRequests},
		{"another address and name", "198.51.100.2", "ana", http.StatusSeeOther},
	} {
		if w := at(c.from).login(c.name, secretWord, ""); w.Code != c.status {
			t.Errorf("%s: %d, want %d", c.what, w.Code, c.status)
		}
	}
	f.pass(time.Minute)
	if w := at("198.51.100.1").login("ben", secretWord, ""); w.Code != http.StatusSeeOther {
		t.Errorf("a minute later: %d", w.Code)
	}

	for i := range 2 {
		at(fmt.Sprint("203.0.113.", i)).guess(5, "ana")
	}
	if w := at("203.0.113.9").login("ana", secretWord, ""); w.Code != http.StatusTooManyRequests {
		t.Errorf("a name that many addresses guess: %d", w.Code)
	}
	if w := at("192.0.2.1").login("ana", secretWord, ""); w.Code != http.StatusSeeOther {
		t.Errorf("the user is locked out by guesses from elsewhere: %d", w.Code)
	}
	f.pass(time.Minute)
	if code := at("192.0.2.1").guess(11, "ana"); code != http.StatusTooManyRequests {
		t.Errorf("guesses beside a good login: %d", code)
	}
}

// Many guesses at once cost few hashes: those beyond a short queue are refused at once.
func TestGuessesAtOnceCostFewHashes(t *testing.T) {
	f := start(t, nil)
	f.user("ana", control.Viewer)
	for range hashesAtOnce { // every hash is in use
		f.hasher.running <- struct{}{}
	}
	const n = 200
	answers := make(chan int, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			b := f.client()
			b.from = fmt.Sprintf("198.51.%d.1", i)
			answers <- b.guess(1, fmt.Sprint("user", i))
		})
	}
	for range n - maxWaiting {
		if code := <-answers; code != http.StatusServiceUnavailable {
			t.Fatalf("a guess beyond the queue: %d", code)
		}
	}
	for range hashesAtOnce {
		<-f.hasher.running
	}
	all.Wait()
	for range maxWaiting {
		if code := <-answers; code != http.StatusUnauthorized {
			t.Errorf("a guess in the queue: %d", code)
		}
	}
}

// Every page forbids scripts and frames, has none of its own, and is not kept.
func TestPagesAreStrict(t *testing.T) {
	f := start(t, nil)
	b := f.user("ana", control.Viewer)
	link, err := f.AdminLink(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []*httptest.ResponseRecorder{
		f.client().get("/login"), b.get("/account"), b.get(link), b.get("/setup/unknown"), b.post("/account/factor", "current", secretWord),
		f.client().login("<script>x", "", ""),
	} {
		h, page := w.Header(), w.Body.String()
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Content-Type": "text/html; charset=utf-8",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		if strings.Contains(page, "<script") || strings.Contains(page, "<style") || strings.Contains(page, "style=") || !strings.HasSuffix(page, "</html>\n") {
			t.Errorf("%s", page)
		}
	}
}

// BenchmarkThrottledGuess is a guess that is refused before its password is hashed.
func BenchmarkThrottledGuess(b *testing.B) {
	f := start(b, nil)
	guesser := f.client()
	guesser.guess(11, "ana")
	for b.Loop() {
		if code := guesser.guess(1, "ana"); code != http.StatusTooManyRequests {
			b.Fatal(code)
		}
	}
}

// No copy of a session outlives its end, whoever ended it.
func TestACopyOfASessionEndsWithIt(t *testing.T) {
	const other = "another long password"
	for what, end := range map[string]func(f *fixture, b *client) error{
		"logout": func(_ *fixture, b *client) error { return wantSee(b.post("/logout").Code) },
		"password": func(_ *fixture, b *client) error {
			return wantSee(b.post("/account/password", "current", secretWord, "password", other, "again", other).Code)
		},
		"role":    func(f *fixture, _ *client) error { return f.Change(f.Context(), "ana", control.Viewer, nil) },
		"rooms":   func(f *fixture, _ *client) error { return f.Change(f.Context(), "ana", control.Editor, []string{"x"}) },
		"removal": func(f *fixture, _ *client) error { return f.Remove(f.Context(), "ana") },
		"another of the name": func(f *fixture, _ *client) error {
			err := f.Remove(f.Context(), "ana")
			f.user("ana", control.Editor)
			return err
		},
	} {
		f := start(t, nil)
		b := f.user("ana", control.Editor)
		replayed := b.again()
		if !replayed.in() {
			t.Fatal("the copy is no session")
		}
		if err := end(f, b); err != nil || replayed.in() {
			t.Errorf("%s: %v, the copy is a session: %v", what, err, replayed.in())
		}
		if w := replayed.get("/account"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/login" {
			t.Errorf("%s: the account of the copy: %d", what, w.Code)
		}
		if b.in() != (what == "password") {
			t.Errorf("%s: the own session: %v", what, b.in())
		}
	}
}

func wantSee(status int) error {
	if status != http.StatusSeeOther {
		return fmt.Errorf("status %d", status)
	}
	return nil
}

// A login makes a new session: one that was there before is no session of the user.
func TestALoginTakesNoGivenSession(t *testing.T) {
	f := start(t, nil)
	f.user("ana", control.Viewer)
	given := f.client()
	given.jar["vestibule_session"] = strings.Repeat("A", 43)
	b := given.again()
	if b.login("ana", secretWord, ""); !b.in() || given.in() {
		t.Errorf("in: %v; with the given one: %v", b.in(), given.in())
	}
}

// The cookie is bound to the host, and no script reads it; without TLS, on a loopback address, it has a plain name.
func TestTheCookie(t *testing.T) {
	f := start(t, nil)
	f.user("ana", control.Viewer)
	for secure, name := range map[bool]string{true: "__Host-vestibule", false: "vestibule_session"} {
		b := f.client()
		b.secure = secure
		cookies := b.login("ana", secretWord, "").Result().Cookies()
		if len(cookies) != 1 {
			t.Fatal(cookies)
		}
		if c := cookies[0]; c.Name != name || c.Secure != secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
			t.Errorf("TLS %v: %s", secure, c)
		}
	}
}

// A session is written once a minute at most, however often it is used.
func TestSessionsAreWrittenSeldom(t *testing.T) {
	f := start(t, nil)
	b := f.user("ana", control.Viewer)
	before := f.docs.Puts
	for range 50 {
		b.in()
	}
	if f.docs.Puts != before {
		t.Errorf("%d writes", f.docs.Puts-before)
	}
	f.pass(seenEvery)
	for range 50 {
		b.in()
	}
	if f.docs.Puts != before+1 {
		t.Errorf("%d writes after a minute", f.docs.Puts-before)
	}
}

// The store has no secret that lets anybody in: no password, cookie, link or recovery code. The audit log has none
// either, and no second factor.
func TestTheStoreLetsNobodyIn(t *testing.T) {
	f := start(t, nil)
	b := f.user("ana", control.Viewer)
	secret, codes := b.factor()
	link, err := f.AdminLink(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	secrets := append(codes, secretWord, b.jar["vestibule_session"], strings.TrimPrefix(link, setupPath))
	for _, code := range codes {
		secrets = append(secrets, plainCode(code))
	}
	for key, data := range f.docs.Data {
		for _, s := range secrets {
			if s == "" || strings.Contains(key+string(data), s) {
				t.Errorf("%s has %q: %s", key, s, data)
			}
		}
	}
	for _, e := range f.entries() {
		for _, s := range append(secrets, secret, "$argon2id$") {
			if strings.Contains(e, s) {
				t.Errorf("an audit entry has %q: %s", s, e)
			}
		}
	}
	if hash := string(f.docs.Data[bookDocument]); !strings.Contains(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("%s", hash)
	}
}

// Of two that use one link at the same time, one gets in.
func TestALinkIsUsedOnceByTwoAtATime(t *testing.T) {
	f := start(t, nil)
	link, err := f.AdminLink(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	b, rival := f.client(), f.client()
	f.docs.before[bookDocument] = func() { rival.post(link, "name", "eve", "password", secretWord, "again", secretWord) }
	w := b.post(link, "name", "ana", "password", secretWord, "again", secretWord)
	if got := f.names(); w.Code != http.StatusGone || b.in() || !rival.in() || !slices.Equal(got, []string{"eve admin"}) {
		t.Errorf("%d, in: %v and %v, users %v", w.Code, b.in(), rival.in(), got)
	}
}

// An invited user sets a password and nothing else: neither the role nor the name.
func TestAnInvitedUser(t *testing.T) {
	f := start(t, nil)
	f.admin("root")
	link, err := f.Invite(t.Context(), "Ana@example.org", control.Operator, []string{"r1"})
	if err != nil {
		t.Fatal(err)
	}
	b := f.client()
	b.post(link, "name", "root", "role", "admin", "password", secretWord, "again", secretWord)
	if who, ok := b.who(); !ok || who.Name != "ana@example.org" || who.Role != control.Operator || !slices.Equal(who.Rooms, []string{"r1"}) {
		t.Errorf("%+v, %v", who, ok)
	}
	again, err := f.Invite(t.Context(), "ana@example.org", control.Admin, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.pass(invitedFor)
	if w := f.client().get(again); w.Code != http.StatusGone {
		t.Errorf("an old invitation: %d", w.Code)
	}
	link, err = f.Invite(t.Context(), "ana@example.org", control.Admin, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(t.Context(), "ana@example.org"); err != nil {
		t.Fatal(err)
	}
	if w := f.client().post(link, "password", secretWord, "again", secretWord); w.Code != http.StatusGone {
		t.Errorf("the link of a user that was removed: %d", w.Code)
	}
	for _, name := range []string{"", " ", "a b", "-a", strings.Repeat("a", 65), "a/b", "é"} {
		if _, err := f.Invite(t.Context(), name, control.Viewer, nil); err == nil {
			t.Errorf("the name %q", name)
		}
	}
}

// Two admins that remove or demote each other at the same time leave one.
func TestTheLastTwoAdminsAtATime(t *testing.T) {
	for what, change := range map[string]func(f *fixture, name string) error{
		"removal":  func(f *fixture, name string) error { return f.Remove(f.Context(), name) },
		"demotion": func(f *fixture, name string) error { return f.Change(f.Context(), name, control.Viewer, nil) },
	} {
		f := start(t, nil)
		f.admin("ana")
		f.admin("ben")
		var rival error
		f.docs.before[bookDocument] = func() { rival = change(f, "ana") }
		err := change(f, "ben")
		if rival != nil || err == nil {
			t.Errorf("%s: %v, and then %v", what, rival, err)
		}
		if got := f.names(); !slices.Contains(got, "ben admin") {
			t.Errorf("%s: users %v", what, got)
		}
	}
}

// Users are bounded in number, and fit in a document.
func TestTheNumberOfUsersIsBounded(t *testing.T) {
	f := start(t, nil)
	for i := range maxUsers {
		name := strings.Repeat("n", 60) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		if _, err := f.Invite(t.Context(), name, control.Viewer, nil); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := f.Invite(t.Context(), "more", control.Viewer, nil); err == nil {
		t.Error("one more")
	}
	if link, err := f.AdminLink(t.Context(), true); err != nil || link == "" {
		t.Error("no link for the first admin")
	}
	b, _, err := f.store.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	full := user{Role: control.Operator, Password: strings.Repeat("p", 97), TOTP: newTOTP(), Pending: newTOTP(), Step: 1 << 40, Sessions: random(), Made: time.Now()}
	for range 20 {
		full.Rooms = append(full.Rooms, strings.Repeat("0", 32))
	}
	_, full.Recovery = newRecovery()
	for name := range b.Users {
		b.Users[name] = &full
	}
	if data := encoded(t, b); len(data) > f.docs.Limit() {
		t.Errorf("%d users with 20 rooms each have %d bytes, the most is %d", len(b.Users), len(data), f.docs.Limit())
	}
}

// A change by a session of one's own needs the password, and guesses at it are bounded.
func TestTheOwnAccountNeedsThePassword(t *testing.T) {
	f := start(t, nil)
	b := f.user("ana", control.Viewer)
	for _, path := range []string{"/account/password", "/account/factor", "/account/factor/remove"} {
		if w := b.post(path, "current", "wrong horse battery", "password", "another long password", "again", "another long password"); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, w.Code)
		}
		if w := f.client().post(path, "current", secretWord); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/login" {
			t.Errorf("%s without a session: %d", path, w.Code)
		}
	}
	secret := newTOTP() // of a thief of the session, who does not know the password
	b.post("/account/factor/confirm", "secret", secret, "code", b.code(secret, 0))
	if all, err := f.List(t.Context()); err != nil || all[0].SecondFactor {
		t.Errorf("a second factor without the password: %+v, %v", all, err)
	}
	for range 7 {
		b.post("/account/factor/remove", "current", "wrong horse battery")
	}
	if w := b.post("/account/factor/remove", "current", secretWord); w.Code != http.StatusTooManyRequests {
		t.Errorf("after ten guesses: %d", w.Code)
	}
	f.pass(time.Minute)
	if w := b.post("/account/factor/remove", "current", secretWord); w.Code != http.StatusSeeOther {
		t.Errorf("a minute later: %d", w.Code)
	}
}

// While the audit stream is away a user can be removed, and nothing else changes.
func TestUsersWhileTheAuditStreamIsAway(t *testing.T) {
	f := start(t, nil)
	f.admin("ana")
	b := f.user("ben", control.Operator)
	f.audit.Before = func(string) string { return "failed" }
	if err := f.Change(t.Context(), "ben", control.Admin, nil); err == nil || !b.in() {
		t.Errorf("another role: %v", err)
	}
	if _, err := f.Invite(t.Context(), "eve", control.Viewer, nil); err == nil {
		t.Error("a user was made")
	}
	if err := f.Remove(t.Context(), "ben"); err != nil || b.in() {
		t.Errorf("removal: %v", err)
	}
	if got := f.names(); len(got) != 1 || got[0] != "ana admin" {
		t.Errorf("users: %v", got)
	}
}
